"""The native engine: greedy decoding with torch, batched, with cached prefixes.

In: one or more histories. Out: a Decision for each. A constrained engine writes only actions: it takes the
most probable allowed token, skips the forward pass for forced tokens, and closes a typed text that reaches
the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History
from uivlm.episodes.sentence import ScreenPiece
from uivlm.inference.constrained import ActionConstraint, best_tokens
from uivlm.inference.decode_graph import DecodeGraphs
from uivlm.inference.decoding import (
    MAX_NEW_TOKENS,
    GenerationState,
    append_token,
    build_prompt,
    finish,
    new_state,
)
from uivlm.inference.load import LoadedCheckpoint
from uivlm.inference.prefix_cache import (
    MAX_CACHED_SCREENS,
    BatchDecoder,
    CacheKey,
    ImageFeatureCache,
    PrefixCache,
    screen_key,
)
from uivlm.inference.thought import ThoughtConstraint
from uivlm.inference.top_k import search_top_k

MAX_CACHED_PREFIXES = 2  # by default


class Engine(Protocol):
    """Computes decisions. Stateless to its caller: its caches change the cost only.

    The confidence of a decision is the product of the probabilities of all chosen tokens, the end token among
    them. `action_type_confidence` has the tokens up to the action type only, so that confidence /
    action_type_confidence is the confidence of the location or text.
    """

    def predict_batch(self, histories: Sequence[History]) -> list[Decision]:
        """One decision for each history, in one batch. Thread-safe."""

    def reset_cache(self) -> None:
        """Afterwards results are bit-equal to those of a new engine."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    token_ids: list[int]
    keys: list[CacheKey]  # one for each token
    screens: list[
        tuple[ScreenPiece, bytes, int, int]
    ]  # piece, key, index of its first and of its last visual token
    later: list[tuple[ScreenPiece, bytes]]  # the newest screen in the sizes that later windows show it in


class TorchEngine:
    """Stateless to its caller: its caches change the cost only. Thread-safe."""

    def __init__(
        self,
        checkpoint: LoadedCheckpoint,
        max_new_tokens: int = MAX_NEW_TOKENS,
        use_cache: bool = True,
        max_cached_prefixes: int = MAX_CACHED_PREFIXES,
        constrained: bool = False,  # to text that is an action
    ) -> None:
        self.checkpoint, self.max_new_tokens = checkpoint, max_new_tokens
        action_text = checkpoint.prompt_format.action_text
        self.constraint = ActionConstraint(checkpoint.processor, action_text) if constrained else None
        thinks = checkpoint.prompt_format.thoughts != "none"
        self.thoughts = ThoughtConstraint(checkpoint.processor) if thinks else None
        self.lock = Lock()
        # on a CPU the step of one token is not captured: there, its time is not that of starting kernels
        is_captured = checkpoint.supports_static_decoding and next(checkpoint.model.parameters()).is_cuda
        self.graphs = DecodeGraphs(checkpoint.model) if is_captured else None
        prefixes = max_cached_prefixes if checkpoint.supports_prefix_cache else 0
        self.cache_sizes = (MAX_CACHED_SCREENS, prefixes) if use_cache else (0, 0)
        self.reset_cache()

    def reset_cache(self) -> None:
        """Afterwards results are bit-equal to those of a new engine.

        (Sums depend on what is computed together.)
        """
        max_screens, max_prefixes = self.cache_sizes
        with self.lock:
            self.feature_cache = ImageFeatureCache(
                self.checkpoint.model, self.checkpoint.processor, max_screens
            )
            self.prefix_cache = PrefixCache(max_prefixes)

    def predict(self, history: History) -> Decision:
        return self.predict_batch([history])[0]

    def predict_batch(self, histories: Sequence[History]) -> list[Decision]:
        """One decision for each history, in one batch."""
        if not self.checkpoint.supports_prefix_cache and len(histories) > 1:
            return [
                self.predict(history) for history in histories
            ]  # such a model takes rows of one length only
        processor, action_text = self.checkpoint.processor, self.checkpoint.prompt_format.action_text
        with self.lock, torch.inference_mode():
            return [
                finish(state, processor, action_text, self.constraint) for state in self._generate(histories)
            ]

    def top_k(self, history: History, k: int) -> list[Decision]:
        """At most `k` decisions of a constrained engine, in order of decreasing confidence.

        There are fewer if the others are less probable than one in a million, longer than the limit, or typed
        texts whose search takes too long.
        """
        if self.constraint is None:
            raise ValueError("top_k needs an engine with constrained=True")
        processor, action_text = self.checkpoint.processor, self.checkpoint.prompt_format.action_text
        with self.lock, torch.inference_mode():
            prompt = self._build_prompt(history)
            decoder, logits = self._prefill([prompt])
            state = self._new_state(prompt)
            while state.is_thinking:
                logits = decoder.decode(self._step([state], logits))
            self._store_prefixes(decoder)
            next_probs = partial(_next_probs, decoder, len(decoder.keys[0]))
            probs = logits[0].float().softmax(-1)
            candidates = list(search_top_k(self.constraint, next_probs, probs, k, state.max_new_tokens))
        thought = processor.decode(state.thought_ids)
        texts = [processor.decode(candidate.token_ids) for candidate in candidates]
        return [
            Decision(
                action_text.parse(text), thought + text, candidate.probability, candidate.type_probability
            )
            for text, candidate in zip(texts, candidates, strict=True)
        ]

    def _new_state(self, prompt: _Prompt) -> GenerationState:
        num_free_tokens = self.checkpoint.processor.max_length - len(prompt.token_ids)
        return new_state(num_free_tokens, self.max_new_tokens, self.checkpoint.prompt_format)

    def _generate(self, histories: Sequence[History]) -> list[GenerationState]:
        prompts = [self._build_prompt(history) for history in histories]
        decoder, logits = self._prefill(prompts)
        states = [self._new_state(prompt) for prompt in prompts]
        while True:
            rows = self._step(states, logits)
            if not any(rows):
                break
            logits = decoder.decode(rows)
        self._store_prefixes(decoder)
        return states

    def _step(self, states: Sequence[GenerationState], logits: Tensor) -> list[list[int]]:
        """Choose the next token of each sequence. `logits` [B, V].

        Returns the tokens to run next; none for a sequence that has stopped.
        """
        probs = logits.float().softmax(-1)
        rows = zip(states, probs, strict=True)
        best = best_tokens(probs, [self._forbidden_tokens(state, row) for state, row in rows])
        chosen = torch.stack([best.double(), probs.gather(1, best[:, None])[:, 0].double()], 1)
        return [
            append_token(state, int(token), probability, self.checkpoint.processor, self.constraint)
            if state.stop_reason is None
            else []
            for state, (token, probability) in zip(states, chosen.tolist(), strict=True)  # one transfer
        ]

    def _forbidden_tokens(self, state: GenerationState, probs: Tensor) -> Tensor:
        """True [V] for each token that may not follow. `probs` [V]."""
        if self.thoughts is not None and state.is_thinking:
            return self.thoughts.forbidden_tokens(state.thought_ids, state.max_thought_tokens, probs)
        if self.constraint is not None:
            return self.constraint.forbidden_tokens(state.token_ids, probs)
        return torch.zeros_like(probs, dtype=torch.bool)

    def _build_prompt(self, history: History) -> _Prompt:
        processor = self.checkpoint.processor
        sentence, example = build_prompt(history, self.checkpoint.prompt_format, processor)
        token_ids = example.input_ids.tolist()
        keys: list[CacheKey] = list(token_ids)
        placeholders = iter([i for i, token in enumerate(token_ids) if token == processor.image_token_id])
        pieces = [piece for piece in sentence if isinstance(piece, ScreenPiece)]
        screens = []
        for piece, num_tokens in zip(pieces, example.num_visual_tokens, strict=True):
            key = screen_key(piece, num_tokens)
            indices = [next(placeholders) for _ in range(num_tokens)]
            for i in indices:
                keys[i] = key
            screens.append((piece, key, indices[0], indices[-1]))
        return _Prompt(token_ids, keys, screens, self._later_screens(history))

    def _later_screens(self, history: History) -> list[tuple[ScreenPiece, bytes]]:
        processor, prompt_format = self.checkpoint.processor, self.checkpoint.prompt_format
        ages = prompt_format.later_ages(len(history.steps)) if self.cache_sizes[0] else ()
        pieces = [ScreenPiece(history.screen, age) for age in ages]
        counts = (processor.image_token_ids(piece).count(processor.image_token_id) for piece in pieces)
        return [(piece, screen_key(piece, count)) for piece, count in zip(pieces, counts, strict=True)]

    def _prefill(self, prompts: Sequence[_Prompt]) -> tuple[BatchDecoder, Tensor]:
        """Run the part of each prompt that is not cached. Logits [B, V] of the first new token."""
        prefixes, new_screens, num_placeholders = [], [], list[int]()
        for prompt in prompts:
            prefix = self.prefix_cache.match_prefix(prompt.keys[:-1])  # at least one token must be run
            shared = len(prefix.keys)
            # a screen is run as a whole
            shared = next((first for _, _, first, last in prompt.screens if first < shared <= last), shared)
            prefixes.append(prefix.truncate(shared))
            new_screens += [(piece, key) for piece, key, first, _ in prompt.screens if first >= shared]
            num_placeholders += [1 + last - first for _, _, first, last in prompt.screens if first >= shared]
        features = None
        if new_screens:
            # with the newest ones in their later sizes: otherwise half a window is encoded when it advances
            later = [screen for prompt in prompts for screen in prompt.later]
            pieces, screen_keys = zip(*new_screens, *later, strict=True)
            encoded = self.feature_cache.get(pieces, screen_keys)[: len(new_screens)]
            # here, since on a GPU the model's own check would wait for the queue
            if (num_tokens := [len(screen) for screen in encoded]) != num_placeholders:
                raise ValueError(
                    f"screens of {num_tokens} visual tokens have {num_placeholders} placeholders"
                )
            features = torch.cat(encoded)[None]
        pad_id = self.checkpoint.processor.pad_id
        decoder = BatchDecoder(self.checkpoint.model, pad_id, prefixes, self.graphs)
        lengths = [len(prefix.keys) for prefix in prefixes]
        token_ids = [prompt.token_ids[n:] for prompt, n in zip(prompts, lengths, strict=True)]
        keys = [prompt.keys[n:] for prompt, n in zip(prompts, lengths, strict=True)]
        return decoder, decoder.step(token_ids, keys, features)

    def _store_prefixes(self, decoder: BatchDecoder) -> None:
        if self.prefix_cache.max_prefixes:
            for prefix in decoder.cached_prefixes():
                self.prefix_cache.add(prefix)


def _next_probs(decoder: BatchDecoder, prompt_length: int, token_ids: list[int]) -> Tensor:
    """Probabilities [V] of the token after the prompt and these.

    Each call starts at the prompt, whose keys and values stay where they are.
    """
    decoder.truncate(prompt_length)
    return decoder.step([token_ids], [token_ids], None)[0].float().softmax(-1)

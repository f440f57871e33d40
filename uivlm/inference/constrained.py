"""Constrained decoding: which token may come next if the text must become an action, for one model's
tokenizer.

In: the tokens so far and the model's probabilities. Out: the most probable allowed token, and the tokens that
are forced. The allowed tokens of a state of the automaton are a mask on the model's device.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from uivlm.actions.text import ActionText
from uivlm.actions.text_automaton import Ended, Typed
from uivlm.actions.text_prefix import complete_action
from uivlm.episodes.encode import Processor
from uivlm.inference.token_automaton import BeforeFirst, TokenAutomaton

NUM_CACHED_MASKS = 512  # of one byte for each token of the vocabulary, on the model's device
NUM_CACHED_PREFIXES = 4096  # whose forced tokens are cached


class ActionConstraint:
    def __init__(self, processor: Processor, action_text: ActionText) -> None:
        self.processor, self.action_text = processor, action_text
        vocabulary = processor.vocabulary()
        self.token_bytes = vocabulary.token_bytes
        self.automaton = TokenAutomaton(action_text, vocabulary, processor.eos_id)
        self._mask = lru_cache(NUM_CACHED_MASKS)(forbidden_mask)
        self._cached_forced_tokens = lru_cache(NUM_CACHED_PREFIXES)(self._forced_tokens)

    def forbidden_tokens(self, token_ids: list[int], logits: Tensor) -> Tensor:
        """True [V] for each token that may not follow, on the device of `logits` [V]."""
        return self._mask(self._allowed_tokens(token_ids), len(logits), logits.device)

    def only(self, token: int, logits: Tensor) -> Tensor:
        """True [V] for all tokens but one."""
        return self._mask(token_set([token]), len(logits), logits.device)

    def ranked_tokens(
        self, token_ids: list[int], probs: Tensor, min_probability: float = 0.0
    ) -> list[tuple[int, float]]:
        """The allowed tokens and their probabilities, the most probable first, down to `min_probability`.

        `probs` [V]. Waits for the device once.
        """
        allowed = np.frombuffer(self._allowed_tokens(token_ids), np.int32)
        candidates = torch.from_numpy(allowed.astype(np.int64)).to(probs.device)
        ranked = probs[candidates].sort(descending=True, stable=True)
        both = torch.stack([candidates[ranked.indices].double(), ranked.values.double()]).numpy(force=True)
        tokens, probabilities = both[:, both[1] >= min_probability]
        return list(zip(tokens.astype(int).tolist(), probabilities.tolist(), strict=True))

    def forced_tokens(self, token_ids: Sequence[int]) -> tuple[list[int], bool]:
        """The tokens that must follow, and whether the action ends after them.

        Where the text is forced, its tokens are those of training; otherwise a token is forced if it is the
        only one that may follow.
        """
        forced, ended = self._cached_forced_tokens(tuple(token_ids))
        return list(forced), ended

    def closed_text(self, token_ids: Sequence[int]) -> str | None:
        """The typed text that the tokens start, with the shortest ending; None if they type no text.

        A last character that is not finished is left out: it would decode to U+FFFD, with some tokenizers
        together with its neighbors.
        """
        states = [self.automaton.state_after(token_ids[:end]) for end in range(len(token_ids) + 1)]
        if not isinstance(states[-1], Typed):
            return None
        ends = [end for end, state in enumerate(states) if not (isinstance(state, Typed) and state.pending)]
        return complete_action(self.processor.decode(list(token_ids[: ends[-1]])), self.action_text)

    def _allowed_tokens(self, token_ids: list[int]) -> bytes:
        allowed = self.automaton.allowed_tokens(self.automaton.state_after(token_ids))
        if not allowed:
            text = self.processor.decode(token_ids)
            raise ValueError(
                f"no token of this model continues {text!r}: its vocabulary cannot write actions"
            )
        return allowed

    def _forced_tokens(self, prefix: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
        tokens = [*prefix, *self._tokenized_as_in_training(list(prefix))]
        state = self.automaton.state_after(tokens)
        while len(allowed := np.frombuffer(self.automaton.allowed_tokens(state), np.int32)) == 1:
            if allowed[0] == self.processor.eos_id:
                return tuple(tokens[len(prefix) :]), True
            tokens.append(int(allowed[0]))
            state = self.automaton.advance(state, tokens[-1])
        return tuple(tokens[len(prefix) :]), False

    def _tokenized_as_in_training(self, token_ids: list[int]) -> list[int]:
        """The tokens of the forced text, if those before are tokenized as in training, too."""
        state = self.automaton.state_after(token_ids)
        if isinstance(state, BeforeFirst | Typed | Ended):
            return []
        forced = self.automaton.text.forced_bytes(state)
        tokens = self.processor.encode(complete_action(self.processor.decode(token_ids), self.action_text))
        end = len(token_ids)
        if tokens[:end] != token_ids:
            return []
        while forced and end < len(tokens) and forced.startswith(self.token_bytes[tokens[end]]):
            forced = forced[len(self.token_bytes[tokens[end]]) :]
            end += 1
        return tokens[len(token_ids) : end]


class RequestConstraint:
    """One request whose forced tokens are chosen one by one, as all others."""

    def __init__(self, constraint: ActionConstraint) -> None:
        self.constraint = constraint
        self.num_read = 0  # tokens
        self.forced: list[int] = []  # tokens that follow those

    def forbidden_tokens(self, token_ids: Sequence[int], logits: Tensor) -> Tensor:
        """True [V] for each token that may not follow. `token_ids` extends that of the call before."""
        for num_read in range(self.num_read + 1, len(token_ids) + 1):
            if self.forced:
                self.forced.pop(0)
                continue
            self.forced, ended = self.constraint.forced_tokens(token_ids[:num_read])
            self.forced += [self.constraint.processor.eos_id] * ended
        self.num_read = len(token_ids)
        if self.forced:
            return self.constraint.only(self.forced[0], logits)
        return self.constraint.forbidden_tokens(list(token_ids), logits)


def best_tokens(probs: Tensor, forbidden: Sequence[Tensor]) -> Tensor:
    """The most probable token [B] of each row that is not `forbidden`, a mask [V]. `probs` [B, V].

    Waits for no device.
    """
    return probs.masked_fill(torch.stack(list(forbidden)), -1.0).argmax(-1)


def token_set(token_ids: Sequence[int]) -> bytes:
    """Ids as the key of a mask: they are hashed once and compare by content."""
    return np.array(token_ids, np.int32).tobytes()


def forbidden_mask(allowed: bytes, vocab_size: int, device: torch.device) -> Tensor:
    """True [V] for each token that is not `allowed`, a `token_set`."""
    forbidden = torch.ones(vocab_size, dtype=torch.bool)
    forbidden[torch.from_numpy(np.frombuffer(allowed, np.int32).astype(np.int64))] = False
    return forbidden.to(device)

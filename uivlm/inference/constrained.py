"""Constrained decoding: which token may come next if the text must become an action, for one model's
tokenizer.

In: the tokens so far and the model's probabilities. Out: the most probable allowed token, and the tokens that
are forced. The rules are those of `actions/text_prefix.py`, applied to the text that the tokens decode to.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from uivlm.actions.action import InvalidAction
from uivlm.actions.text import FIXED_PHRASES, TEXT_PREFIX, ActionText
from uivlm.actions.text_prefix import SWIPE_PARTS, TAP_PARTS, can_appear_in_action, complete_action, is_prefix
from uivlm.episodes.encode import Processor

FORCED_TEXT_CACHE_SIZE = 4096  # prefixes whose forced continuation is cached
NUM_TOKENS_TRIED_FIRST = 32  # tokens that are tried before all are sorted
PHRASE_CHARACTERS = sorted(
    set("".join((*FIXED_PHRASES, TEXT_PREFIX, *TAP_PARTS, *SWIPE_PARTS, "0123456789")))
)  # of all actions except typed text


class ActionConstraint:
    def __init__(self, processor: Processor, action_text: ActionText) -> None:
        self.processor, self.action_text = processor, action_text
        self.cached_forced_text = lru_cache(maxsize=FORCED_TEXT_CACHE_SIZE)(self._forced_text)
        self.cached_phrase_tokens = lru_cache(maxsize=1)(self._phrase_tokens)

    def best_token(self, token_ids: Sequence[int], probs: Tensor) -> int:
        """The most probable allowed token. `probs` [V]."""
        token = next(self.allowed_tokens(token_ids, probs), None)
        if token is None:
            text = self.processor.decode(list(token_ids))
            raise ValueError(
                f"no token of this model continues {text!r}: its vocabulary cannot write actions"
            )
        return token

    def allowed_tokens(
        self, token_ids: Sequence[int], probs: Tensor, min_probability: float = 0.0
    ) -> Iterator[int]:
        """The allowed tokens in order of decreasing probability, down to `min_probability`."""
        text = self.processor.decode(list(token_ids))
        typing = text.startswith(TEXT_PREFIX)
        for token, probability in _by_probability(probs) if typing else self._ranked_phrase_tokens(probs):
            if probability < min_probability:
                return
            if self._is_allowed(token_ids, text, token):
                yield token

    def forced_tokens(self, token_ids: Sequence[int]) -> tuple[list[int], bool]:
        """The tokens that must follow, tokenized as in training, and whether the action is complete after
        them.
        """
        text = self.processor.decode(list(token_ids))
        if text.startswith(TEXT_PREFIX):
            return [], not isinstance(self.action_text.parse(text), InvalidAction)
        forced_text = text + self.cached_forced_text(text)
        tokens = self.processor.encode(complete_action(text, self.action_text))
        end = len(token_ids)
        if tokens[:end] != list(token_ids):  # not tokenized as in training: then token by token
            tokens = list(token_ids)
        while end < len(tokens) and forced_text.startswith(self.processor.decode(tokens[: end + 1])):
            end += 1
        text = self.processor.decode(tokens[:end])
        ended = text == forced_text and not self._next_characters(text)
        return tokens[len(token_ids) : end], ended

    def next_token(self, token_ids: Sequence[int], probs: Tensor) -> int:
        """The forced token after these, or else the best one. For callers that take one token at a time."""
        replayed: list[int] = []
        while len(replayed) < len(token_ids):
            replayed.append(token_ids[len(replayed)])
            forced, ended = self.forced_tokens(replayed)
            replayed += [*forced, *([self.processor.eos_id] if ended else [])]
        if len(replayed) > len(token_ids):
            return replayed[len(token_ids)]
        return self.best_token(token_ids, probs)

    def _ranked_phrase_tokens(self, probs: Tensor) -> Iterator[tuple[int, float]]:
        """Tokens that can appear outside typed text at all, most probable first."""
        candidates = self.cached_phrase_tokens(len(probs)).to(probs.device)
        ranked = probs[candidates].sort(descending=True, stable=True)
        yield from zip(candidates[ranked.indices].tolist(), ranked.values.tolist(), strict=True)

    def _phrase_tokens(self, vocab_size: int) -> Tensor:
        """Ids. Outside typed text only these few of some hundred thousand tokens need to be tried."""
        processor = self.processor
        text_tokens = (
            token
            for token in range(vocab_size)
            if token != processor.eos_id and processor.is_text_token(token)
        )
        phrase_tokens = (token for token in text_tokens if can_appear_in_action(processor.decode([token])))
        return torch.tensor([processor.eos_id, *phrase_tokens])

    def _is_allowed(self, token_ids: Sequence[int], text: str, token_id: int) -> bool:
        if token_id == self.processor.eos_id:
            return not isinstance(self.action_text.parse(text), InvalidAction)
        if not self.processor.is_text_token(token_id):
            return False
        longer = self.processor.decode([*token_ids, token_id])
        return longer != text and is_prefix(longer, self.action_text)

    def _forced_text(self, text: str) -> str:
        """What follows `text` in every action that starts with it."""
        longer = text
        while isinstance(self.action_text.parse(longer), InvalidAction) and not longer.startswith(
            TEXT_PREFIX
        ):
            characters = self._next_characters(longer)
            if len(characters) != 1:
                break
            longer += characters[0]
        return longer[len(text) :]

    def _next_characters(self, text: str) -> list[str]:
        return [letter for letter in PHRASE_CHARACTERS if is_prefix(text + letter, self.action_text)]


def _by_probability(probs: Tensor) -> Iterator[tuple[int, float]]:
    """All tokens, most probable first. The first few need no full sort."""
    top = probs.topk(min(NUM_TOKENS_TRIED_FIRST, len(probs)))
    top_ids = top.indices.tolist()
    yield from zip(top_ids, top.values.tolist(), strict=True)
    ranked = probs.sort(descending=True)  # ties may be in another order than in topk
    yielded = set(top_ids)
    for token, probability in zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True):
        if token not in yielded:
            yield token, probability

"""The thought before an action: free text up to the end of its line, in every mode of decoding.

In: the tokens of the thought so far. Out: a mask of the tokens that may not follow. After the line has ended,
the action begins, with a token sequence and a grammar of its own.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from uivlm.episodes.encode import Processor
from uivlm.episodes.sentence import THOUGHT_END
from uivlm.inference.constrained import ActionConstraint, RequestConstraint, forbidden_mask, token_set

MAX_THOUGHT_TOKENS = 256  # of one thought; then its line is ended
NUM_CACHED_MASKS = 8  # there are two or three, of each device


def thought_limit(num_free_tokens: int) -> int:
    """Tokens of a thought where a sentence has room for `num_free_tokens`: at most half of them."""
    return max(1, min(MAX_THOUGHT_TOKENS, num_free_tokens // 2))


def thought_length(token_ids: Sequence[int], processor: Processor) -> int | None:
    """The number of tokens that the thought takes, its end among them; None if it has not ended."""
    lengths = range(1, len(token_ids) + 1)
    at = bisect_left(lengths, True, key=lambda n: THOUGHT_END in processor.decode(list(token_ids[:n])))
    return lengths[at] if at < len(lengths) else None


class ThoughtConstraint:
    """Which token may come next in a thought. The masks are on the model's device."""

    def __init__(self, processor: Processor) -> None:
        """ValueError if no token of the vocabulary continues a line."""
        newline = THOUGHT_END.encode()
        token_bytes = processor.vocabulary().token_bytes  # none for control tokens
        line = [i for i, text in enumerate(token_bytes) if text and newline not in text.removesuffix(newline)]
        if not line:
            raise ValueError("no token of this model continues a thought: its vocabulary cannot write text")
        self.line, self.end = token_set(line), processor.encode(THOUGHT_END)
        self._mask = lru_cache(NUM_CACHED_MASKS)(forbidden_mask)

    def forbidden_tokens(self, token_ids: Sequence[int], limit: int, logits: Tensor) -> Tensor:
        """True [V] for each token that may not follow the thought so far, on the device of `logits` [V].

        Text continues the line or ends it; from `limit` tokens on, it ends. Control tokens are forbidden, and
        so is text after the end.
        """
        over = len(token_ids) - limit
        allowed = self.line if over < 0 else token_set([self.end[over]])
        return self._mask(allowed, len(logits), logits.device)


class RequestGrammar:
    """One request whose tokens are chosen one by one: the thought, then the action."""

    def __init__(
        self, constraint: ActionConstraint, thoughts: ThoughtConstraint, max_thought_tokens: int
    ) -> None:
        """`max_thought_tokens`: 0 where the format has no thoughts."""
        self.processor, self.thoughts = constraint.processor, thoughts
        self.max_thought_tokens = max_thought_tokens
        self.action = RequestConstraint(constraint)
        self.length = None if max_thought_tokens else 0  # tokens of the thought, once it has ended

    def forbidden_tokens(self, token_ids: Sequence[int], logits: Tensor) -> Tensor:
        """True [V] for each token that may not follow. `token_ids` extends that of the call before."""
        if self.length is None:
            self.length = thought_length(token_ids, self.processor)
        if self.length is None:
            return self.thoughts.forbidden_tokens(token_ids, self.max_thought_tokens, logits)
        return self.action.forbidden_tokens(token_ids[self.length :], logits)

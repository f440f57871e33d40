"""The thought before an action: free text up to the end of its line, in every mode of decoding.

In: the tokens of the thought so far and the model's probabilities. Out: the next token. After the line has
ended, the action begins, with a token sequence and a grammar of its own.
"""

from bisect import bisect_left
from collections.abc import Sequence

from torch import Tensor

from uivlm.episodes.encode import Processor
from uivlm.episodes.sentence import THOUGHT_END
from uivlm.inference.constrained import ActionConstraint, RequestConstraint

MAX_THOUGHT_TOKENS = 256  # of one thought; then its line is ended
NUM_TOKENS_TRIED_FIRST = 32  # tokens that are tried before all are sorted


def thought_limit(num_free_tokens: int) -> int:
    """Tokens of a thought where a sentence has room for `num_free_tokens`: at most half of them."""
    return max(1, min(MAX_THOUGHT_TOKENS, num_free_tokens // 2))


def thought_length(token_ids: Sequence[int], processor: Processor) -> int | None:
    """The number of tokens that the thought takes, its end among them; None if it has not ended."""
    lengths = range(1, len(token_ids) + 1)
    at = bisect_left(lengths, True, key=lambda n: THOUGHT_END in processor.decode(list(token_ids[:n])))
    return lengths[at] if at < len(lengths) else None


def next_thought_token(token_ids: Sequence[int], probs: Tensor, limit: int, processor: Processor) -> int:
    """The most probable token [V] that continues the line or ends it.

    From `limit` on, it is the end. Control tokens, and text after the end, are not allowed.
    """
    if len(token_ids) >= limit:
        return processor.encode(THOUGHT_END)[len(token_ids) - limit]
    for tried in (min(NUM_TOKENS_TRIED_FIRST, len(probs)), len(probs)):
        for token in probs.topk(tried).indices.tolist():
            if _is_allowed([*token_ids, token], processor):
                return int(token)
    raise ValueError("no token of this model continues a thought: its vocabulary cannot write text")


class RequestGrammar:
    """One request whose tokens are chosen one by one: the thought, then the action."""

    def __init__(self, constraint: ActionConstraint, max_thought_tokens: int) -> None:
        """`max_thought_tokens`: 0 where the format has no thoughts."""
        self.constraint, self.max_thought_tokens = constraint, max_thought_tokens
        self.action = RequestConstraint(constraint)
        self.length = None if max_thought_tokens else 0  # tokens of the thought, once it has ended

    def forbidden_tokens(self, token_ids: Sequence[int], logits: Tensor) -> Tensor:
        """True [V] for each token that may not follow. `token_ids` extends that of the call before."""
        processor = self.constraint.processor
        if self.length is None:
            self.length = thought_length(token_ids, processor)
        if self.length is None:
            token = next_thought_token(token_ids, logits, self.max_thought_tokens, processor)
            return self.constraint.only(token, logits)
        return self.action.forbidden_tokens(token_ids[self.length :], logits)


def _is_allowed(token_ids: list[int], processor: Processor) -> bool:
    if token_ids[-1] == processor.eos_id or not processor.is_text_token(token_ids[-1]):
        return False
    return THOUGHT_END not in processor.decode(token_ids).removesuffix(THOUGHT_END)

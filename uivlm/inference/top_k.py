"""The k most probable actions: a best-first search over constrained decoding.

In: the probabilities of the first token, and a function for those after a prefix. Out: candidates in order of
decreasing probability. A candidate only loses probability as it grows, so the order is exact.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from torch import Tensor

from uivlm.actions.text_prefix import action_type_is_determined
from uivlm.inference.constrained import ActionConstraint

MIN_PROBABILITY = 1e-6  # less probable candidates are not returned
MAX_FORWARDS_PER_CANDIDATE = 48  # prefixes run for each requested candidate; typed texts could grow forever


@dataclass(frozen=True, slots=True)
class Candidate:
    token_ids: list[int]
    probability: float  # product over all chosen tokens
    type_probability: float  # product over the tokens that chose the action type


@dataclass(frozen=True, slots=True, order=True)
class _Prefix:
    neg_probability: float
    order: int  # breaks ties: first come, first served
    candidate: Candidate = field(compare=False)
    finished: bool = field(compare=False)


def search_top_k(
    constraint: ActionConstraint,
    next_probs: Callable[[list[int]], Tensor],
    probs: Tensor,
    k: int,
    max_new_tokens: int,
) -> Iterator[Candidate]:
    """At most `k` candidates. `probs` [V]: of the first token; `next_probs` [V]: of the token after these."""
    processor = constraint.processor
    order, heap = count(), list[tuple[_Prefix, Iterator[_Prefix]]]()

    def extensions(candidate: Candidate, probs: Tensor) -> Iterator[_Prefix]:
        """The candidate with one more token, most probable first."""
        determined = action_type_is_determined(processor.decode(candidate.token_ids))
        min_probability = MIN_PROBABILITY / candidate.probability
        for token, probability in constraint.ranked_tokens(candidate.token_ids, probs, min_probability):
            ended, tokens = token == processor.eos_id, candidate.token_ids
            if not ended:
                forced, ended = constraint.forced_tokens([*tokens, token])
                tokens = [*tokens, token, *forced]
            if len(tokens) <= max_new_tokens:
                type_probability = candidate.type_probability * (1.0 if determined else probability)
                longer = Candidate(tokens, candidate.probability * probability, type_probability)
                yield _Prefix(-longer.probability, next(order), longer, ended)

    def push(siblings: Iterator[_Prefix]) -> None:
        if (first := next(siblings, None)) is not None:
            heappush(heap, (first, siblings))

    push(extensions(Candidate([], 1.0, 1.0), probs))
    texts: set[str] = set()
    forwards = 0
    while heap and len(texts) < k and forwards < MAX_FORWARDS_PER_CANDIDATE * k:
        best, siblings = heappop(heap)
        push(siblings)  # only now: the next sibling is not more probable than this one
        text = processor.decode(best.candidate.token_ids)
        if not best.finished:
            forwards += 1
            push(extensions(best.candidate, next_probs(best.candidate.token_ids)))
        elif text not in texts:  # the same text in other tokens is not another candidate
            texts.add(text)
            yield best.candidate

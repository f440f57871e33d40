"""The likeliest actions, not the first alone: a search, best first, over what a bound model may say.

In: the probabilities of the first token, and how to get those after others. Out: answers from the likeliest on. An answer can only lose
probability as it goes on, so none that is found later is likelier.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from torch import Tensor

from uivlm.actions.beginning import kind_is_told
from uivlm.inference.bound import Bound

LEAST = 1e-6  # what is less likely is not told
READ = 48  # most beginnings that are read for each answer that is wanted; typed texts could go on for ever


@dataclass(frozen=True, slots=True)
class Found:
    tokens: list[int]
    chance: float  # product of the probabilities of all that was chosen
    kind: float  # of that part of it that chose the kind of action


@dataclass(frozen=True, slots=True, order=True)
class _Beginning:
    minus: float
    number: int  # who is as likely and came first, goes first
    said: Found = field(compare=False)
    over: bool = field(compare=False)


def likeliest(
    speech: Bound,
    read: Callable[[list[int]], Tensor],
    chances: Tensor,
    most: int,
    room: int,
) -> Iterator[Found]:
    """At most `most` answers of at most `room` tokens. `chances` [V]: of the first token; `read`: of the next one after these."""
    numbers, heap = count(), list[tuple[_Beginning, Iterator[_Beginning]]]()
    words: set[str] = set()

    def following(said: Found, chances: Tensor) -> Iterator[_Beginning]:
        """What may follow, from the likeliest on."""
        told = kind_is_told(speech.reader.text(said.tokens))
        for token in speech.allowed(said.tokens, chances, LEAST / said.chance):
            chance, over, tokens = float(chances[token]), token == speech.reader.end, said.tokens
            if not over:
                forced, over = speech.forced([*tokens, token])
                tokens = [*tokens, token, *forced]
            if len(tokens) <= room:
                longer = Found(tokens, said.chance * chance, said.kind * (1.0 if told else chance))
                yield _Beginning(-longer.chance, next(numbers), longer, over)

    def push(others: Iterator[_Beginning]) -> None:
        if (first := next(others, None)) is not None:
            heappush(heap, (first, others))

    push(following(Found([], 1.0, 1.0), chances))
    reads = 0
    while heap and len(words) < most and reads < READ * most:
        best, others = heappop(heap)
        push(others)  # only now: its next sibling is no likelier
        text = speech.reader.text(best.said.tokens)
        if not best.over:
            reads += 1
            push(following(best.said, read(best.said.tokens)))
        elif text not in words:  # the same words in other pieces are no other answer
            words.add(text)
            yield best.said

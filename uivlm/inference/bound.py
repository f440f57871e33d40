"""Which token may come next in an answer that is an action's words, for one model's tokens.

In: the tokens so far and the model's probabilities. Out: the likeliest token that may follow; those that must follow. The grammar is
the one that says and parses (`actions/beginning.py`), asked about the text that tokens stand for.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from uivlm.actions.beginning import SWIPE, TAP, begins, ended, fits
from uivlm.actions.language import FIXED, TEXT_OPEN, Language, NotAnAction
from uivlm.models.model import Reader

KNOWN = 4096  # beginnings of which is remembered what must follow
LIKELY = 32  # tokens that are tried before all others
LETTERS = sorted(
    set("".join((*FIXED, TEXT_OPEN, *TAP, *SWIPE, "0123456789")))
)  # of phrases, typed texts left out


class Bound:
    """The language as one model's tokens say it."""

    def __init__(self, reader: Reader, language: Language) -> None:
        self.reader, self.language = reader, language
        self.only = lru_cache(maxsize=KNOWN)(self._only)
        self.fit = lru_cache(maxsize=1)(self._fit)

    def next(self, said: Sequence[int], chances: Tensor) -> int:
        """The likeliest token that may follow, by probabilities [vocabulary]."""
        token = next(self.allowed(said, chances), None)
        if token is None:
            told = self.reader.text(list(said))
            raise ValueError(f"no token of this model goes on with {told!r}: its tokens cannot say actions")
        return token

    def allowed(self, said: Sequence[int], chances: Tensor, least: float = 0.0) -> Iterator[int]:
        """The tokens that may follow, from the likeliest on; none of less than `least`."""
        before = self.reader.text(list(said))
        typing = before.startswith(TEXT_OPEN)
        for token, chance in _by_chance(chances) if typing else self._fitting(chances):
            if chance < least:
                return
            if self._may(said, before, token):
                yield token

    def forced(self, said: Sequence[int]) -> tuple[list[int], bool]:
        """The tokens that must follow, as the words are written in training; and may nothing follow after them?"""
        words = self.reader.text(list(said))
        if words.startswith(TEXT_OPEN):
            whole = not isinstance(self.language.parse(words), NotAnAction)
            return [], whole
        follow = words + self.only(words)
        tokens = self.reader.words(ended(words, self.language))
        end = len(said)
        if tokens[:end] != list(said):  # said in other pieces than in training: then token by token
            tokens = list(said)
        while end < len(tokens) and follow.startswith(self.reader.text(tokens[: end + 1])):
            end += 1
        told = self.reader.text(tokens[:end])
        over = told == follow and not self._goes_on(told)
        return tokens[len(said) : end], over

    def follows(self, said: Sequence[int], chances: Tensor) -> int:
        """The token that comes after these, chosen by probabilities [vocabulary] or because it must follow: for whoever takes one at a
        time."""
        whole: list[int] = []
        while len(whole) < len(said):
            whole.append(said[len(whole)])
            forced, over = self.forced(whole)
            whole += [*forced, *([self.reader.end] if over else [])]
        return whole[len(said)] if len(whole) > len(said) else self.next(said, chances)

    def _fitting(self, chances: Tensor) -> Iterator[tuple[int, float]]:
        """What may stand in a phrase at all, the likeliest first."""
        fit = self.fit(len(chances)).to(chances.device)
        ranked = chances[fit].sort(descending=True, stable=True)
        yield from zip(fit[ranked.indices].tolist(), ranked.values.tolist(), strict=True)

    def _fit(self, vocabulary: int) -> Tensor:
        """Ids. Of a hundred thousand tokens these few are all that need be tried where no text is typed."""
        reader = self.reader
        spoken = (token for token in range(vocabulary) if token != reader.end and reader.speaks(token))
        return torch.tensor([reader.end, *(token for token in spoken if fits(reader.text([token])))])

    def _may(self, said: Sequence[int], before: str, token: int) -> bool:
        if token == self.reader.end:
            return not isinstance(self.language.parse(before), NotAnAction)
        if not self.reader.speaks(token):
            return False
        words = self.reader.text([*said, token])
        return words != before and begins(words, self.language)

    def _only(self, words: str) -> str:
        """What follows the words in every action that begins so."""
        follow = words
        while isinstance(self.language.parse(follow), NotAnAction) and not follow.startswith(TEXT_OPEN):
            letters = self._goes_on(follow)
            if len(letters) != 1:
                break
            follow += letters[0]
        return follow[len(words) :]

    def _goes_on(self, words: str) -> list[str]:
        return [letter for letter in LETTERS if begins(words + letter, self.language)]


def _by_chance(chances: Tensor) -> Iterator[tuple[int, float]]:
    """All tokens, the likeliest first; the first few without sorting all."""
    first = chances.topk(min(LIKELY, len(chances)))
    told = first.indices.tolist()
    yield from zip(told, first.values.tolist(), strict=True)
    rest = chances.sort(descending=True)  # equals may stand in another order than above
    known = set(told)
    for token, chance in zip(rest.indices.tolist(), rest.values.tolist(), strict=True):
        if token not in known:
            yield token, chance

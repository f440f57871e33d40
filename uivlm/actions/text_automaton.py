"""The texts of actions as a finite automaton over bytes.

In: an ActionText. Out: states, the bytes that may follow each of them, and whether the text may end there.
The automaton accepts exactly the UTF-8 of the texts that `ActionText.parse` accepts:

- The numbers of taps and swipes are finite sets, so the language is regular. A swipe that is so short that it
  is a tap is excluded by the state of its last number, which holds the interval of bins that are too near.
- Typed text is one JSON string in canonical form. Its escapes are those that the writer uses.

States are small values that compare by content and are made on demand: with 10,000 bins there are far too
many swipes to list them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from uivlm.actions.action import InvalidAction, Type
from uivlm.actions.text import FIXED_PHRASES, TEXT_PREFIX, TEXT_SUFFIX, ActionText
from uivlm.actions.text_prefix import SWIPE_PARTS, TAP_PARTS

NUM_CACHED_STATES = 65_536
OPENINGS = (*FIXED_PHRASES, TEXT_PREFIX, TAP_PARTS[0], SWIPE_PARTS[0])
CONTINUATION = (0x80, 0xBF)  # of UTF-8


@dataclass(frozen=True, slots=True)
class Opening:
    """A prefix of the fixed texts that start an action."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """Inside a gesture: in the text before a number, or in its digits."""

    parts: tuple[str, ...]  # the gesture's text before each of its numbers
    index: int
    before: str = ""  # what is still to come before the digits
    digits: str = ""
    start: tuple[int, ...] = ()  # bins of a swipe's start as far as known, y before x
    forbidden: tuple[int, int] = (0, 0)  # first bin that this number must not be, and the one after the last


@dataclass(frozen=True, slots=True)
class Typed:
    """Inside typed text: after complete characters, inside an escape, or inside a character's UTF-8."""

    escape: str = ""
    pending: tuple[tuple[int, int], ...] = ()  # ranges of the bytes that complete the character


@dataclass(frozen=True, slots=True)
class Ended:
    """After an action that nothing can follow."""


State = Opening | Number | Typed | Ended


class TextAutomaton:
    def __init__(self, action_text: ActionText) -> None:
        self.action_text = action_text
        self.next_states = lru_cache(NUM_CACHED_STATES)(self._next_states)

    def is_complete(self, state: State) -> bool:
        """Is the text an action?"""
        match state:
            case Opening(text):
                return text in FIXED_PHRASES
            case Number(parts, index):
                return index == len(parts) - 1 and self._is_whole(state)
            case _:
                return isinstance(state, Ended)

    def forced_bytes(self, state: State) -> bytes:
        """What follows in every action, up to an action or to typed text."""
        forced = b""
        while not (self.is_complete(state) or isinstance(state, Typed)):
            following = self.next_states(state)
            if len(following) != 1:
                break
            ((byte, state),) = following.items()
            forced += bytes([byte])
        return forced

    def _next_states(self, state: State) -> Mapping[int, State]:
        """The state after each byte that may follow."""
        match state:
            case Opening():
                return _after_opening(state)
            case Number():
                return self._after_number(state)
            case Typed():
                return _after_typed(state)
            case _:
                return {}

    def _after_number(self, state: Number) -> dict[int, State]:
        if state.before:
            return {ord(state.before[0]): replace(state, before=state.before[1:])}
        longer = [replace(state, digits=state.digits + digit) for digit in "0123456789"]
        following: dict[int, State] = {
            ord(after.digits[-1]): after for after in longer if self._can_become_whole(after)
        }
        if self._is_whole(state) and state.index + 1 < len(state.parts):
            before = state.parts[state.index + 1]
            following[ord(before[0])] = self._next_number(state, before[1:])
        return following

    def _next_number(self, state: Number, before: str) -> Number:
        """The number after a whole one. Only what later numbers depend on is kept."""
        after = Number(state.parts, state.index + 1, before, start=state.start)
        if state.parts == TAP_PARTS:
            return after
        if state.index < 2:
            return replace(after, start=(*state.start, int(state.digits)))
        y, x = state.start
        return replace(after, start=(), forbidden=self._too_near(y, x, int(state.digits)))

    def _too_near(self, y: int, x: int, end_y: int) -> tuple[int, int]:
        """The bins of the end's x with which the swipe would be a tap: an interval around x, perhaps empty.

        It never holds all bins, so every start and every y of the end can become a swipe.
        """

        def is_swipe(end_x: int) -> bool:
            text = f"{SWIPE_PARTS[0]}{y} {x} to {end_y} {end_x}"
            return not isinstance(self.action_text.parse(text), InvalidAction)

        first = last = x
        while first > 0 and not is_swipe(first - 1):
            first -= 1
        while last < self.action_text.num_bins and not is_swipe(last):
            last += 1
        return (first, last) if last > x else (0, 0)

    def _is_whole(self, state: Number) -> bool:
        """Are the digits a number that may be here?"""
        if not state.digits:
            return False
        value, (first, last) = int(state.digits), state.forbidden
        return value < self.action_text.num_bins and not first <= value < last

    def _can_become_whole(self, state: Number) -> bool:
        """Do the digits start a number that may be here?"""
        if self._is_whole(state):
            return state.digits == "0" or state.digits[0] != "0"
        low, high = int(state.digits), int(state.digits) + 1
        if state.digits[0] == "0":
            return False
        (first, last), num_bins = state.forbidden, self.action_text.num_bins
        while low < num_bins:
            if low < first or last < min(high, num_bins) or first == last:
                return True
            low, high = 10 * low, 10 * high
        return False


def _after_opening(state: Opening) -> dict[int, State]:
    following: dict[int, State] = {}
    for opening in OPENINGS:
        if not opening.startswith(state.text) or opening == state.text:
            continue
        text = opening[: len(state.text) + 1]
        after: State = Opening(text)
        if text == TEXT_PREFIX:
            after = Typed()
        elif text in (TAP_PARTS[0], SWIPE_PARTS[0]):
            after = Number(TAP_PARTS if text == TAP_PARTS[0] else SWIPE_PARTS, 0)
        following[ord(text[-1])] = after
    return following


def _after_typed(state: Typed) -> dict[int, State]:
    if state.escape:
        texts = {escape[: len(state.escape) + 1] for escape in _escapes() if escape.startswith(state.escape)}
        return {ord(text[-1]): Typed() if text in _escapes() else Typed(text) for text in texts}
    if state.pending:
        (first, last), *rest = state.pending
        return dict.fromkeys(range(first, last + 1), Typed(pending=tuple(rest)))
    following: dict[int, State] = dict.fromkeys(range(0x20, 0x80), Typed())
    following |= {ord(TEXT_SUFFIX): Ended(), ord("\\"): Typed("\\")}
    return following | {lead: Typed(pending=_pending(lead)) for lead in range(0xC2, 0xF5)}


def _pending(lead: int) -> tuple[tuple[int, int], ...]:
    """Ranges of the bytes after the first one of a character (RFC 3629, section 4)."""
    narrower = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
    following = 1 + (lead >= 0xE0) + (lead >= 0xF0)
    return (narrower.get(lead, CONTINUATION), *[CONTINUATION] * (following - 1))


@cache
def _escapes() -> frozenset[str]:
    """What the writer puts in place of a character that is not written as itself."""
    characters = map(chr, (*range(0x20), ord('"'), ord("\\"), *range(0xD800, 0xE000)))
    quoted = (ActionText().format(Type(character)) for character in characters)
    return frozenset(text.removeprefix(TEXT_PREFIX).removesuffix(TEXT_SUFFIX) for text in quoted)

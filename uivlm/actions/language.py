"""Actions as words and words as actions: the one grammar of training, decoding and scoring.

In: an action with exact fractions. Out: the paper's phrase with coordinates in equal bins, y before x. And back, to
the bin's centre. What holds:

- Words keep what AITW's rule sees: a gold action matches the action that its own words parse to. A swipe's bins are
  moved, as little as possible, where plain binning would make it a tap or turn its main axis.
- One action has one form: if `parse(words)` is an action, `say` gives exactly those words back. So a swipe so short
  that AITW's rule counts it as a tap is said as a tap, and its swipe words are no action.
- Points off the screen are clamped. A tap so far off that its words would no longer match it has none (ValueError), nor
  has a point that is not finite. With fewer than 6 bins a bin is wider than AITW's tap distance: taps are then only
  as near as the bin.
- Typed text is one JSON string, not escaped to ASCII; surrogates are escaped one by one and never joined.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from uivlm.actions.action import TAP_DISTANCE, Action, Finish, Point, Press, Swipe, Tap, Type, is_tap
from uivlm.actions.aitw import MATCH_DISTANCE, distance, main_axis

MOST_BINS = 10_000  # far below a pixel; beyond it float32 no longer tells short swipes apart
FAR = 1e6  # a coordinate beyond this is a defect, not a point near the screen

NUMBER = "(0|[1-9][0-9]*)"
TAP = re.compile(f"tap at {NUMBER} {NUMBER}")
SWIPE = re.compile(f"swipe from {NUMBER} {NUMBER} to {NUMBER} {NUMBER}")
TEXT_OPEN, TEXT_CLOSE = 'Input text "', '"'
ESCAPE = re.compile(r'\\(?:["\\bfnrt]|u[0-9a-f]{4})')
UNESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
SURROGATE = re.compile("[\ud800-\udfff]")

FIXED: dict[str, Action] = {
    "press back": Press("back"),
    "press home": Press("home"),
    "press enter": Press("enter"),
    "complete": Finish("complete"),
    "impossible": Finish("impossible"),
}
KINDS = ("tap", "swipe", "type", *FIXED)

Cells = tuple[int, int, int, int]  # bins of a swipe: start y, start x, end y, end x


@dataclass(frozen=True, slots=True)
class NotAnAction:
    """Words that say no action: wrong in evaluation, a stop in the device loop."""

    words: str
    reason: str


@dataclass(frozen=True, slots=True)
class Language:
    """The paper's phrases with coordinates in `bins` equal bins (0..bins-1), y before x."""

    bins: int = 100

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= MOST_BINS:
            raise ValueError(
                f"{self.bins} bins: there must be 2 to {MOST_BINS} along each side of the screen"
            )

    def say(self, action: Action) -> str:
        """The words of an action. ValueError where no words would match it."""
        match action:
            case Tap(at):
                return self._say_tap(at)
            case Swipe(start, end):
                _check(start, end)
                if is_tap(start, end):
                    return self._say_tap(start)
                return "swipe from {} {} to {} {}".format(*self._swipe_cells(start, end))
            case Type(text):
                return f"Input text {_quote(text)}"
            case Press(key):
                return f"press {key}"
            case Finish(status):
                return status
            case _:
                raise ValueError(f"there are no words for {action!r}")

    def parse(self, words: str) -> Action | NotAnAction:
        """The action that the whole of `words` says; anything else is NotAnAction. Never raises."""
        if words in FIXED:
            return FIXED[words]
        if words.startswith(TEXT_OPEN):
            return _parse_text(words)
        if said := TAP.fullmatch(words) or SWIPE.fullmatch(words):
            return self._parse_gesture(words, said.groups())
        return NotAnAction(words, _why_not(words))

    def _say_tap(self, at: Point) -> str:
        _check(at)
        y, x = self._cell(at.y), self._cell(at.x)
        on_screen = 0 <= at.y <= 1 and 0 <= at.x <= 1
        if not on_screen and distance(self._point(y, x), at) > MATCH_DISTANCE:
            raise ValueError(
                f"a tap at y {at.y}, x {at.x} lies off the screen: no words match it, leave its step out"
            )
        return f"tap at {y} {x}"

    def _parse_gesture(self, words: str, numbers: tuple[str, ...]) -> Action | NotAnAction:
        longest = len(str(self.bins - 1))  # int() refuses numbers of thousands of digits
        for number in numbers:
            if len(number) > longest or int(number) >= self.bins:
                return NotAnAction(words, f"a coordinate lies outside 0..{self.bins - 1}")
        cells = [int(number) for number in numbers]
        start = self._point(*cells[:2])
        if len(cells) == 2:
            return Tap(start)
        end = self._point(*cells[2:])
        if is_tap(start, end):
            return NotAnAction(words, "the swipe is so short that it is a tap")
        return Swipe(start, end)

    def _cell(self, fraction: float) -> int:
        return min(max(math.floor(fraction * self.bins), 0), self.bins - 1)

    def _point(self, y: int, x: int) -> Point:
        return Point((y + 0.5) / self.bins, (x + 0.5) / self.bins)

    def _swipe_cells(self, start: Point, end: Point) -> Cells:
        """The bins that take the fewest moves to decode to a swipe of the same main axis; then, those nearest."""
        axis = main_axis(start, end)
        cells = (self._cell(start.y), self._cell(start.x), self._cell(end.y), self._cell(end.x))
        if self._keeps(cells, axis):
            return cells
        forward = (end.y >= start.y, end.x >= start.x)[axis]
        exact = [min(max(v, 0.0), 1.0) * self.bins - 0.5 for v in (start.y, start.x, end.y, end.x)]
        for moves in range(self._fewest_moves(cells, axis), 4 * self.bins):
            kept = [c for c in self._moved(cells, axis, forward, moves) if self._keeps(c, axis)]
            if kept:
                return min(kept, key=lambda c: sum((a - b) ** 2 for a, b in zip(c, exact, strict=True)))
        raise AssertionError(f"no swipe near {cells} of {self.bins} bins along axis {axis}")

    def _keeps(self, cells: Cells, axis: int) -> bool:
        start, end = self._point(*cells[:2]), self._point(*cells[2:])
        return not is_tap(start, end) and main_axis(start, end) == axis

    def _fewest_moves(self, cells: Cells, axis: int) -> int:
        """A lower bound: one move changes the swipe's length and the lead of its main axis by at most one bin."""
        along, across = _lengths(cells, axis)
        short = math.floor(float(TAP_DISTANCE) * self.bins - math.hypot(along, across)) - 1
        return max(across - along, short, 1)

    def _moved(self, cells: Cells, axis: int, forward: bool, moves: int) -> Iterator[Cells]:
        """The bins after `moves` single moves that lengthen the main axis or shorten the other one."""
        along, across = _lengths(cells, axis)
        first, last = cells[axis], cells[axis + 2]
        top = self.bins - 1
        room = (first, top - last) if forward else (top - first, last)
        sign = 1 if forward else -1
        other, other_end = cells[1 - axis], cells[3 - axis]
        inward = 1 if other_end > other else -1
        for shrink in range(min(moves, across, max(0, across - along) + 2) + 1):
            for a, b in _splits(moves - shrink, room):
                for c, d in _splits(shrink, (shrink, shrink)):
                    line = (first - sign * a, last + sign * b)
                    side = (other + inward * c, other_end - inward * d)
                    yield (
                        (line[0], side[0], line[1], side[1])
                        if axis == 0
                        else (side[0], line[0], side[1], line[1])
                    )


def kind(action: Action) -> str:
    """One of KINDS: "tap", "swipe", "type", or the whole phrase of an action without arguments."""
    match action:
        case Tap():
            return "tap"
        case Swipe():
            return "swipe"
        case Type():
            return "type"
        case Press(key):
            return f"press {key}"
        case Finish(status):
            return status
        case _:
            raise ValueError(f"{action!r} is no action of the language")


def _check(*points: Point) -> None:
    for point in points:
        if not (abs(point.y) <= FAR and abs(point.x) <= FAR):
            raise ValueError(
                f"a point at y {point.y}, x {point.x} is not near any screen: leave its step out"
            )


def _lengths(cells: Cells, axis: int) -> tuple[int, int]:
    sides = abs(cells[2] - cells[0]), abs(cells[3] - cells[1])
    return sides[axis], sides[1 - axis]


def _splits(total: int, room: tuple[int, int]) -> set[tuple[int, int]]:
    """Ways to share `total` moves between the two ends: as much at the one, at the other, and half and half."""
    least, most = max(0, total - room[1]), min(total, room[0])
    if least > most:
        return set()
    return {(a, total - a) for a in (least, most, min(max(total // 2, least), most))}


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _parse_text(words: str) -> Type | NotAnAction:
    body = words[len(TEXT_OPEN) : -1]
    text = ESCAPE.sub(_unescape, body)
    if len(words) <= len(TEXT_OPEN) or not words.endswith(TEXT_CLOSE):
        return NotAnAction(words, "the typed text has no closing quote")
    if (
        f"{TEXT_OPEN[:-1]}{_quote(text)}" != words
    ):  # a bare quote, a bad escape, or a second way to write the same
        return NotAnAction(words, "the typed text is not one JSON string in its plain form")
    return Type(text)


def _unescape(found: re.Match[str]) -> str:
    escape = found[0][1:]
    return chr(int(escape[1:], 16)) if escape[0] == "u" else UNESCAPED[escape]


def _why_not(words: str) -> str:
    if not words.strip():
        return "no words"
    for start, form in (
        ("tap", "tap at Y X"),
        ("swipe", "swipe from Y X to Y X"),
        ("Input", 'Input text "..."'),
    ):
        if words.startswith(start):
            return f"not of the form `{form}` with plain numbers and single blanks"
    return "not a phrase of the language"

"""Actions as text and text as actions: one format for training, decoding and scoring.

In: an action with exact fractions. Out: the paper's phrase with coordinates in equal bins, y before x.
Parsing returns the bin's center. Guarantees:

- A recorded action matches the action that its own text parses to, by AITW's rule. Where plain binning would
  make a swipe a tap or change its main axis, its bins are moved as little as possible.
- One action has one text: if `parse(text)` is an action, `format` returns exactly that text. A swipe that is
  so short that AITW's rule counts it as a tap is formatted as a tap, and its swipe text is invalid.
- Points off the screen are clamped. ValueError for a tap so far off that its text would no longer match it,
  and for points that are not finite. With fewer than 6 bins a bin is wider than AITW's tap distance: taps are
  then only as exact as the bin.
- Typed text is one JSON string, not escaped to ASCII. Surrogates are escaped one by one and never joined.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from uivlm.actions.action import (
    TAP_DISTANCE,
    Action,
    Finish,
    InvalidAction,
    Point,
    Press,
    Swipe,
    Tap,
    Type,
    is_tap,
)
from uivlm.actions.aitw import MATCH_DISTANCE, distance, main_axis

MAX_BINS = 10_000  # a bin is far below a pixel; with more, float32 cannot tell short swipes apart
MAX_ABS_COORDINATE = 1e6  # a coordinate beyond this is a defect, not a point near the screen

NUMBER = "(0|[1-9][0-9]*)"
TAP_PATTERN = re.compile(f"tap at {NUMBER} {NUMBER}")
SWIPE_PATTERN = re.compile(f"swipe from {NUMBER} {NUMBER} to {NUMBER} {NUMBER}")
TEXT_PREFIX, TEXT_SUFFIX = 'Input text "', '"'
ESCAPE = re.compile(r'\\(?:["\\bfnrt]|u[0-9a-f]{4})')
UNESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
SURROGATE = re.compile("[\ud800-\udfff]")

FIXED_PHRASES: dict[str, Action] = {
    "press back": Press("back"),
    "press home": Press("home"),
    "press enter": Press("enter"),
    "complete": Finish("complete"),
    "impossible": Finish("impossible"),
}
ACTION_TYPES = ("tap", "swipe", "type", *FIXED_PHRASES)

SwipeBins = tuple[int, int, int, int]  # bins of a swipe: start y, start x, end y, end x


@dataclass(frozen=True, slots=True)
class ActionText:
    """The paper's phrases with coordinates in equal bins (0 to num_bins - 1), y before x."""

    num_bins: int = 100

    def __post_init__(self) -> None:
        if not 2 <= self.num_bins <= MAX_BINS:
            raise ValueError(f"num_bins: got {self.num_bins}; expected 2 to {MAX_BINS}")

    def format(self, action: Action) -> str:
        """The text of an action. ValueError if no text would match it."""
        match action:
            case Tap(at):
                return self._format_tap(at)
            case Swipe(start, end):
                _check_points(start, end)
                if is_tap(start, end):
                    return self._format_tap(start)
                return "swipe from {} {} to {} {}".format(*self._swipe_bins(start, end))
            case Type(text):
                return f"Input text {_quote(text)}"
            case Press(key):
                return f"press {key}"
            case Finish(status):
                return status
            case _:
                raise ValueError(f"not an action: {action!r}")

    def parse(self, text: str) -> Action | InvalidAction:
        """The action that the whole text is; otherwise InvalidAction. Never raises."""
        if text in FIXED_PHRASES:
            return FIXED_PHRASES[text]
        if text.startswith(TEXT_PREFIX):
            return _parse_text(text)
        if match := TAP_PATTERN.fullmatch(text) or SWIPE_PATTERN.fullmatch(text):
            return self._parse_gesture(text, match.groups())
        return InvalidAction(text, _parse_error(text))

    def _format_tap(self, at: Point) -> str:
        _check_points(at)
        y, x = self._bin(at.y), self._bin(at.x)
        on_screen = 0 <= at.y <= 1 and 0 <= at.x <= 1
        if not on_screen and distance(self._point(y, x), at) > MATCH_DISTANCE:
            raise ValueError(
                f"tap: got y {at.y}, x {at.x}, off the screen; no text matches it. Leave its step out"
            )
        return f"tap at {y} {x}"

    def _parse_gesture(self, text: str, bins: tuple[str, ...]) -> Action | InvalidAction:
        max_digits = len(str(self.num_bins - 1))  # int() rejects numbers of thousands of digits
        for digits in bins:
            if len(digits) > max_digits or int(digits) >= self.num_bins:
                return InvalidAction(text, f"a coordinate is outside 0..{self.num_bins - 1}")
        cells = [int(digits) for digits in bins]
        start = self._point(*cells[:2])
        if len(cells) == 2:
            return Tap(start)
        end = self._point(*cells[2:])
        if is_tap(start, end):
            return InvalidAction(text, "the swipe is so short that it is a tap")
        return Swipe(start, end)

    def _bin(self, fraction: float) -> int:
        return min(max(math.floor(fraction * self.num_bins), 0), self.num_bins - 1)

    def _point(self, y: int, x: int) -> Point:
        return Point((y + 0.5) / self.num_bins, (x + 0.5) / self.num_bins)

    def _swipe_bins(self, start: Point, end: Point) -> SwipeBins:
        """The bins, with the fewest moves, that decode to a swipe of the same main axis; among these, the
        nearest.
        """
        axis = main_axis(start, end)
        cells = (self._bin(start.y), self._bin(start.x), self._bin(end.y), self._bin(end.x))
        if self._keeps_swipe(cells, axis):
            return cells
        forward = (end.y >= start.y, end.x >= start.x)[axis]
        exact = [min(max(v, 0.0), 1.0) * self.num_bins - 0.5 for v in (start.y, start.x, end.y, end.x)]
        for moves in range(self._min_moves(cells, axis), 4 * self.num_bins):
            kept = [c for c in self._shifted_bins(cells, axis, forward, moves) if self._keeps_swipe(c, axis)]
            if kept:
                return min(kept, key=lambda c: sum((a - b) ** 2 for a, b in zip(c, exact, strict=True)))
        raise AssertionError(f"no swipe near {cells} of {self.num_bins} bins along axis {axis}")

    def _keeps_swipe(self, bins: SwipeBins, axis: int) -> bool:
        start, end = self._point(*bins[:2]), self._point(*bins[2:])
        return not is_tap(start, end) and main_axis(start, end) == axis

    def _min_moves(self, bins: SwipeBins, axis: int) -> int:
        """A lower bound: one move changes the swipe's length and the lead of its main axis by at most one
        bin.
        """
        along, across = _axis_lengths(bins, axis)
        short = math.floor(float(TAP_DISTANCE) * self.num_bins - math.hypot(along, across)) - 1
        return max(across - along, short, 1)

    def _shifted_bins(self, bins: SwipeBins, axis: int, forward: bool, moves: int) -> Iterator[SwipeBins]:
        """The bins after `moves` single moves that lengthen the main axis or shorten the other one."""
        along, across = _axis_lengths(bins, axis)
        first, last = bins[axis], bins[axis + 2]
        top = self.num_bins - 1
        room = (first, top - last) if forward else (top - first, last)
        sign = 1 if forward else -1
        other, other_end = bins[1 - axis], bins[3 - axis]
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


def action_type(action: Action) -> str:
    """One of ACTION_TYPES: "tap", "swipe", "type", or the whole phrase of an action without arguments."""
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
            raise ValueError(f"not an action: {action!r}")


def _check_points(*points: Point) -> None:
    for point in points:
        if not (abs(point.y) <= MAX_ABS_COORDINATE and abs(point.x) <= MAX_ABS_COORDINATE):
            raise ValueError(f"point: got y {point.y}, x {point.x}, not near any screen. Leave its step out")


def _axis_lengths(bins: SwipeBins, axis: int) -> tuple[int, int]:
    sides = abs(bins[2] - bins[0]), abs(bins[3] - bins[1])
    return sides[axis], sides[1 - axis]


def _splits(total: int, max_moves: tuple[int, int]) -> set[tuple[int, int]]:
    """Ways to split `total` moves between two ends: as many as possible at either end, or halves."""
    low, high = max(0, total - max_moves[1]), min(total, max_moves[0])
    if low > high:
        return set()
    return {(a, total - a) for a in (low, high, min(max(total // 2, low), high))}


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _parse_text(phrase: str) -> Type | InvalidAction:
    body = phrase[len(TEXT_PREFIX) : -1]
    text = ESCAPE.sub(_unescape, body)
    if len(phrase) <= len(TEXT_PREFIX) or not phrase.endswith(TEXT_SUFFIX):
        return InvalidAction(phrase, "the typed text has no closing quote")
    if (
        f"{TEXT_PREFIX[:-1]}{_quote(text)}" != phrase
    ):  # a bare quote, a bad escape, or another way to write it
        return InvalidAction(phrase, "the typed text is not one JSON string in canonical form")
    return Type(text)


def _unescape(match: re.Match[str]) -> str:
    escape = match[0][1:]
    return chr(int(escape[1:], 16)) if escape[0] == "u" else UNESCAPED[escape]


def _parse_error(text: str) -> str:
    if not text.strip():
        return "the text is empty"
    for start, form in (
        ("tap", "tap at Y X"),
        ("swipe", "swipe from Y X to Y X"),
        ("Input", 'Input text "..."'),
    ):
        if text.startswith(start):
            return f"not of the form `{form}` with plain numbers and single spaces"
    return "not a known phrase"

"""What a gesture presses: a gesture and the elements on the screen in, the touched elements and labels out.

Android gives a touch to the innermost clickable view under the finger. Its label is every text inside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.device import LONG_PRESS_MS, OPAQUE_WINDOW
from uivlm.episodes.episode import Element, Screen

MAX_LABEL_WORDS = 6  # a longer text outside clickable elements is content, not a label
NUM_PATH_POINTS = 33  # of a horizontal swipe, in which elements are looked up


@dataclass(frozen=True, slots=True)
class Touched:
    labels: tuple[str, ...] = ()
    unknown: bool = False  # nothing says what the gesture does
    elements: tuple[Element, ...] = field(default=(), compare=False)  # the pressed ones


def touched(gesture: Gesture, screen: Screen, elements: Sequence[Element]) -> Touched:
    """What the gesture presses: a touch its path, enter any button on the screen."""
    match gesture:
        case Touch(points):
            height, width = screen.pixels.shape[:2]
            at = [((y + 0.5) / height, (x + 0.5) / width) for x, y in points]
            scrolls = is_scroll(gesture)
            path = at if scrolls or not is_swipe(gesture) else _straight_path(at[0], at[-1])
            return _merge([_touched_at(elements, y, x, scrolls) for y, x in path])
        case PressKey("enter"):
            return _anything(elements)
        case TypeText(text) if presses_button(text):
            return _anything(elements)
        case _:
            return Touched()


def depends_on_elements(gesture: Gesture) -> bool:
    """Back, home and ordinary text press no element."""
    return isinstance(gesture, Touch) or gesture_kind(gesture) == "enter"


def presses_button(text: str) -> bool:
    """Is this text the enter key, which presses the default button, or the space bar, the focused one?"""
    return not text.strip() or text.splitlines() != [text]


def is_swipe(gesture: Gesture) -> bool:
    return isinstance(gesture, Touch) and gesture.points[0] != gesture.points[-1]


def is_scroll(gesture: Gesture) -> bool:
    """Is this a vertical swipe?"""
    if not isinstance(gesture, Touch) or not is_swipe(gesture):
        return False
    (x1, y1), (x2, y2) = gesture.points[0], gesture.points[-1]
    return abs(y2 - y1) >= abs(x2 - x1)


def gesture_kind(gesture: Gesture) -> str:
    """tap, long_press, swipe, text, enter, back or home."""
    match gesture:
        case Touch():
            if is_swipe(gesture):
                return "swipe"
            return "tap" if gesture.duration_ms < LONG_PRESS_MS else "long_press"
        case PressKey(key):
            return key
        case TypeText(text):
            return "enter" if presses_button(text) else "text"


def _straight_path(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """A horizontal swipe may slide to pay or delete, so it presses all that is under its path."""
    parts = [i / (NUM_PATH_POINTS - 1) for i in range(NUM_PATH_POINTS)]
    return [(start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part) for part in parts]


def _touched_at(elements: Sequence[Element], y: float, x: float, scrolls: bool) -> Touched:
    """What is at a point, given as fractions. What merely scrolls needs no label."""
    here = [element for element in elements if _contains(element, y, x)]
    if not here or any(element.ui_type == OPAQUE_WINDOW for element in here):
        return Touched(unknown=True)
    pressed = _innermost([element for element in here if element.clickable])
    inside = _texts_inside(pressed, elements)
    under = [element.text for element in here if element.text and _is_short(element.text)]
    canvases = _innermost([element for element in here if element.clickable is None and not element.text])
    silent = not inside if pressed else bool(canvases) and not _texts_inside(canvases, here)
    return Touched(tuple(dict.fromkeys(inside + under)), silent and not scrolls, tuple(pressed))


def _texts_inside(areas: Sequence[Element], elements: Sequence[Element]) -> list[str]:
    return [e.text for e in elements if e.text and any(_is_inside(e, area) for area in areas)]


def _anything(elements: Sequence[Element]) -> Touched:
    """Enter may press any button: its label, or any short text."""
    buttons = [element for element in elements if element.clickable]
    short = [element.text for element in elements if element.text and _is_short(element.text)]
    labels = dict.fromkeys(short + _texts_inside(buttons, elements))
    return Touched(tuple(labels), not labels)


def _merge(path: Sequence[Touched]) -> Touched:
    """Everything on the path; only its ends must be known."""
    return Touched(
        tuple(dict.fromkeys(label for place in path for label in place.labels)),
        path[0].unknown or path[-1].unknown,
        tuple(dict.fromkeys(element for place in path for element in place.elements)),
    )


def _innermost(elements: Sequence[Element]) -> list[Element]:
    """Those without a later one inside them; elements that only overlap count, both."""
    return [
        element
        for i, element in enumerate(elements)
        if not any(_is_inside(other, element) for other in elements[i + 1 :])
    ]


def _is_short(text: str) -> bool:
    return len(text.split()) <= MAX_LABEL_WORDS


def _contains(element: Element, y: float, x: float) -> bool:
    return element.y <= y <= element.y + element.height and element.x <= x <= element.x + element.width


def _is_inside(inner: Element, outer: Element) -> bool:
    """Its center is inside, and it is not larger."""
    fits = inner.height * inner.width <= outer.height * outer.width
    return fits and _contains(outer, inner.y + inner.height / 2, inner.x + inner.width / 2)

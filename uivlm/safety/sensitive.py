"""Which sensitive labels a gesture touches: elements and a gesture in, labels out."""

import re
from collections.abc import Iterable, Sequence

from uivlm.actions.gesture import Gesture, PressKey, Touch
from uivlm.episodes.episode import Element, Screen

MAX_LABEL_WORDS = 6  # a longer text is content, not a label
MAX_BUTTON_AREA = 0.25  # fraction of the screen; a larger element is a page, not a button


def sensitive_labels(
    gesture: Gesture, screen: Screen, elements: Sequence[Element], keywords: Sequence[str]
) -> tuple[str, ...]:
    """Labels with a keyword: under the finger for a tap; anywhere for enter, which may press any button."""
    match gesture:
        case Touch(((x, y), *rest)) if not rest or rest[-1] == (x, y):
            height, width = screen.pixels.shape[:2]
            labels: Iterable[str] = texts_under(elements, (y + 0.5) / height, (x + 0.5) / width)
        case PressKey("enter"):
            labels = (element.text for element in elements)
        case _:
            return ()
    return tuple(dict.fromkeys(label for label in labels if _has_keyword(label, keywords)))


def texts_under(elements: Sequence[Element], y: float, x: float) -> tuple[str, ...]:
    """The texts under the point (fractions). An element without text has the texts inside it."""
    touched = [
        element
        for element in elements
        if _contains(element, y, x) and element.height * element.width <= MAX_BUTTON_AREA
    ]
    if texts := tuple(element.text for element in touched if element.text):
        return texts
    if not touched:
        return ()
    button = min(touched, key=lambda element: element.height * element.width)
    return tuple(element.text for element in elements if element.text and _is_inside(element, button))


def _has_keyword(label: str, keywords: Sequence[str]) -> bool:
    if len(label.split()) > MAX_LABEL_WORDS:
        return False
    return any(re.search(rf"\b{re.escape(keyword)}\b", label, re.IGNORECASE) for keyword in keywords)


def _contains(element: Element, y: float, x: float) -> bool:
    return element.y <= y <= element.y + element.height and element.x <= x <= element.x + element.width


def _is_inside(inner: Element, outer: Element) -> bool:
    return _contains(outer, inner.y + inner.height / 2, inner.x + inner.width / 2)

"""What a gesture would do, as far as the words on the screen tell: elements and a gesture in, words that commit out."""

import re
from collections.abc import Iterable, Sequence

from uivlm.actions.gesture import Button, Gesture, Touch
from uivlm.episode import Element, Screen

MOST_WORDS = 6  # of a label: what is longer is content, not a button
MOST_AREA = 0.25  # of the screen: what is larger is a page, not a button


def committing(
    gesture: Gesture, screen: Screen, elements: Sequence[Element], words: Sequence[str]
) -> tuple[str, ...]:
    """Labels that say that this gesture commits to something: under a finger that taps, or, as the enter key presses what
    it likes, anywhere on the screen."""
    match gesture:
        case Touch(((x, y), *rest)) if not rest or rest[-1] == (x, y):
            height, width = screen.pixels.shape[:2]
            labels: Iterable[str] = under(elements, (y + 0.5) / height, (x + 0.5) / width)
        case Button("enter"):
            labels = (each.text for each in elements)
        case _:
            return ()
    return tuple(dict.fromkeys(label for label in labels if _says(label, words)))


def under(elements: Sequence[Element], y: float, x: float) -> tuple[str, ...]:
    """The texts of what lies under the point (fractions); of what is silent itself, the texts in it."""
    touched = [each for each in elements if _holds(each, y, x) and each.height * each.width <= MOST_AREA]
    if said := tuple(each.text for each in touched if each.text):
        return said
    if not touched:
        return ()
    button = min(touched, key=lambda each: each.height * each.width)
    return tuple(each.text for each in elements if each.text and _within(each, button))


def _says(label: str, words: Sequence[str]) -> bool:
    if len(label.split()) > MOST_WORDS:
        return False
    return any(re.search(rf"\b{re.escape(word)}\b", label, re.IGNORECASE) for word in words)


def _holds(element: Element, y: float, x: float) -> bool:
    return element.y <= y <= element.y + element.height and element.x <= x <= element.x + element.width


def _within(inner: Element, outer: Element) -> bool:
    return _holds(outer, inner.y + inner.height / 2, inner.x + inner.width / 2)

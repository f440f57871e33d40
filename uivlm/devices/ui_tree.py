"""What uiautomator says of a screen: its XML in, elements out. What other apps write in it is only ever text."""

import re
from xml.etree import ElementTree

from uivlm.episode import Element

MOST_BYTES = 8_000_000
MOST_ELEMENTS = 5_000
MOST_TEXT = 500  # characters of one element
BOUNDS = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


def elements_in(dump: bytes, seen: tuple[int, int] | None) -> tuple[Element, ...] | None:
    """The visible nodes, outer before inner, in fractions of the screen `seen` (width, height in pixels); of the root where
    none was seen, or it was turned since. None where the dump is no tree: uiautomator waits for an idle screen, and gives
    up."""
    start, end = dump.find(b"<hierarchy"), dump.rfind(b"</hierarchy>")
    if start < 0 or end < 0 or len(dump) > MOST_BYTES or b"<!" in dump[:end]:  # without <!...>, no entities
        return None
    try:
        tree = ElementTree.fromstring(dump[start : end + len(b"</hierarchy>")])
    except ElementTree.ParseError:
        return None
    nodes = [(node, _box(node)) for node in tree.iter("node")]
    boxes = [(node, box) for node, box in nodes if box is not None]
    if not boxes or len(boxes) > MOST_ELEMENTS:
        return None
    right, bottom = max(box[2] for _, box in boxes), max(box[3] for _, box in boxes)
    fits = seen is not None and right <= seen[0] and bottom <= seen[1]
    width, height = seen if seen is not None and fits else (right, bottom)
    return tuple(_element(node, box, width, height) for node, box in boxes)


def _box(node: ElementTree.Element) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom in pixels of what can be seen of it; None where nothing can."""
    found = BOUNDS.fullmatch(node.get("bounds", ""))
    if found is None:
        return None
    left, top, right, bottom = (max(0, int(number)) for number in found.groups())
    return (left, top, right, bottom) if left < right and top < bottom else None


def _element(node: ElementTree.Element, box: tuple[int, int, int, int], width: int, height: int) -> Element:
    left, top, right, bottom = box
    said = dict.fromkeys((node.get("text", ""), node.get("content-desc", "")))
    return Element(
        top / height,
        left / width,
        (bottom - top) / height,
        (right - left) / width,
        " ".join(text for text in said if text)[:MOST_TEXT],
        node.get("class", "").rpartition(".")[2],
    )

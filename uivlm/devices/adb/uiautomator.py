"""Parse the XML of `uiautomator dump` into elements. The content comes from other apps and is not trusted."""

import re
from xml.etree import ElementTree

from uivlm.episodes.episode import Element

MAX_BYTES = 8_000_000
MAX_ELEMENTS = 5_000
MAX_TEXT_CHARS = 500  # of one element
BOUNDS_PATTERN = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


def parse_elements(dump: bytes, screen_size: tuple[int, int] | None) -> tuple[Element, ...] | None:
    """Return the visible nodes, outer before inner; None if the dump is not a tree (the screen was not idle).

    `screen_size` (width, height in pixels) is what the fractions refer to. The root's size is used instead if
    it is None, or if the screen was rotated since.
    """
    start, end = dump.find(b"<hierarchy"), dump.rfind(b"</hierarchy>")
    if start < 0 or end < 0 or len(dump) > MAX_BYTES or b"<!" in dump[:end]:  # without <!...>, no entities
        return None
    try:
        tree = ElementTree.fromstring(dump[start : end + len(b"</hierarchy>")])
    except ElementTree.ParseError:
        return None
    nodes = [(node, _box(node)) for node in tree.iter("node")]
    boxes = [(node, box) for node, box in nodes if box is not None]
    if not boxes or len(boxes) > MAX_ELEMENTS:
        return None
    right, bottom = max(box[2] for _, box in boxes), max(box[3] for _, box in boxes)
    fits = screen_size is not None and right <= screen_size[0] and bottom <= screen_size[1]
    width, height = screen_size if screen_size is not None and fits else (right, bottom)
    return tuple(_element(node, box, width, height) for node, box in boxes)


def _box(node: ElementTree.Element) -> tuple[int, int, int, int] | None:
    """Return left, top, right, bottom of the visible part in pixels; None if there is none."""
    match = BOUNDS_PATTERN.fullmatch(node.get("bounds", ""))
    if match is None:
        return None
    left, top, right, bottom = (max(0, int(side)) for side in match.groups())
    return (left, top, right, bottom) if left < right and top < bottom else None


def _element(node: ElementTree.Element, box: tuple[int, int, int, int], width: int, height: int) -> Element:
    left, top, right, bottom = box
    texts = dict.fromkeys((node.get("text", ""), node.get("content-desc", "")))
    return Element(
        top / height,
        left / width,
        (bottom - top) / height,
        (right - left) / width,
        " ".join(text for text in texts if text)[:MAX_TEXT_CHARS],
        node.get("class", "").rpartition(".")[2],
    )

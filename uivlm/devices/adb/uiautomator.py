"""Parse the XML of `uiautomator dump` into elements. The content comes from other apps and is not trusted."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from uivlm.devices.device import OPAQUE_WINDOW
from uivlm.episodes.episode import Element

MAX_BYTES = 8_000_000
MAX_ELEMENTS = 5_000
MAX_TEXT_CHARS = 500  # of one element
BOUNDS_PATTERN = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels


def parse_elements(
    dump: bytes, screen_size: tuple[int, int] | None, opaque_windows: Sequence[Box] = ()
) -> tuple[Element, ...] | None:
    """Return the visible nodes, outer before inner; None if the dump is not a tree (the screen was not idle).

    `screen_size` (width, height in pixels) is what the fractions refer to. The root's size is used instead if
    it is None, or if the screen was rotated since. `opaque_windows` become elements after the nodes.
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
    elements = tuple(_element(node, box, width, height) for node, box in boxes)
    return elements + tuple(_scaled(box, width, height, "", OPAQUE_WINDOW, None) for box in opaque_windows)


def _box(node: ElementTree.Element) -> Box | None:
    """Return left, top, right, bottom of the visible part in pixels; None if there is none."""
    match = BOUNDS_PATTERN.fullmatch(node.get("bounds", ""))
    if match is None:
        return None
    left, top, right, bottom = (max(0, int(side)) for side in match.groups())
    return (left, top, right, bottom) if left < right and top < bottom else None


def _element(node: ElementTree.Element, box: Box, width: int, height: int) -> Element:
    texts = dict.fromkeys((node.get("text", ""), node.get("content-desc", "")))
    text = " ".join(text for text in texts if text)[:MAX_TEXT_CHARS]
    ui_type = node.get("class", "").rpartition(".")[2]
    return _scaled(box, width, height, text, ui_type, _is_clickable(node, text))


def _is_clickable(node: ElementTree.Element, text: str) -> bool | None:
    """None for a node without text and children: it may draw buttons itself and handle their touches."""
    flags = [node.get(name) for name in ("clickable", "long-clickable") if node.get(name) is not None]
    if "true" in flags:
        return True
    return False if flags and (text or len(node)) else None


def _scaled(box: Box, width: int, height: int, text: str, ui_type: str, clickable: bool | None) -> Element:
    left, top, right, bottom = box
    return Element(
        top / height,
        left / width,
        (bottom - top) / height,
        (right - left) / width,
        text,
        ui_type,
        clickable,
    )

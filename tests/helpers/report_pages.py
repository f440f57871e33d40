"""What a page of HTML holds: its text by element, its charts, its tables."""

import re
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "img", "br"}


class Tree(HTMLParser):
    """Text by element; fails if tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def drawings(text: str) -> dict[str, ElementTree.Element]:
    """The charts by their labels. Each is valid XML."""
    charts = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", text, re.S)]
    return {svg.get("aria-label", ""): svg for svg in charts}


def titled(svg: ElementTree.Element, tag: str) -> dict[str, ElementTree.Element]:
    return {title.text or "": shape for shape in svg.iter(tag) if (title := shape.find("title")) is not None}


def rows(text: str) -> list[list[str]]:
    """The tables' cells as text."""
    lines = re.findall("<tr>(.*?)</tr>", text, re.S)
    return [
        [re.sub("<.*?>", "", cell) for cell in re.findall("<t[dh].*?>(.*?)</t[dh]>", line)] for line in lines
    ]

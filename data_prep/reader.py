"""The formats that episodes are recorded in, by the name the command knows them by."""

from collections.abc import Iterator
from typing import Literal, Protocol, get_args

from data_prep.formats import aitw, aitz, androidcontrol, jsonl, seeclick, showui, trace
from data_prep.record import Found, Part

Format = Literal["aitw", "seeclick", "aitz", "androidcontrol", "showui", "jsonl", "trace"]
FORMATS: tuple[str, ...] = get_args(Format)


class Reader(Protocol):
    """A format; its module is one."""

    def find(self, source: str) -> list[Part]: ...

    def read(self, part: Part) -> Iterator[Found]: ...


def reader(format: str) -> Reader:
    """The reader of a format; ValueError for a name that is none."""
    readers: dict[str, Reader] = {
        "aitw": aitw,
        "seeclick": seeclick,
        "aitz": aitz,
        "androidcontrol": androidcontrol,
        "showui": showui,
        "jsonl": jsonl,
        "trace": trace,
    }
    if format not in readers:
        raise ValueError(f"there is no format {format!r}: choose from {', '.join(FORMATS)}")
    return readers[format]

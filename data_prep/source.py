"""The interface of the source formats: the parts of a source, the steps of a part, the record of a step.

A format is a module of `formats` with two functions. `find(source)` lists the parts of a source, each
small enough for one worker. `read(part)` yields the steps of a part, in any order. A step handle has the
step's episode; the rest is loaded only if that episode is selected.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from data_prep.split import Split
from uivlm.actions.action import Action
from uivlm.actions.aitw import AitwFields
from uivlm.episodes.episode import NO_NOTES, Annotations, StepNotes


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord:
    """One recorded step with every field of AITW's schema, checked by the reader of its format."""

    episode_id: str  # any text; AITW's may exceed 2^63; in `single`: <parent>.<start>-<end>.<goal>
    step_id: int  # 0-based
    episode_length: int  # number of steps, as recorded
    goal: str
    android_api_level: int  # 0 if the format does not have it
    device_type: str
    activity: str
    pixels: NDArray[np.uint8]  # [H, W, 3] RGB
    annotations: Annotations  # as recorded: `clip_boxes` decides which are kept
    action: Action
    aitw: AitwFields  # the same action in AITW's encoding, with the floats exactly as recorded
    notes: StepNotes = NO_NOTES


class UnusableStepError(ValueError):
    """A recorded step that cannot become training data. The report counts `reason` and quotes `message`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)  # all arguments, so that it crosses process borders
        self.reason, self.message = reason, message

    def __str__(self) -> str:
        return self.message


class StepHandle(NamedTuple):
    """A step of a part: its episode, and a function that loads the rest."""

    subset: str
    episode_id: str  # empty if it cannot be read
    step_id: int
    split: Split | None  # the source's own; None if it has none
    load: Callable[[], StepRecord]  # raises UnusableStepError
    recording: str = ""  # the object of the source that is the episode: its location; "" if there is none
    failed_run: str = ""  # of a run that did not reach its goal: a sentence that names it


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A piece of a source that one worker reads. It is small enough to send to another machine."""

    name: str  # unique in the source; relative, with "/"
    path: str  # a file or folder: a path, or a URL such as gs://bucket/name
    stamp: str  # changes with the content: size in bytes, or a hash of `items`
    items: tuple[Any, ...] = ()  # JSON values; empty if the part is a whole file
    subsets: tuple[str, ...] = ()  # of its episodes; empty if none of them has a valid subset


FormatName = Literal["aitw", "seeclick", "aitz", "androidcontrol", "showui", "jsonl", "trace"]
FORMATS: tuple[str, ...] = get_args(FormatName)


class FormatReader(Protocol):
    """The module of a format."""

    def find(self, source: str) -> list[SourcePart]: ...

    def read(self, part: SourcePart) -> Iterator[StepHandle]: ...


def get_reader(name: str) -> FormatReader:
    """The reader of a format. Raises ValueError for an unknown name."""
    # these modules import this one
    from data_prep.formats import aitw, aitz, androidcontrol, jsonl, seeclick, showui, trace

    readers: dict[str, FormatReader] = {
        "aitw": aitw,
        "seeclick": seeclick,
        "aitz": aitz,
        "androidcontrol": androidcontrol,
        "showui": showui,
        "jsonl": jsonl,
        "trace": trace,
    }
    if name not in readers:
        raise ValueError(f"format: got {name!r}; expected one of {', '.join(FORMATS)}")
    return readers[name]

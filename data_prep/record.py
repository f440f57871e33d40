"""What every format of recorded episodes is read as: parts of a source, the steps found in a part, a step's record.

A format is a module of `formats` with two functions: `find(source)` lists the parts of a source, each small enough
for one worker; `read(part)` gives the steps in it, in any order. A step says at once whose it is, and is loaded only
when its episode is wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.split import Split
from uivlm.actions.action import Action
from uivlm.actions.aitw import from_aitw
from uivlm.episode import Annotations


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One recorded step, every field of AITW's schema. Points are (y, x) fractions of the screen."""

    episode_id: str  # any text; AITW's may exceed 2^63; in `single`: <parent>.<start>-<end>.<goal>
    step_id: int  # 0-based
    episode_length: int  # nominal number of steps
    goal: str
    android_api_level: int  # 0 where the format does not say
    device_type: str
    activity: str
    pixels: NDArray[np.uint8]  # [H, W, 3] RGB
    annotations: Annotations
    action_type: int  # AITW's enum
    touch: tuple[float, float]  # (y, x); (-1, -1) for what is no gesture
    lift: tuple[float, float]
    text: str  # typed text

    @property
    def action(self) -> Action:
        return from_aitw(self.action_type, self.touch, self.lift, self.text)


class Unusable(ValueError):  # noqa: N818
    """A recorded step that cannot become training data: `why` is counted in the report, the sentence is told."""

    def __init__(self, why: str, sentence: str) -> None:
        super().__init__(why, sentence)  # all arguments, so that it crosses process borders
        self.why, self.sentence = why, sentence

    def __str__(self) -> str:
        return self.sentence


class Found(NamedTuple):
    """A step in a part: whose it is, and how to read the rest."""

    subset: str
    episode_id: str  # empty where even this cannot be read
    step_id: int
    split: Split | None  # as the source itself says; None where it does not
    load: Callable[[], Record]  # raises Unusable


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a source that one worker reads from beginning to end. Small enough to send to another machine."""

    name: str  # of no other part of the source; relative, with "/"
    where: str  # a file or folder; a path, or a URL such as gs://bucket/name
    stamp: str  # changes when the content does: byte size, or a hash of `items`
    items: tuple[Any, ...] = ()  # plain JSON values; empty where the file itself is the part

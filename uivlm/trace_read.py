"""Traces read again: the folder that `uivlm.trace` wrote in, what was seen and done out.

Strictly: of a damaged folder nothing is returned, and one sentence says what is wrong with it. A run that was killed is not
damaged: its status is still "running", and the row that it was writing is not counted.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.action import Action
from uivlm.actions.gesture import Gesture
from uivlm.actions.language import NotAnAction
from uivlm.actions.told import untold, untold_gesture

RUN, ROWS = "run.json", "trace.jsonl"
ENDED_WELL = ("complete", "impossible")
By = Literal["agent", "person"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Row:
    """A screen, what was decided on it, and what was then done. Times in milliseconds."""

    t: int  # 0-based
    picture: Path
    height: int  # pixels
    width: int
    by: By
    words: str | None  # None, as the action: nothing was decided
    action: Action | NotAnAction | None
    gesture: Gesture | None  # None: nothing was touched
    proposed: Action | NotAnAction | None  # what the agent had said where a person did something else
    confidence: float | None  # [0, 1]
    kind_confidence: float | None
    screen_ms: float | None
    agent_ms: float | None
    perform_ms: float | None  # None: it was not carried out

    @property
    def done(self) -> bool:
        return self.perform_ms is not None

    def pixels(self) -> NDArray[np.uint8]:
        """uint8 [H, W, 3] RGB. ValueError where the picture can no longer be read."""
        with _opened(self.picture) as picture:
            return np.array(picture.convert("RGB"))


@dataclass(frozen=True, slots=True)
class Run:
    """One trace. `by`: who decided, an agent, or a person who shows how it is done."""

    folder: Path
    goal: str
    by: By
    status: str  # a loop's ending, "crashed", or "running" where the run was killed
    message: str
    started: str
    ended: str | None
    rows: tuple[Row, ...]
    facts: dict[str, str]  # what else was written down for people
    versions: dict[str, str]

    @property
    def ended_well(self) -> bool:
        return self.status in ENDED_WELL


def read_trace(folder: Path) -> Run:
    """The trace in a folder. ValueError with one sentence that says what is damaged, and where."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"{folder} is no trace: it has no {RUN}")
    run = _Fields(_object(path.read_bytes(), f"{path}"), f"{path}")
    own = ("goal", "by", "status", "message", "started", "ended", "steps", "versions")
    return Run(
        folder=folder,
        goal=run.text("goal"),
        by=run.by(),
        status=run.text("status"),
        message=run.text("message"),
        started=run.text("started"),
        ended=run.maybe("ended", run.text),
        rows=_rows(folder / ROWS, torn=run.told["status"] == "running"),
        facts={name: str(value) for name, value in run.told.items() if name not in own},
        versions={name: str(number) for name, number in run.fields("versions").items()},
    )


def _rows(path: Path, torn: bool) -> tuple[Row, ...]:
    if not path.is_file():
        raise ValueError(f"{path.parent} is no whole trace: it has no {ROWS}")
    *lines, last = path.read_bytes().split(b"\n")
    if last and not torn:
        raise ValueError(f"row {len(lines)} of {path} is damaged: its end is missing")
    return tuple(_row(path, t, line) for t, line in enumerate(lines))


def _row(path: Path, t: int, line: bytes) -> Row:
    here = f"row {t} of {path}"
    row = _Fields(_object(line, here), here)
    if row.whole("t") != t:
        raise ValueError(f"{here} is damaged: it says that it is row {row.whole('t')}")
    height, width = row.whole("height"), row.whole("width")
    return Row(
        t=t,
        picture=_picture(path.parent, row.text("screen"), (width, height), here),
        height=height,
        width=width,
        by=row.by(),
        words=row.maybe("words", row.text),
        action=row.decoded("action", untold),
        gesture=row.decoded("gesture", untold_gesture),
        proposed=row.decoded("proposed", _proposed),
        confidence=row.maybe("confidence", row.number),
        kind_confidence=row.maybe("kind_confidence", row.number),
        screen_ms=row.maybe("screen_ms", row.number),
        agent_ms=row.maybe("agent_ms", row.number),
        perform_ms=row.maybe("perform_ms", row.number),
    )


def _proposed(value: object) -> Action | NotAnAction:
    return untold(value.get("action") if isinstance(value, dict) else value)


def _object(text: bytes, here: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{here} is damaged: it is no JSON ({error})") from None
    if not isinstance(told, dict):
        raise ValueError(f"{here} is damaged: it holds no object")
    return told


def _picture(folder: Path, name: str, size: tuple[int, int], here: str) -> Path:
    """A whole PNG of this size (width, height), in the folder itself."""
    path = folder / name
    if not re.fullmatch(r"[\w-]{1,80}\.png", name) or path.is_symlink():
        raise ValueError(f"{here} is damaged: its picture {name[:60]!a} is no PNG file in the trace's folder")
    if not path.is_file():
        raise ValueError(f"{here} is damaged: its picture {path} is missing")
    with _opened(path) as picture:
        found = picture.size
        picture.verify()
    if found != size:
        told, there = (f"{width} x {height}" for width, height in (size, found))
        raise ValueError(f"{here} is damaged: its picture {path} has {there} pixels, not {told}")
    return path


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path, formats=["PNG"]) as picture:
            yield picture
    except Exception as error:  # Pillow raises a dozen kinds on damaged files
        raise ValueError(f"the picture {path} is damaged ({type(error).__name__}: {error})") from None


@dataclass(frozen=True, slots=True)
class _Fields:
    """An object's values, each checked as it is taken."""

    told: dict[str, Any]
    here: str

    def text(self, name: str) -> str:
        return str(self._checked(name, str))

    def fields(self, name: str) -> dict[str, Any]:
        return dict(self._checked(name, dict))

    def whole(self, name: str) -> int:
        return int(self._checked(name, int))

    def number(self, name: str) -> float:
        return float(self._checked(name, float, int))

    def maybe(self, name: str, taken: Callable[[str], Value]) -> Value | None:
        return None if self.told.get(name) is None else taken(name)

    def by(self) -> By:
        match self.told.get("by", "agent"):
            case "agent":
                return "agent"
            case "person":
                return "person"
        raise self._damaged("by", "neither agent nor person")

    def decoded(self, name: str, decode: Callable[[object], Value]) -> Value | None:
        try:
            return None if self.told.get(name) is None else decode(self.told[name])
        except ValueError as error:
            raise self._damaged(name, f"no {name}: {error}") from None

    def _checked(self, name: str, *kinds: type) -> Any:
        """JSON has one type for what Python tells apart: a flag is no number here."""
        value = self.told.get(name)
        if type(value) not in kinds:
            raise self._damaged(name, f"{type(value).__name__}, not {kinds[0].__name__}")
        return value

    def _damaged(self, name: str, what: str) -> ValueError:
        return ValueError(f"{self.here} is damaged: its {name} is {what}")

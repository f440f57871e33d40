"""The format of a trace folder: run.json, one JSON row a step in trace.jsonl, and the screens. Written and
read by it.

`VERSION` 2 is that of uivlm 0.2; traces of 0.1 have no version and are refused.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, with_config

from uivlm.actions.schema import STRICT, ActionOrInvalid, Gesture
from uivlm.rollout.loop import EndStatus

VERSION: Final = 2
RUN_FILE, STEPS_FILE, PAGE_FILE = "run.json", "trace.jsonl", "index.html"
DIR_MODE, FILE_MODE = 0o700, 0o600  # a trace shows a person's phone: other users must not read it
FINISHED_STATUSES = ("complete", "impossible")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Actor = Literal["agent", "human"]
TraceStatus = EndStatus | Literal["running"]  # still "running": the process was killed
ImageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}\.png$")]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The agent's decision where a person did something else."""

    text: str | None
    action: ActionOrInvalid
    confidence: float | None  # [0, 1]


@with_config(STRICT)
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One row of trace.jsonl: a screen, the decision on it, and what was then done."""

    t: int  # 0-based
    screen: ImageName  # file in the trace's folder
    height: int  # pixels
    width: int
    actor: Actor
    text: str | None = None  # raw model output; None, like the action: no decision was made
    action: ActionOrInvalid | None = None
    gesture: Gesture | None = None  # None: nothing was sent to the phone
    proposed: Proposal | None = None
    confidence: float | None = None  # [0, 1]
    action_type_confidence: float | None = None
    screenshot_ms: float | None = None
    inference_ms: float | None = None
    execute_ms: float | None = None  # None: not executed

    @property
    def executed(self) -> bool:
        return self.execute_ms is not None


@with_config(STRICT)
@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The content of run.json."""

    version: Literal[2]  # VERSION
    goal: str
    actor: Actor  # who decides: an agent, or a person who records a demonstration
    status: TraceStatus
    message: str
    num_steps: int
    started: str  # UTC, ISO 8601
    ended: str | None
    task_success: bool | None = None  # the phone's own check after the run; None: not checked
    metadata: dict[str, str] = field(default_factory=dict)  # anything else, for people
    versions: dict[str, str] = field(default_factory=dict)  # of Python and packages

    @property
    def finished(self) -> bool:
        """The agent or the person ended the run."""
        return self.status in FINISHED_STATUSES


STEP, RUN = TypeAdapter(TraceStep), TypeAdapter(RunInfo)


def to_json(value: TraceStep | RunInfo, indent: int | None = None) -> str:
    """Valid Unicode: a lone surrogate, which JSON readers reject, is written as its code."""
    text = json.dumps(asdict(value), indent=indent, ensure_ascii=False)
    return LONE_SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text)


def check_version(run: object, path: object) -> None:
    """Raise ValueError for the run.json of another version; `run` is its JSON tree, `path` its name."""
    version: Any = run.get("version") if isinstance(run, dict) else VERSION
    if version is None:
        raise ValueError(f"{path} was written by uivlm 0.1: record the run again for trace version {VERSION}")
    if version != VERSION:
        raise ValueError(f"{path}: version: got {version!a:.40}; expected {VERSION}. Record the run again")

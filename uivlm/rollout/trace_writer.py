"""Records a run as a folder: an observer in, files for reading, replay and training out.

    000.png, 001.png, ...   the screens as they were seen
    trace.jsonl             one row a step, written when the step ends
    run.json                goal, actor, status and versions; written at the start and at the end
    index.html              the page: each screen with its tap or swipe drawn on it

Only their user can read them. A thread writes the screens while the model computes.
`uivlm.rollout.trace_schema` defines the rows; docs/traces.md describes them.
"""

import platform
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from uivlm.actions.decision import Decision, finite_or_none
from uivlm.actions.gesture import Gesture
from uivlm.atomic import check_new_dir, write_file
from uivlm.episodes.episode import Screen
from uivlm.rollout.loop import EndStatus
from uivlm.rollout.trace_html import write_page
from uivlm.rollout.trace_schema import (
    DIR_MODE,
    FILE_MODE,
    RUN_FILE,
    STEPS_FILE,
    VERSION,
    Actor,
    Proposal,
    RunInfo,
    TraceStep,
    to_json,
)


class TraceWriter:
    """The RunObserver that records one run. The folder must be new or empty."""

    def __init__(
        self, folder: Path, goal: str, metadata: dict[str, str] | None = None, actor: Actor = "agent"
    ) -> None:
        check_new_dir(folder)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(DIR_MODE)
        self.folder = folder
        self._image_writer = ThreadPoolExecutor(1, "trace")
        self._pending_image: Future[object] | None = None  # the current step's screen
        self._step: TraceStep | None = None  # the current step, not yet written
        self._info = RunInfo(
            version=VERSION, goal=goal, actor=actor, status="running", message="", num_steps=0,
            started=_now(), ended=None, metadata=metadata or {}, versions=_versions(),
        )  # fmt: skip
        self._write_info()
        (folder / STEPS_FILE).touch(FILE_MODE)

    def on_screen(self, t: int, screen: Screen, duration_ms: float) -> None:
        """Write the previous step.

        If it has the same number, a person took over: keep its decision as proposed.
        """
        proposed = None
        step = self._step
        if step is None or step.t != t:
            self._write_step()
        elif step.action is not None:
            proposed = Proposal(step.text, step.action, step.confidence)
        name = f"{t:03d}.png"
        self._pending_image = self._image_writer.submit(
            lambda: write_file(self.folder / name, screen.png, FILE_MODE)
        )
        height, width = screen.pixels.shape[:2]
        self._step = TraceStep(
            t=t, screen=name, height=height, width=width, actor=self._info.actor, proposed=proposed,
            screenshot_ms=round(duration_ms, 3),
        )  # fmt: skip

    def on_decision(self, t: int, decision: Decision, duration_ms: float) -> None:
        assert self._step is not None, "a decision needs a screen"
        self._step = replace(
            self._step,
            text=decision.text,
            action=decision.action,
            confidence=finite_or_none(decision.confidence),
            action_type_confidence=finite_or_none(decision.action_type_confidence),
            inference_ms=round(duration_ms, 3),
        )

    def on_action(self, t: int, gesture: Gesture | None, duration_ms: float, by_human: bool = False) -> None:
        assert self._step is not None, "an action needs a screen"
        actor: Actor = "human" if by_human else self._step.actor
        self._step = replace(self._step, gesture=gesture, execute_ms=round(duration_ms, 3), actor=actor)
        self._write_step()

    def on_end(self, status: EndStatus, message: str) -> None:
        """Write the unfinished step, which has no `execute_ms`, then run.json and the page."""
        self._write_step()
        self._image_writer.shutdown()
        self._info = replace(self._info, status=status, message=message, ended=_now())
        self._write_info()
        write_page(self.folder)

    def set_task_success(self, success: bool, metadata: dict[str, str]) -> None:
        """Record, after the end, what the phone's own check returned."""
        self._info = replace(self._info, task_success=success, metadata={**self._info.metadata, **metadata})
        self._write_info()
        write_page(self.folder)

    def _write_step(self) -> None:
        """A row is written after its screen, so that every row has one."""
        if self._step is None or self._pending_image is None:
            return
        step, image, self._step, self._pending_image = self._step, self._pending_image, None, None
        image.result()
        with open(self.folder / STEPS_FILE, "a", encoding="utf-8", newline="\n") as rows:
            rows.write(to_json(step) + "\n")
        self._info = replace(self._info, num_steps=self._info.num_steps + 1)

    def _write_info(self) -> None:
        write_file(self.folder / RUN_FILE, to_json(self._info, indent=1) + "\n", FILE_MODE)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("uivlm", "numpy", "pillow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions

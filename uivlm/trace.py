"""What a run leaves behind: a folder to read, and one page to look at. A person's demonstration leaves the same.

    000.png, 001.png, ...   the screens as they were seen
    trace.jsonl             one row a step, written as it happens: words, action, gesture, by whom, confidence, times in ms
    run.json                goal, by whom, status and versions: written at the start, and again at the end
    index.html              the page: each screen with its tap or swipe drawn on it

Screens are written by a thread while the model takes its time. `uivlm.trace_read` reads the folder, docs/traces.md
describes it.
"""

import json
import os
import platform
import time
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from PIL import Image

from uivlm.actions.gesture import Gesture
from uivlm.actions.told import told
from uivlm.agents.agent import Decision
from uivlm.episode import Screen
from uivlm.trace_page import write_page
from uivlm.trace_read import ROWS, RUN, By


class Trace:
    """The folder of one run, which must be new or empty. It is a loop's Witness. `by`: who decides in it."""

    def __init__(
        self, folder: Path, goal: str, facts: dict[str, str] | None = None, by: By = "agent"
    ) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} already holds something: name a new folder for the trace")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.by = by
        self._writer = ThreadPoolExecutor(1, "trace")
        self._saving: Future[None] | None = None  # the row's screen
        self._row: dict[str, Any] = {}
        self._num_steps = 0
        self._run: dict[str, Any] = {
            **(facts or {}),
            "goal": goal,
            "by": by,
            "status": "running",
            "message": "",
            "steps": 0,
            "started": _now(),
            "ended": None,
            "versions": _versions(),
        }
        self._write_run()
        (folder / ROWS).touch()

    def saw(self, t: int, screen: Screen, ms: float) -> None:
        """The row before is written, but for one of the same step: there a person acts instead of what was decided, which is
        kept as what was proposed."""
        proposed = None
        if self._row.get("t") != t:
            self._finish_row()
        elif self._row["action"] is not None:
            proposed = {name: self._row[name] for name in ("words", "action", "confidence")}
        name = f"{t:03d}.png"
        self._saving = self._writer.submit(_save, screen, self.folder / name)
        height, width = screen.pixels.shape[:2]
        self._row = {
            "t": t,
            "screen": name,
            "height": height,
            "width": width,
            "by": self.by,
            "words": None,
            "action": None,
            "gesture": None,
            "proposed": proposed,
            "confidence": None,
            "kind_confidence": None,
            "screen_ms": round(ms, 3),
            "agent_ms": None,
            "perform_ms": None,
        }

    def decided(self, t: int, decision: Decision, ms: float) -> None:
        self._row |= {
            "words": decision.words,
            "action": told(decision.action),
            "confidence": decision.confidence,
            "kind_confidence": decision.kind_confidence,
            "agent_ms": round(ms, 3),
        }

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        self._row |= {"gesture": None if done is None else told(done), "perform_ms": round(ms, 3)}
        if by_hand:
            self._row["by"] = "person"
        self._finish_row()

    def ended(self, status: str, message: str) -> None:
        """Whatever was begun is written, then the page. The last row of a broken run has no `perform_ms`."""
        self._finish_row()
        self._writer.shutdown()
        self._run |= {"status": status, "message": message, "steps": self._num_steps, "ended": _now()}
        self._write_run()
        write_page(self.folder)

    def judged(self, what: str) -> None:
        """After the end: what the phone itself, or who else knows, says of the run."""
        self._run |= {"judged": what}
        self._write_run()
        write_page(self.folder)

    def _finish_row(self) -> None:
        """Once its screen is there."""
        if self._saving is None:
            return
        saving, self._saving = self._saving, None
        saving.result()
        with open(self.folder / ROWS, "a", encoding="ascii") as rows:
            rows.write(json.dumps(self._row) + "\n")
        self._row = {}
        self._num_steps += 1

    def _write_run(self) -> None:
        partial = self.folder / f"{RUN}.partial"
        partial.write_text(json.dumps(self._run, indent=1) + "\n", encoding="ascii")
        os.replace(partial, self.folder / RUN)


def _save(screen: Screen, path: Path) -> None:
    Image.fromarray(screen.pixels).save(path, compress_level=1)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("uivlm", "numpy", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found

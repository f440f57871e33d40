"""Traces whose own check failed: never training data, unless a run asks for them."""

import json
from pathlib import Path
from typing import Any

from data_prep.__main__ import prepare
from data_prep.settings import PrepSettings
from tests.helpers.foreign_formats import SCREEN, write_trace
from tests.helpers.prepared_data import all_episodes, fully_counted, refused
from uivlm.actions.action import Finish, Point, Tap

STEPS = [(SCREEN, Tap(Point(0.5, 0.5))), (SCREEN, Finish("complete"))]


def write_run(folder: Path, goal: str, task_success: Any) -> None:
    """A finished run with the result of the phone's check; None: not checked."""
    write_trace(folder, goal, STEPS)
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"task_success": task_success}))


def test_failed_runs_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "traces"
    for name, task_success in (("reached", True), ("failed", False), ("unchecked", None), ("odd", "no")):
        write_run(source / name, name, task_success)
    write_trace(source / "unfinished", "unfinished", STEPS[:1], "max_steps")
    report = prepare(source, tmp_path / "out", PrepSettings(format="trace"))
    assert report["dropped_steps"] == {"failed run": 2, "damaged episode": 1, "unfinished run": 1}
    assert fully_counted(report)
    assert {e.goal: e.subset for e in all_episodes(tmp_path / "out").values()} == {
        "reached": "trace", "unchecked": "trace",
    }  # fmt: skip
    assert any("trace failed: task_success" in message for message in report["unusable_examples"])

    kept = prepare(source, tmp_path / "all", PrepSettings(format="trace", keep_failed_runs=True))
    assert kept["dropped_steps"] == {"damaged episode": 1, "unfinished run": 1}
    subsets = {e.goal: e.subset for e in all_episodes(tmp_path / "all").values()}
    assert subsets == {"reached": "trace", "unchecked": "trace", "failed": "failed_trace"}


def test_only_failed_runs_name_the_option(tmp_path: Path) -> None:
    write_run(tmp_path / "traces" / "failed", "failed", False)
    arguments = str(tmp_path / "traces"), str(tmp_path / "out"), "--format", "trace"
    assert "--keep-failed-runs" in refused(tmp_path, *arguments)

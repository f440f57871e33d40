"""Traces are written and read again; their pages are safe."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.helpers.scripted_loop import GARBLED, SWIPE, TAP, Phone, Scripted
from uivlm.actions.action import Finish, InvalidAction, Press, Type
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import Screen, Step
from uivlm.rollout.loop import HumanTookOver, RunStopped, run_episode
from uivlm.rollout.trace_html import write_index, write_page
from uivlm.rollout.trace_reader import read_trace
from uivlm.rollout.trace_writer import TraceWriter

HARD = 'a "quoted" \\ 北京 🚀\nline\ttab </script>'
ACTIONS = [TAP, SWIPE, Type(HARD), Type(""), *map(Press, ("back", "home", "enter"))]
ACTIONS += [Finish("complete"), Finish("impossible"), InvalidAction(HARD, "no")]
GESTURES = [Touch(((0, 0),), 60), Touch(((1, 2), (3, 4)), 500), TypeText(HARD), PressKey("back")]


# -- writing and reading -------------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path) -> None:
    phone = Phone()
    script = [*ACTIONS[:7], Finish("complete")]
    outcome = run_episode(
        Scripted(*script), phone, HARD, 20, [TraceWriter(tmp_path / "run", HARD, {"agent": "<x>"})]
    )
    run = read_trace(tmp_path / "run")
    assert (run.info.goal, run.info.actor, run.info.status, run.info.message) == (
        HARD,
        "agent",
        "complete",
        outcome.message,
    )
    assert run.info.finished
    assert run.info.metadata == {"agent": "<x>"}
    assert run.info.ended is not None
    assert run.info.ended >= run.info.started
    assert "uivlm" in run.info.versions
    assert [row.action for row in run.steps] == script
    assert [row.gesture for row in run.steps] == [*phone.done, None]
    for t, row in enumerate(run.steps):
        assert (row.t, row.actor, row.text, row.confidence, row.proposed) == (
            t,
            "agent",
            f"words {t + 1}",
            0.5,
            None,
        )
        assert np.array_equal(run.pixels(row), phone.shades[t].pixels)
        assert row.executed


@pytest.mark.parametrize(
    ("script", "phone", "actions", "done"),
    [
        ([TAP, GARBLED], Phone(), [TAP, GARBLED], [True, False]),
        ([TAP, AgentError("no")], Phone(), [TAP, None], [True, False]),
        ([TAP, TAP], Phone(gestures=1), [TAP, TAP], [True, False]),
        ([TAP, TAP], Phone(screens=1), [TAP], [True]),
        ([TAP], Phone(screens=0), [], []),
        ([RunStopped("denied", "not confirmed")], Phone(), [None], [False]),
    ],
)
def test_runs_that_end_badly_are_read(script, phone, actions, done, tmp_path: Path) -> None:
    phone.shades.clear()
    phone.done.clear()
    outcome = run_episode(Scripted(*script), phone, "goal", 9, [TraceWriter(tmp_path / "run", "goal")])
    run = read_trace(tmp_path / "run")
    assert run.info.status == outcome.status
    assert not run.info.finished
    assert [row.action for row in run.steps] == actions
    assert [row.executed for row in run.steps] == done


class TakenFrom(Phone):
    """At the first gesture a person takes over and does these steps instead."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps: tuple[Step, ...] | None = steps

    def perform(self, gesture) -> None:
        if self.steps is not None:
            steps, self.steps = self.steps, None
            raise HumanTookOver(steps)
        super().perform(gesture)


def test_other_users_cannot_read_a_trace(tmp_path: Path) -> None:
    run, empty = tmp_path / "runs" / "run", tmp_path / "empty"
    empty.mkdir(0o755)
    for folder in (run, empty):
        run_episode(Scripted(TAP, Finish("complete")), Phone(), "go", 9, [TraceWriter(folder, "go")])
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}
        assert set(modes.values()) == {"0o600"}
        assert {"000.png", "run.json", "trace.jsonl", "index.html"} <= set(modes)
        assert oct(folder.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_what_a_person_did_instead(num_steps: int, tmp_path: Path) -> None:
    by_hand = [
        Step(Screen(np.full((100, 80, 3), 200 + i, np.uint8)), Press("back")) for i in range(num_steps)
    ]
    phone = TakenFrom(*by_hand)
    agent = Scripted(TAP, SWIPE, Finish("complete"))
    outcome = run_episode(agent, phone, "goal", 9, [TraceWriter(tmp_path / "run", "goal")])
    run = read_trace(tmp_path / "run")
    assert [row.action for row in run.steps] == [step.action for step in outcome.steps]
    assert [row.actor for row in run.steps] == ["human"] * num_steps + ["agent"] * 2
    assert [row.proposed and row.proposed.action for row in run.steps] == [TAP, *[None] * (num_steps + 1)]
    for row, step in zip(run.steps, outcome.steps, strict=True):
        assert np.array_equal(run.pixels(row), step.screen.pixels)
    page = (tmp_path / "run" / "index.html").read_text()
    assert page.count("instead of tap at 0.500 0.250") == 1
    assert page.count("by a human") == num_steps


def test_a_demonstration_is_a_run_of_a_person(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path / "shown", "goal", actor="human")
    run_episode(Scripted(TAP, Finish("complete")), Phone(), "goal", 9, [trace])
    run = read_trace(tmp_path / "shown")
    assert run.info.actor == "human"
    assert [row.actor for row in run.steps] == ["human", "human"]
    assert json.loads((tmp_path / "shown" / "run.json").read_text())["actor"] == "human"


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.helpers.scripted_loop import TAP, Phone, Scripted
from uivlm.rollout.loop import run_episode
from uivlm.rollout.trace_writer import TraceWriter
class Deadly(Scripted):
    def act(self, history):
        if len(history.steps) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(history)
run_episode(Deadly(*[TAP] * 9), Phone(), "goal", 9, [TraceWriter(Path(sys.argv[1]), "goal")])
"""


def test_a_killed_run_is_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "run")], cwd=ROOT, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    rows = tmp_path / "run" / "trace.jsonl"
    # the last screen was seen, and perhaps written; nothing was decided on it
    assert len(list((tmp_path / "run").glob("*.png"))) in (3, 4)
    for torn in (b"", b'{"t": 3, "scr', rows.read_bytes().split(b"\n")[0][:-1]):
        whole = rows.read_bytes()
        rows.write_bytes(whole + torn)
        run = read_trace(tmp_path / "run")
        assert (run.info.status, run.info.ended, run.info.finished) == ("running", None, False)
        assert [row.action for row in run.steps] == [TAP] * 3
        rows.write_bytes(whole)
    assert write_page(tmp_path / "run").read_text().count("<figure>") == 3


# -- pages ---------------------------------------------------------------------------------------------------

EVIL = "<script>alert('1')</script><img src=x onerror=1> \"&amp; \ud800 \x1b[31m"


def test_the_index_lists_every_trace(tmp_path: Path) -> None:
    for name, actor, script in (
        ("b", "agent", [TAP, Finish("complete")]),
        ("a/deep & <b>x\"'#?%41", "human", [TAP, TAP, Finish("impossible")]),
        ("c", "agent", [GARBLED]),
    ):
        trace = TraceWriter(tmp_path / name, f"{name} {EVIL}", actor=actor)
        run_episode(Scripted(*script), Phone(), "goal", 9, [trace])
    TraceWriter(tmp_path / "running", EVIL)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"goal": "<b>torn')
    page = write_index(tmp_path).read_bytes().decode()
    assert not re.search(r"<script|<img|<b>|\x1b", page)
    assert "<title>5 traces</title>" in page
    lines = re.findall(r"<tr><td>.*?</tr>", page, re.DOTALL)
    assert len(lines) == 5
    links = [unquote(link) for link in re.findall(r'href="([^"]*)"', page)]
    assert sorted(links) == ["a/deep & <b>x\"'#?%41/index.html", "b/index.html", "c/index.html"]
    assert all((tmp_path / link).is_file() for link in links)
    deep, good, garbled, running, torn = lines
    assert all(word in deep for word in (">human<", ">impossible<", ">3<"))
    assert all(word in good for word in (">agent<", ">complete<", ">2<"))
    assert "invalid_action: step 1" in garbled
    assert ">running<" in running
    assert "href" not in running + torn
    assert "run.json is damaged" in torn
    assert write_index(tmp_path).read_bytes().decode() == page


def test_the_index_of_nothing(tmp_path: Path) -> None:
    assert "0 traces" in write_index(tmp_path).read_text()
    with pytest.raises(ValueError, match="there is no folder"):
        write_index(tmp_path / "nowhere")
    TraceWriter(tmp_path / "run", "goal")
    with pytest.raises(ValueError, match="is itself a trace"):
        write_index(tmp_path / "run")

"""Whole runs through the real adb on a phone with which something goes wrong: each ends in the right status with a whole
trace, nothing is done twice or after the end, and no process is left."""

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import FakePhone, processes

from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.agents.agent import Decision
from uivlm.devices.adb import connect
from uivlm.devices.adb_server import Adb, own_server
from uivlm.devices.settle import AT_ONCE
from uivlm.devices.sim.adbd import serve
from uivlm.devices.sim.faults import Faults, Unplug
from uivlm.devices.sim.shell import LATIN_KEYBOARD, Shell
from uivlm.episode import Screen
from uivlm.loop import EXIT_STATUS, Outcome, run_episode
from uivlm.trace import Trace

ACTIONS = (
    Tap(Point(0.5, 0.5)),
    Type("hi %s"),
    Type("é"),
    Swipe(Point(0.8, 0.5), Point(0.2, 0.5)),
    Press("back"),
    Finish("complete"),
)
DONE = [  # of them, on the phone
    Touch(((61, 135),), 60),
    *(Keys("hi %"), Keys("s"), Keys("é")),
    Touch(((61, 216), (61, 54)), 500),
    Button("back"),
]


class Agent:
    """Says the actions one after the other; before each it may do something to the phone."""

    def __init__(self, before: dict[int, Callable[[], object]]) -> None:
        self.before = before

    def reset(self) -> None:
        pass

    def act(self, history) -> Decision:
        t = len(history.steps)
        self.before.get(t, lambda: None)()
        return Decision(ACTIONS[min(t, len(ACTIONS) - 1)], f"step {t}", 0.5)


class Looked:
    """A device, and what happens to it before a screen is looked at."""

    def __init__(self, device, before: dict[int, Callable[[], object]]) -> None:
        self.device, self.before, self.num_looks = device, before, 0

    def screen(self) -> Screen:
        self.before.get(self.num_looks, lambda: None)()
        self.num_looks += 1
        return self.device.screen()

    def perform(self, gesture: Gesture) -> None:
        self.device.perform(gesture)


Event = Callable[["Run"], object]


class Run:
    """One run on one phone, with what came of it; what must hold of every run is checked here."""

    def __init__(
        self,
        adb: Adb,
        folder: Path,
        faults: Faults | None = None,
        *,
        patience_s: float = 0.3,
        limit: int = 20,
        before_screen: dict[int, Event] | None = None,
        before_gesture: dict[int, Event] | None = None,
    ) -> None:
        self.adb, self.phone = adb, FakePhone()
        self.shell = Shell(self.phone, faults=faults)
        with serve(self.shell) as port:
            device = connect(f"127.0.0.1:{port}", adb, AT_ONCE, patience_s)
            before = children()
            looked = Looked(device, self._bound(before_screen))
            agent = Agent(self._bound(before_gesture))
            self.outcome = run_episode(agent, looked, "goal", limit, Trace(folder, "goal"))
            done = list(self.phone.gestures)
            time.sleep(0.05)
        assert self.phone.gestures == done, "something was done after the end"
        assert children() <= before
        assert_whole(folder, self.outcome)

    def _bound(self, events: dict[int, Event] | None) -> dict[int, Callable[[], object]]:
        return {t: partial(event, self) for t, event in (events or {}).items()}


def children() -> Counter[str]:
    """How our living child processes begin: adb's server and its watcher, and nothing else."""
    found: Counter[str] = Counter()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found[" ".join((path / "cmdline").read_text().split("\0")[:2])] += 1
    return found


def assert_whole(folder: Path, outcome: Outcome) -> None:
    """A trace with nothing missing, however the run ended."""
    run = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert (run["status"], run["message"]) == (outcome.status, outcome.message)
    assert run["ended"]
    assert run["steps"] == len(rows)
    assert sum(row["perform_ms"] is not None for row in rows) == len(outcome.steps)
    assert (folder / "index.html").read_text().count("<figure") == len(rows)
    for row in rows:
        with Image.open(folder / row["screen"]) as screen:
            assert screen.size == (row["width"], row["height"])
    assert outcome.exit_status == EXIT_STATUS[outcome.status]
    assert outcome.message.isprintable()


@pytest.fixture(scope="module")
def clean(adb, tmp_path_factory) -> Run:
    """A run in which nothing goes wrong: what all others are measured by."""
    run = Run(adb, tmp_path_factory.mktemp("clean") / "run")
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE
    return run


# -- unplugged ---------------------------------------------------------------------------------------------------

ACTING = ("input", "am", "ime enable")  # how the lines begin that must not be given twice


def stages(clean: Run) -> list[tuple[int, str]]:
    """One command of each kind, with its number: screenshots, dumpsys, a tap, text, keyboards, a broadcast, ..."""
    kinds = {tuple(line.split()[:2]): (at, line) for at, line in reversed([*enumerate(clean.shell.lines)])}
    assert len(kinds) == 12
    return sorted(kinds.values())


@pytest.mark.parametrize("during", [False, True])
def test_unplugged_at_each_stage_for_good(adb, clean, tmp_path, during):
    for at, line in stages(clean):
        run = Run(adb, tmp_path / str(at), Faults(unplug=Unplug(at, during)), patience_s=0.2)
        assert run.outcome.status == "device error", line
        assert "not repeated" in run.outcome.message or "is gone" in run.outcome.message
        assert run.phone.gestures == DONE[: len(run.phone.gestures)]
        assert len(run.shell.lines) == at + during  # nothing came after


@pytest.mark.parametrize("during", [False, True])
def test_unplugged_at_each_stage_and_plugged_in_again(adb, clean, tmp_path, during):
    """What only asks is asked again and the run goes on; what acts ends it, for it may have been done."""
    for at, line in stages(clean):
        unplug = Unplug(at, during, back_s=0.05)
        run = Run(adb, tmp_path / str(at), Faults(unplug=unplug), patience_s=10.0)
        if line.startswith(ACTING):
            assert run.outcome.status == "device error", line
            assert "not repeated" in run.outcome.message
            assert run.phone.gestures == DONE[: len(run.phone.gestures)]
        else:
            assert run.outcome.status == "complete", line
            assert run.phone.gestures == DONE


def test_the_users_keyboard_is_back_after_a_short_loss(adb, clean, tmp_path):
    (at,) = (i for i, line in enumerate(clean.shell.lines) if line.startswith("am broadcast"))
    run = Run(adb, tmp_path / "run", Faults(unplug=Unplug(at, during=True, back_s=0.1)), patience_s=10.0)
    assert run.outcome.status == "device error"
    assert run.shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD


# -- adb's server ------------------------------------------------------------------------------------------------


def kill_server(run: Run) -> None:
    (pid,) = processes(f"-L tcp:localhost:{run.adb.options[-1]} ")
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("t", range(len(ACTIONS) - 1))
def test_adbs_server_killed_before_a_screen_and_before_a_gesture(adb, tmp_path, t):
    run = Run(adb, tmp_path / "screen", patience_s=10.0, before_screen={t: kill_server})
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE
    run = Run(adb, tmp_path / "gesture", patience_s=10.0, before_gesture={t: kill_server})
    if isinstance(ACTIONS[t], Type | Press) and t != 2:
        assert run.outcome.status == "device error"
        assert "not repeated" in run.outcome.message
        assert len(run.outcome.steps) == t
    else:  # something is asked before it is done, which starts the server again
        assert run.outcome.status == "complete"
        assert run.phone.gestures == DONE


def test_a_users_server_killed_is_not_started_again(tmp_path):
    with own_server() as server:
        theirs = replace(server, revive=lambda: None)
        run = Run(theirs, tmp_path / "run", before_screen={1: kill_server}, patience_s=0.3)
        assert run.outcome.status == "device error"
        assert "adb's server does not answer" in run.outcome.message
        assert processes(f":{server.options[-1]} ") == {}


# -- what the phone answers --------------------------------------------------------------------------------------


def at_step(**fault: object) -> Event:
    def strike(run: Run) -> None:
        for name, value in fault.items():
            setattr(run.shell.faults, name, value)

    return strike


@pytest.mark.parametrize("t", range(len(ACTIONS) - 1))
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"refuses": True}, "refuses input"),
        ({"cut": ("raw", "png")}, "no whole screenshot"),
        ({"garbage": True}, "no whole screenshot|ADBKeyboard"),
    ],
)
def test_a_fault_from_each_step_on(adb, tmp_path, t, fault, words):
    run = Run(adb, tmp_path / "run", before_gesture={t: at_step(**fault)})
    if fault == {"refuses": True} and t == 2:  # a broadcast is no input
        t += 1
    assert run.outcome.status == "device error"
    assert re.search(words, run.outcome.message)
    assert len(run.outcome.steps) in (t, t + 1)
    assert run.phone.gestures == DONE[: len(run.phone.gestures)]


@pytest.mark.parametrize("way", ["raw", "png"])
@pytest.mark.parametrize("t", [0, 3])
def test_one_broken_way_of_capture_does_not_end_a_run(adb, tmp_path, way, t):
    run = Run(adb, tmp_path / "run", before_screen={t: at_step(cut=(way,))})
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE


def test_a_slow_capture_is_waited_for_and_one_without_end_is_not(adb, tmp_path):
    slow = {"raw": 0.3, "png": 0.3}
    assert Run(adb, tmp_path / "slow", Faults(slow=slow)).outcome.status == "complete"
    hasty = replace(adb, timeout_s=1.5)
    endless = at_step(slow={"raw": 2.5, "png": 2.5})
    run = Run(hasty, tmp_path / "endless", before_screen={2: endless})
    assert run.outcome.status == "device error"
    assert "no answer within 1.5 s" in run.outcome.message
    assert run.phone.gestures == DONE[:3]


@pytest.mark.parametrize("fault", ["black", "frozen"])
def test_what_is_a_screen_all_the_same_is_shown_to_the_agent(adb, tmp_path, fault):
    """What to make of it is for rules above the device."""
    run = Run(adb, tmp_path / "run", Faults(**{fault: True}), limit=3)
    assert run.outcome.status == "limit"
    screens = [step.screen.pixels for step in run.outcome.steps]
    assert all(np.array_equal(screen, screens[0]) for screen in screens)
    assert (screens[0].max() == 0) == (fault == "black")
    assert run.phone.gestures == DONE[:4]


def test_ctrl_c_while_a_screen_is_awaited(adb, tmp_path):
    def press(run: Run) -> None:
        run.shell.faults.slow = {"raw": 1.0, "png": 1.0}
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = Run(adb, tmp_path / "run", before_screen={1: press})
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.outcome.status == "interrupted"
    assert run.phone.gestures == DONE[:1]

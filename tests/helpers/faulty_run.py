"""A whole run through the real adb on a phone with faults, and what must hold of every such run.

Every run ends in a whole trace; nothing is done twice or after the end, and no process is left.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from PIL import Image

from tests.helpers.fake_phone import FakePhone
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.adb.device import connect
from uivlm.devices.adb.server import Adb
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.sim.adbd import serve_adb
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import Shell
from uivlm.episodes.episode import Screen
from uivlm.rollout.loop import EXIT_STATUS, Outcome, run_episode
from uivlm.rollout.trace_writer import TraceWriter

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
    *(TypeText("hi %"), TypeText("s"), TypeText("é")),
    Touch(((61, 216), (61, 54)), 500),
    PressKey("back"),
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
        with serve_adb(self.shell) as port:
            device = connect(f"127.0.0.1:{port}", adb, NO_WAIT, patience_s)
            before = children()
            looked = Looked(device, self._bound(before_screen))
            agent = Agent(self._bound(before_gesture))
            self.outcome = run_episode(agent, looked, "goal", limit, [TraceWriter(folder, "goal")])
            done = list(self.phone.gestures)
            time.sleep(0.05)
        assert self.phone.gestures == done, "something was done after the end"
        assert children() <= before
        assert_whole(folder, self.outcome)

    def _bound(self, events: dict[int, Event] | None) -> dict[int, Callable[[], object]]:
        return {t: partial(event, self) for t, event in (events or {}).items()}


def children() -> Counter[str]:
    """How our living child processes begin: adb's server and its watcher, and nothing else."""
    result: Counter[str] = Counter()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                result[" ".join((path / "cmdline").read_text().split("\0")[:2])] += 1
    return result


def assert_whole(folder: Path, outcome: Outcome) -> None:
    """A trace with nothing missing, however the run ended."""
    run = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert (run["status"], run["message"]) == (outcome.status, outcome.message)
    assert run["ended"]
    assert run["num_steps"] == len(rows)
    assert sum(row["execute_ms"] is not None for row in rows) == len(outcome.steps)
    assert (folder / "index.html").read_text().count("<figure") == len(rows)
    for row in rows:
        with Image.open(folder / row["screen"]) as screen:
            assert screen.size == (row["width"], row["height"])
    assert outcome.exit_status == EXIT_STATUS[outcome.status]
    assert outcome.message.isprintable()

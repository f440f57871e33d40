"""A recorded run done again, on the simulated phone behind the real adb, and on phones that are another than they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from test_loop import GARBLED, SWIPE, TAP, Scripted
from test_loop import Phone as Shades

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from uivlm.actions.action import Finish, Press, Type
from uivlm.agents.agent import AgentError
from uivlm.agents.replay import ReplayAgent, drift
from uivlm.devices.adb_server import Adb
from uivlm.devices.device import Device
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.phone import Phone
from uivlm.devices.sim.tasks import Task, new_phone, succeeded, task
from uivlm.loop import run_episode
from uivlm.replay import replay
from uivlm.safety.halt import Halt
from uivlm.trace import Trace
from uivlm.trace_read import Run, read_trace
from uivlm.wiring import simulated


@contextmanager
def recorded(one: Task, adb: Adb, folder: Path) -> Iterator[tuple[Phone, Path]]:
    """The expert's episode, run again through adb into a trace."""
    phone = new_phone(one)
    with simulated(phone, adb) as device:
        expert = Scripted(*(step.action for step in record(one).steps))
        outcome = run_episode(expert, device, one.goal, 30, Trace(folder, one.goal))
    assert outcome.status == one.status
    assert succeeded(one, phone)
    yield phone, folder


def another(run: Run) -> Phone:
    """A phone of the same size that looks otherwise."""
    size = (run.rows[0].height, run.rows[0].width)
    phones = (Phone(layout=layout) for layout in range(1000, 1100))
    return next(phone for phone in phones if phone.screen().pixels.shape[:2] == size)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_phone_ends_in_the_same_state(seed: int, adb: Adb, tmp_path: Path) -> None:
    one = task(seed, "test")
    with recorded(one, adb, tmp_path / "run") as (before, folder):
        run = read_trace(folder)
        phone = new_phone(one)
        with simulated(phone, adb) as device:
            again = replay(run, device, Trace(tmp_path / "again", run.goal), 0.0)
    assert again.outcome.status == run.status
    assert [drift.share for drift in again.drifts] == [0.0] * len(run.rows)
    assert again.most == 0.0
    assert phone.world == before.world
    assert np.array_equal(phone.screen().pixels, before.screen().pixels)
    assert succeeded(one, phone)
    second = read_trace(tmp_path / "again")
    assert [(row.action, row.words, row.gesture) for row in second.rows] == [
        (row.action, row.words, row.gesture) for row in run.rows
    ]


def test_on_another_layout_it_stops_before_anything_is_touched(adb: Adb, tmp_path: Path) -> None:
    one = task(0, "test")
    with recorded(one, adb, tmp_path / "run") as (_, folder):
        run = read_trace(folder)
        other = another(run)
        start = other.screen().pixels
        with simulated(other, adb) as device:
            again = replay(run, device, Trace(tmp_path / "again", run.goal), 0.02)
    assert again.outcome.status == "agent error"
    assert again.outcome.steps == ()
    assert np.array_equal(other.screen().pixels, start)
    assert len(again.drifts) == 1
    assert again.most > 0.02
    assert again.outcome.message.startswith("the screen at step 1 differs from the recorded one by ")
    assert "at most 2 % may differ" in again.outcome.message
    assert read_trace(tmp_path / "again").message == again.outcome.message


def test_where_all_may_differ_it_goes_on(adb: Adb, tmp_path: Path) -> None:
    one = task(0, "test")
    with recorded(one, adb, tmp_path / "run") as (_, folder):
        run = read_trace(folder)
        with simulated(another(run), adb) as device:
            again = replay(run, device, None, 1.0)
    assert again.outcome.status == run.status
    assert len(again.drifts) == len(run.rows)


def saved(folder: Path, *said: object, limit: int = 9, device: Device | None = None) -> Path:
    run_episode(Scripted(*said), device or Shades(), "goal", limit, Trace(folder, "goal"))
    return folder


@pytest.mark.parametrize(
    ("said", "status", "gestures"),
    [
        ([TAP, GARBLED], "not an action", 1),  # the same words end it again
        ([TAP, SWIPE], "agent error", 2),
        ([TAP, AgentError("nobody answers")], "agent error", 1),
        ([TAP, Halt("denied", "no")], "denied", 1),
        ([TAP, Press("back"), Finish("impossible")], "impossible", 2),
    ],
)
def test_runs_that_ended_otherwise(said: list[object], status: str, gestures: int, tmp_path: Path) -> None:
    """Only what was done is done again; where the recording ends, so does the replay."""
    run = read_trace(saved(tmp_path / "run", *said, AgentError("over")))
    assert run.status == status
    device = Shades()
    again = replay(run, device, None, 0.0)
    assert len(device.done) == gestures
    done_again = {"not an action": "not an action", "impossible": "impossible"}
    assert again.outcome.status == done_again.get(status, "limit")


def test_what_the_phone_did_not_do_is_not_done_again(tmp_path: Path) -> None:
    """A policy denied the second gesture, or the phone was gone: the row is there, the gesture was none."""
    run = read_trace(saved(tmp_path / "run", TAP, Type("pay"), device=Shades(gestures=1)))
    assert run.status == "device error"
    assert [row.done for row in run.rows] == [True, False]
    device = Shades()
    assert replay(run, device, None, 0.0).outcome.status == "limit"
    assert [type(each).__name__ for each in device.done] == ["Touch"]


@pytest.mark.parametrize("said", [[AgentError("no")], [Halt("stopped", "no")]])
def test_nothing_to_replay(said: list[object], tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", *said))
    with pytest.raises(ValueError, match="nothing was done in the run in .*run: there is nothing to replay"):
        ReplayAgent(run, 0.0)


@pytest.mark.parametrize("strict", [-0.1, 1.1, float("nan")])
def test_a_strictness_is_a_share(strict: float, tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, Finish("complete")))
    with pytest.raises(ValueError, match="it is a share of the pixels, 0 to 1"):
        ReplayAgent(run, strict)


def test_it_begins_again(tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, Finish("complete")))
    agent = ReplayAgent(run, 0.0)
    for _ in range(2):
        assert run_episode(agent, Shades(), "goal", 9).status == "complete"
        assert len(agent.drifts) == 2
    more = run_episode(
        ReplayAgent(read_trace(saved(tmp_path / "two", TAP, TAP, limit=2)), 0.0), Shades(), "goal", 9
    )
    assert more.status == "agent error"
    assert "has 2 steps, and all of them were replayed" in more.message


def test_a_picture_that_went_away_is_told(tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, TAP, Finish("complete")))
    run.rows[1].picture.write_bytes(b"")
    with pytest.raises(ValueError, match=r"001.png is damaged"):
        replay(run, Shades(), None, 0.0)


# -- drift ---------------------------------------------------------------------------------------------------------


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)


def test_drift_is_the_share_of_pixels_below_the_status_bar() -> None:
    recorded = noise(100, 40)
    rng = random.Random(3)
    for share in (0.0, 0.001, 0.25, 1.0):
        live = recorded.copy()
        live[:4] ^= 255  # the clock
        places = [(y, x) for y in range(4, 100) for x in range(40)]
        changed = rng.sample(places, round(share * len(places)))
        for y, x in changed:
            live[y, x, rng.randrange(3)] ^= 128
        found = drift(2, recorded, live)
        assert found.share == pytest.approx(len(changed) / len(places))
    assert drift(2, recorded, recorded).share == 0
    assert str(found) == "the screen at step 3 differs from the recorded one by 100 %"


def test_another_way_to_capture_is_no_drift() -> None:
    recorded = np.full((50, 40, 3), 100, np.uint8)
    assert drift(0, recorded, recorded + 8).share == 0
    assert drift(0, recorded, recorded - 9).share == 1
    assert drift(0, np.zeros_like(recorded), np.full_like(recorded, 255)).share == 1  # no byte turns over


def test_turned_and_other_sizes_are_named() -> None:
    turned, larger = drift(0, noise(90, 40), noise(40, 90)), drift(1, noise(90, 40), noise(91, 40))
    assert turned.share == larger.share == 1.0
    assert str(turned) == "the screen at step 1 is turned: it has 90 x 40 pixels, the recorded one 40 x 90"
    assert (
        str(larger)
        == "the screen at step 2 has another size: it has 40 x 91 pixels, the recorded one 40 x 90"
    )


class Turned(Shades):
    def screen(self):
        screen = super().screen()
        return type(screen)(screen.pixels.transpose(1, 0, 2))


def test_a_turned_phone_stops_it(tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, Finish("complete")))
    device = Turned()
    again = replay(run, device, None, 0.5)
    assert again.outcome.status == "agent error"
    assert "is turned" in again.outcome.message
    assert device.done == []

"""A recorded run is replayed, on the simulated phone behind the real adb and on phones that have changed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.scripted_loop import GARBLED, SWIPE, TAP, Scripted
from tests.helpers.scripted_loop import Phone as Shades

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from uivlm.actions.action import Finish, Press, Type
from uivlm.agents.agent import AgentError
from uivlm.cli.devices import simulated_device
from uivlm.devices.adb.server import Adb
from uivlm.devices.device import Device
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.tasks import SimTask, is_successful, make_task, new_phone
from uivlm.rollout.loop import RunStopped, run_episode
from uivlm.rollout.replay import ReplayAgent, measure_drift, replay
from uivlm.rollout.trace_reader import RecordedRun, read_trace
from uivlm.rollout.trace_writer import TraceWriter


@contextmanager
def recorded(one: SimTask, adb: Adb, folder: Path) -> Iterator[tuple[SimPhone, Path]]:
    """The expert's episode, run again through adb into a trace."""
    phone = new_phone(one)
    with simulated_device(phone, adb) as device:
        expert = Scripted(*(step.action for step in record_demonstration(one).steps))
        outcome = run_episode(expert, device, one.goal, 30, [TraceWriter(folder, one.goal)])
    assert outcome.status == one.expected_status
    assert is_successful(one, phone)
    yield phone, folder


def another(run: RecordedRun) -> SimPhone:
    """A phone of the same size that looks otherwise."""
    size = (run.steps[0].height, run.steps[0].width)
    phones = (SimPhone(layout=layout) for layout in range(1000, 1100))
    return next(phone for phone in phones if phone.screen().pixels.shape[:2] == size)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_phone_ends_in_the_same_state(seed: int, adb: Adb, tmp_path: Path) -> None:
    one = make_task(seed, "test")
    with recorded(one, adb, tmp_path / "run") as (before, folder):
        run = read_trace(folder)
        phone = new_phone(one)
        with simulated_device(phone, adb) as device:
            again = replay(run, device, 0.0, [TraceWriter(tmp_path / "again", run.info.goal)])
    assert again.outcome.status == run.info.status
    assert [drift.fraction for drift in again.drifts] == [0.0] * len(run.steps)
    assert again.max_drift == 0.0
    assert phone.world == before.world
    assert np.array_equal(phone.screen().pixels, before.screen().pixels)
    assert is_successful(one, phone)
    second = read_trace(tmp_path / "again")
    assert [(row.action, row.text, row.gesture) for row in second.steps] == [
        (row.action, row.text, row.gesture) for row in run.steps
    ]


def test_on_another_layout_it_stops_before_anything_is_touched(adb: Adb, tmp_path: Path) -> None:
    one = make_task(0, "test")
    with recorded(one, adb, tmp_path / "run") as (_, folder):
        run = read_trace(folder)
        other = another(run)
        start = other.screen().pixels
        with simulated_device(other, adb) as device:
            again = replay(run, device, 0.02, [TraceWriter(tmp_path / "again", run.info.goal)])
    assert again.outcome.status == "agent_error"
    assert again.outcome.steps == ()
    assert np.array_equal(other.screen().pixels, start)
    assert len(again.drifts) == 1
    assert again.max_drift > 0.02
    assert again.outcome.message.startswith("the screen at step 1 differs from the recorded one by ")
    assert "the tolerance is 2 %" in again.outcome.message
    assert read_trace(tmp_path / "again").info.message == again.outcome.message


def test_where_all_may_differ_it_goes_on(adb: Adb, tmp_path: Path) -> None:
    one = make_task(0, "test")
    with recorded(one, adb, tmp_path / "run") as (_, folder):
        run = read_trace(folder)
        with simulated_device(another(run), adb) as device:
            again = replay(run, device, 1.0)
    assert again.outcome.status == run.info.status
    assert len(again.drifts) == len(run.steps)


def saved(folder: Path, *script: object, limit: int = 9, device: Device | None = None) -> Path:
    run_episode(Scripted(*script), device or Shades(), "goal", limit, [TraceWriter(folder, "goal")])
    return folder


@pytest.mark.parametrize(
    ("script", "status", "gestures"),
    [
        ([TAP, GARBLED], "invalid_action", 1),  # the same words end it again
        ([TAP, SWIPE], "agent_error", 2),
        ([TAP, AgentError("nobody answers")], "agent_error", 1),
        ([TAP, RunStopped("denied", "no")], "denied", 1),
        ([TAP, Press("back"), Finish("impossible")], "impossible", 2),
    ],
)
def test_runs_that_ended_otherwise(script: list[object], status: str, gestures: int, tmp_path: Path) -> None:
    """Only what was done is done again; where the recording ends, so does the replay."""
    run = read_trace(saved(tmp_path / "run", *script, AgentError("over")))
    assert run.info.status == status
    device = Shades()
    again = replay(run, device, 0.0)
    assert len(device.done) == gestures
    done_again = {"invalid_action": "invalid_action", "impossible": "impossible"}
    assert again.outcome.status == done_again.get(status, "max_steps")


def test_what_the_phone_did_not_do_is_not_done_again(tmp_path: Path) -> None:
    """A policy denied the second gesture, or the phone was gone: the row is there, the gesture was none."""
    run = read_trace(saved(tmp_path / "run", TAP, Type("pay"), device=Shades(gestures=1)))
    assert run.info.status == "device_error"
    assert [row.executed for row in run.steps] == [True, False]
    device = Shades()
    assert replay(run, device, 0.0).outcome.status == "max_steps"
    assert [type(each).__name__ for each in device.done] == ["Touch"]


@pytest.mark.parametrize("script", [[AgentError("no")], [RunStopped("stopped", "no")]])
def test_nothing_to_replay(script: list[object], tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", *script))
    with pytest.raises(ValueError, match="no action was executed in the run in .*run"):
        ReplayAgent(run, 0.0)


@pytest.mark.parametrize("strict", [-0.1, 1.1, float("nan")])
def test_a_strictness_is_a_share(strict: float, tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, Finish("complete")))
    with pytest.raises(ValueError, match="tolerance: got .*expected a fraction"):
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
    assert more.status == "agent_error"
    assert "has 2 steps, and all of them were replayed" in more.message


def test_a_picture_that_went_away_is_told(tmp_path: Path) -> None:
    run = read_trace(saved(tmp_path / "run", TAP, TAP, Finish("complete")))
    run.image_path(run.steps[1]).write_bytes(b"")
    with pytest.raises(ValueError, match=r"001.png is damaged"):
        replay(run, Shades(), 0.0)


# -- drift ---------------------------------------------------------------------------------------------------


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
        result = measure_drift(2, recorded, live)
        assert result.fraction == pytest.approx(len(changed) / len(places))
    assert measure_drift(2, recorded, recorded).fraction == 0
    assert str(result) == "the screen at step 3 differs from the recorded one by 100 %"


def test_another_way_to_capture_is_no_drift() -> None:
    recorded = np.full((50, 40, 3), 100, np.uint8)
    assert measure_drift(0, recorded, recorded + 8).fraction == 0
    assert measure_drift(0, recorded, recorded - 9).fraction == 1
    assert (
        measure_drift(0, np.zeros_like(recorded), np.full_like(recorded, 255)).fraction == 1
    )  # no byte turns over


def test_turned_and_other_sizes_are_named() -> None:
    turned, larger = (
        measure_drift(0, noise(90, 40), noise(40, 90)),
        measure_drift(1, noise(90, 40), noise(91, 40)),
    )
    assert turned.fraction == larger.fraction == 1.0
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
    again = replay(run, device, 0.5)
    assert again.outcome.status == "agent_error"
    assert "is turned" in again.outcome.message
    assert device.done == []

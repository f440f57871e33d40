"""Live success: both halves of it, and the interval of its rate."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from uivlm.actions.action import Finish, Point, Tap
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import AgentError, Decision
from uivlm.devices.device import DeviceError
from uivlm.episode import Screen
from uivlm.live import Trial, run_live, summarise, wilson

TAP = Tap(Point(0.5, 0.5))
QUIET = Console(file=io.StringIO())


class Phone:
    """The goal is reached after two touches."""

    def __init__(self, dies: bool = False) -> None:
        self.touches = 0
        self.dies = dies

    def screen(self) -> Screen:
        return Screen(np.zeros((20, 10, 3), np.uint8))

    def perform(self, gesture) -> None:
        if self.dies:
            raise DeviceError("gone")
        self.touches += 1

    def reached(self) -> bool:
        return self.touches >= 2


class ByGoal:
    """The goal is its script: t taps, c completes, i says impossible, ? is no action, ! is an agent error."""

    def reset(self) -> None:
        pass

    def act(self, history) -> Decision:
        match history.goal[len(history.steps)]:
            case "t":
                return Decision(TAP, "tap")
            case "c":
                return Decision(Finish("complete"), "complete")
            case "i":
                return Decision(Finish("impossible"), "impossible")
            case "!":
                raise AgentError("no")
            case "^":
                raise KeyboardInterrupt
        return Decision(NotAnAction("?", "no"), "?")


def trial(goal: str, dies: bool = False, **options) -> Trial:
    phone = Phone(dies)
    return Trial(goal, phone, phone.reached, **options)


def test_success_needs_the_phone_and_the_agent():
    trials = [
        trial("ttc"),  # success
        trial("tc"),  # said complete, nothing is reached
        trial("tttttt"),  # reached, never finished
        trial("tti"),  # reached, the wrong finish
        trial("tt?"),
        trial("tt!"),
        trial("ttc", dies=True),
        Trial("i", Phone(), lambda: True, finish="impossible"),  # success: nothing was to be done
        Trial("c", Phone(), lambda: True, finish="impossible"),
    ]
    results = run_live(ByGoal(), trials, 5, console=QUIET)
    assert [(r.status, r.finished, r.reached, r.success, r.steps) for r in results] == [
        ("complete", True, True, True, 3),
        ("complete", True, False, False, 2),
        ("limit", False, True, False, 5),
        ("impossible", False, True, False, 3),
        ("not an action", False, True, False, 2),
        ("agent error", False, True, False, 2),
        ("device error", False, False, False, 0),
        ("impossible", True, True, True, 1),
        ("complete", False, True, False, 1),
    ]
    summary = summarise(results)
    assert (summary.num_trials, summary.num_successes, summary.num_finished, summary.num_reached) == (
        9,
        2,
        3,
        7,
    )
    assert summary.rate == 2 / 9
    assert math.isclose(summary.mean_steps, 19 / 9)
    assert summary.statuses == {
        "complete": 3,
        "impossible": 2,
        "limit": 1,
        "not an action": 1,
        "agent error": 1,
        "device error": 1,
    }
    assert (summary.low, summary.high) == wilson(2, 9)


def test_trials_may_come_one_by_one_and_leave_traces(tmp_path):
    made = []

    def trials():
        for i in range(3):
            assert len(made) == i
            made.append(i)
            yield trial("ttc")

    results = run_live(ByGoal(), trials(), 5, total=3, traces=tmp_path / "live", console=QUIET)
    assert [result.success for result in results] == [True] * 3
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == ["0000", "0001", "0002"]
    assert all((path / "index.html").is_file() for path in (tmp_path / "live").iterdir())


def test_an_interrupt_stops_all_trials():
    later = trial("ttc")
    with pytest.raises(KeyboardInterrupt):
        run_live(ByGoal(), [trial("t^"), later], 5, console=QUIET)
    assert later.device.touches == 0


# Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
@pytest.mark.parametrize(
    ("wins", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(wins, trials, low, high):
    assert wilson(wins, trials) == pytest.approx((low, high), abs=5e-5)
    assert wilson(trials - wins, trials) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_nothing_to_sum_up():
    with pytest.raises(ValueError, match="no trial"):
        summarise([])
    with pytest.raises(ValueError, match="3 successes of 2 trials"):
        wilson(3, 2)

"""Online success: both of its conditions, and the interval of its rate."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from uivlm.actions.action import Finish, InvalidAction, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.agents.agent import AgentError
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Screen
from uivlm.evaluation.intervals import mean_interval, wilson_interval
from uivlm.evaluation.online import Trial, run_trials, summarize_trials

TAP = Tap(Point(0.5, 0.5))
QUIET = Console(file=io.StringIO())


class Phone:
    """A phone whose goal is reached after two touches."""

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


class GoalScriptAgent:
    """The goal is its script: t tap, c complete, i impossible, ? invalid, ! agent error, ^ Ctrl-C."""

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
        return Decision(InvalidAction("?", "no"), "?")


def trial(goal: str, dies: bool = False, **options) -> Trial:
    phone = Phone(dies)
    return Trial(goal, phone, phone.reached, **options)


def test_success_needs_the_phone_and_the_agent():
    trials = [
        trial("ttc"),  # success
        trial("tc"),  # finished, not reached
        trial("tttttt"),  # reached, never finished
        trial("tti"),  # reached, wrong finish
        trial("tt?"),
        trial("tt!"),
        trial("ttc", dies=True),
        Trial("i", Phone(), lambda: True, expected_status="impossible"),  # success: the goal is impossible
        Trial("c", Phone(), lambda: True, expected_status="impossible"),
    ]
    results = run_trials(GoalScriptAgent(), trials, 5, console=QUIET)
    assert [(r.status, r.finished_correctly, r.goal_reached, r.success, r.num_steps) for r in results] == [
        ("complete", True, True, True, 3),
        ("complete", True, False, False, 2),
        ("max_steps", False, True, False, 5),
        ("impossible", False, True, False, 3),
        ("invalid_action", False, True, False, 2),
        ("agent_error", False, True, False, 2),
        ("device_error", False, False, False, 0),
        ("impossible", True, True, True, 1),
        ("complete", False, True, False, 1),
    ]
    summary = summarize_trials(results)
    assert (summary.num_trials, summary.num_successes) == (9, 2)
    assert (summary.num_finished_correctly, summary.num_goal_reached) == (3, 7)
    assert summary.success_rate == 2 / 9
    assert math.isclose(summary.mean_steps, 19 / 9)
    assert summary.status_counts == {
        "complete": 3,
        "impossible": 2,
        "max_steps": 1,
        "invalid_action": 1,
        "agent_error": 1,
        "device_error": 1,
    }
    assert (summary.success_rate_low, summary.success_rate_high) == wilson_interval(2, 9)


def test_trials_may_be_lazy_and_write_traces(tmp_path):
    created = []

    def trials():
        for i in range(3):
            assert len(created) == i
            created.append(i)
            yield trial("ttc")

    results = run_trials(
        GoalScriptAgent(), trials(), 5, num_trials=3, trace_dir=tmp_path / "live", console=QUIET
    )
    assert [result.success for result in results] == [True] * 3
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == ["0000", "0001", "0002"]
    assert all((path / "index.html").is_file() for path in (tmp_path / "live").iterdir())


def test_an_interrupt_stops_all_trials():
    second = trial("ttc")
    with pytest.raises(KeyboardInterrupt):
        run_trials(GoalScriptAgent(), [trial("t^"), second], 5, console=QUIET)
    assert second.device.touches == 0


def test_the_interval_of_a_mean_of_rates():
    """Of n equal rates the half width is that of one over the root of n; of one rate its own interval."""
    assert mean_interval([0.5], [(0.2, 0.9)]) == pytest.approx((0.2, 0.9))
    assert mean_interval([0.5] * 4, [(0.2, 0.9)] * 4) == pytest.approx((0.5 - 0.3 / 2, 0.5 + 0.4 / 2))


# Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_is_the_published_one(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match="no trial results"):
        summarize_trials([])
    with pytest.raises(ValueError, match="got 3 successes in 2 trials"):
        wilson_interval(3, 2)

"""Confidence, repetition, time and stop requests end a run or ask a person."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.guarded_run import DONE, FREE, TAP, Phone, Says, ScriptedSupervisor, run
from uivlm.actions.action import Point, Tap
from uivlm.actions.decision import Decision
from uivlm.devices.device import is_black
from uivlm.episodes.episode import History
from uivlm.rollout.loop import EXIT_STATUS, run_episode
from uivlm.safety.guard import Guard
from uivlm.safety.policy import PERMISSIVE_POLICY, Policy
from uivlm.safety.secrets import load_secrets
from uivlm.safety.supervisor import ConfirmationRequest, NoSupervisor


@pytest.mark.parametrize(
    ("sure", "kind", "ending"),
    [
        (0.9, None, "complete"),
        (0.1, None, "denied"),
        (0.01, 0.9, "complete"),
        (0.9, 0.1, "denied"),
        (None, None, "complete"),
    ],
)
def test_an_agent_in_doubt_is_asked_for(sure: float | None, kind: float | None, ending: str) -> None:
    policy = Policy(confirm_apps=(), confirm_labels=(), min_confidence=0.5)
    assert run(Phone(), policy, Says(TAP, DONE, sure=sure, kind=kind)).status == ending


def test_the_same_on_the_same_screen_ends() -> None:
    phone = Phone()
    phone.changes = False
    wobbly = [Tap(Point(0.5 + i / 1000, 0.5)) for i in range(10)]
    outcome = run(phone, FREE, Says(*wobbly))
    assert (outcome.status, len(phone.gestures)) == ("stuck", 3)
    phone = Phone()
    assert run(phone, FREE, Says(TAP), max_steps=8).status == "max_steps", (
        "another screen each time is no repetition"
    )


def test_time_is_up_before_the_next_gesture() -> None:
    times = iter(range(0, 1000, 5))
    phone = Phone()
    policy = Policy(confirm_apps=(), confirm_labels=(), max_seconds=14)
    guard = Guard(phone, policy, load_secrets(policy), NoSupervisor(), lambda: next(times))
    assert run_episode(Says(TAP), guard, "go", 10).status == "timeout"
    assert len(phone.gestures) <= 1


@pytest.mark.parametrize("when", range(4))
def test_a_person_stops_it_within_a_step(when: int) -> None:
    phone = Phone()
    outcome = run(
        phone, FREE, Says(TAP), ScriptedSupervisor("yes", stops=lambda: len(phone.gestures) >= when)
    )
    assert (outcome.status, len(phone.gestures)) == ("stopped", when)


def test_a_stop_while_the_agent_thinks_stops_its_gesture(tmp_path: Path) -> None:
    stop, phone = tmp_path / "stop", Phone()

    class Slow(Says):
        def act(self, history: History) -> Decision:
            if len(history.steps) == 2:
                stop.touch()
            return super().act(history)

    outcome = run(phone, Policy(confirm_apps=(), confirm_labels=(), stop_file=str(stop)), Slow(TAP))
    assert (outcome.status, len(phone.gestures)) == ("stopped", 2)


def test_a_stop_while_a_person_is_asked_stops_the_gesture() -> None:
    phone, asked = Phone(["com.android.settings"]), list[ConfirmationRequest]()

    class Leaves(ScriptedSupervisor):
        def answer(self, request: ConfirmationRequest) -> Any:
            asked.append(request)
            return "yes"

    outcome = run(phone, Policy(), Says(TAP), Leaves("yes", stops=lambda: bool(asked)))
    assert (outcome.status, phone.gestures) == ("stopped", [])


def test_a_black_screen_is_handed_over() -> None:
    phone = Phone()
    phone.black = True
    agent = Says(TAP)
    assert run(phone, PERMISSIVE_POLICY, agent).status == "needs_human"
    assert (phone.gestures, agent.histories) == ([], []), "nobody acts on what nobody sees"
    assert is_black(phone.screen())


def test_a_person_helps_past_a_black_screen() -> None:
    phone = Phone()
    phone.black = True

    class Unlocks(ScriptedSupervisor):
        def answer(self, request: ConfirmationRequest) -> Any:
            phone.black = False
            return super().answer(request)

    assert run(phone, FREE, Says(DONE), Unlocks("yes")).status == "complete"


@pytest.mark.parametrize("ending", ["stopped", "denied", "stuck", "timeout", "needs_human"])
def test_no_other_end_reports_success(ending: Any) -> None:
    assert EXIT_STATUS[ending] not in (0, 2)
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)

"""A policy on the simulated phone, through the real adb."""

import re
from typing import Any

import pytest

from tests.helpers.guarded_run import Says, ScriptedSupervisor, run
from uivlm.actions.action import Finish, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.cli.devices import simulated_device
from uivlm.devices.adb.server import private_server
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.tasks import is_successful, make_task, new_phone
from uivlm.episodes.episode import History, Screen
from uivlm.rollout.loop import Outcome
from uivlm.safety.policy import Policy


def solved(kind: str, policy: Policy, person: Any = None) -> tuple[Outcome, bool]:
    """A task of this kind done by its expert through adb and the guard: how it ended, and whether the phone's
    state is the wished one."""
    one = next(
        result
        for i in range(1000)
        if (result := make_task(i, "test")).template_name == kind and result.expected_status == "complete"
    )
    phone = new_phone(one)
    actions = [step.action for step in record_demonstration(one).steps]
    with private_server() as adb, simulated_device(phone, adb) as device:
        outcome = run(device, policy, Says(*actions), person, one.goal, max_steps=30)  # type: ignore[arg-type]
    return outcome, is_successful(one, phone)


@pytest.mark.parametrize("kind", ["message", "note delete", "checkout"])
def test_a_real_deed_needs_a_person(kind: str) -> None:
    outcome, reached = solved(kind, Policy())
    assert (outcome.status, reached) == ("denied", False), outcome.message
    assert "the touched element says" in outcome.message
    person = ScriptedSupervisor("yes")
    outcome, reached = solved(kind, Policy(), person)
    assert (outcome.status, reached) == ("complete", True), outcome.message
    assert person.requests


def test_an_app_that_comes_to_the_front_while_the_agent_thinks() -> None:
    phone = SimPhone(layout=1)

    class Slow(Says):
        def act(self, history: History) -> Decision:
            if not self.histories:
                phone.launch("Messages")
            return super().act(history)

    home = Screen(phone.screen().pixels)
    agent = Slow(Tap(Point(0.5, 0.5)), Finish("complete"))
    with private_server() as adb, simulated_device(phone, adb) as device:
        outcome = run(device, Policy(unknown="allow"), agent)  # type: ignore[arg-type]
    assert (outcome.status, [step.action for step in outcome.steps]) == ("complete", [Finish("complete")])
    first, second = agent.histories
    assert (first.screen.pixels == home.pixels).all()
    assert (second.screen.pixels == phone.screen().pixels).all()
    assert phone.state.current.app == "Messages"


def test_a_real_app_is_left_alone() -> None:
    outcome, reached = solved("message", Policy(deny_apps=("sim.messages",), confirm_labels=()))
    assert (outcome.status, reached) == ("denied", False)
    assert re.search("does not allow sim.messages", outcome.message)
    outcome, reached = solved("message", Policy(allow_apps=("sim.*",), confirm_labels=()))
    assert (outcome.status, reached) == ("complete", True), outcome.message

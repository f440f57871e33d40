"""What a policy denies does not reach the phone, whatever the agent says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.helpers.guarded_run import DONE, FREE, PAGE, TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Gesture, Touch
from uivlm.episodes.episode import Element, Screen, Step
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.guard import Guard
from uivlm.safety.policy import Policy
from uivlm.safety.secrets import load_secrets
from uivlm.safety.supervisor import ConfirmationRequest, NoSupervisor, TerminalSupervisor

# --- apps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "deny", "app"),
    [
        ((), ("app.*",), "app.one"),
        (("app.two",), (), "app.one"),
        ((), (), ""),
        (("app.*",), ("app.one",), "app.one"),
        (("app.one",), (), "app.one.evil"),
        (("app.two",), (), ""),
    ],
)
def test_a_denied_app_gets_no_gesture(allow: tuple[str, ...], deny: tuple[str, ...], app: str) -> None:
    phone = Phone([app])
    policy = Policy(allow_apps=allow, deny_apps=deny, confirm_labels=())
    outcome = run(phone, policy, Says(TAP, DONE))
    assert outcome.status == "denied"
    assert (phone.gestures, outcome.steps) == ([], ())


def test_a_gesture_into_a_denied_app_is_the_last_one() -> None:
    phone = Phone(["app.one", "com.bank.app"])
    outcome = run(
        phone, Policy(deny_apps=("com.bank.*",), confirm_apps=(), confirm_labels=()), Says(TAP, TAP, DONE)
    )
    assert outcome.status == "denied"
    assert re.search("after the gesture.*com.bank.app", outcome.message)
    assert len(phone.gestures) == len(outcome.steps) == 1, "what was done is in the history"


def test_an_allowed_app_goes_on() -> None:
    phone = Phone(["app.one", "app.two"])
    assert (
        run(
            phone, Policy(allow_apps=("app.*",), confirm_apps=(), confirm_labels=()), Says(TAP, TAP, DONE)
        ).status
        == "complete"
    )
    assert len(phone.gestures) == 2


def test_each_gesture_in_a_grave_app_is_asked_for() -> None:
    phone, person = Phone(["com.android.settings"]), ScriptedSupervisor("yes")
    swipe = Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
    assert run(phone, Policy(), Says(swipe, Type("x"), Press("back"), DONE), person).status == "complete"
    assert len(person.requests) == 3
    assert all("com.android.settings" in request.reasons[0] for request in person.requests)
    assert run(Phone(["com.android.settings"]), Policy(), Says(swipe, DONE)).status == "denied"


@pytest.mark.parametrize(
    "app",
    [
        "com.android.systemui", "com.google.android.gms", "com.android.phone", "com.android.mms",
        "com.sec.android.app.samsungapps", "com.samsung.android.spay", "com.miui.packageinstaller",
        "com.lbe.security.miui", "com.huawei.appmarket", "com.hihonor.appmarket", "com.oplus.appdetail",
        "com.heytap.market", "com.bbk.appstore", "com.vivo.permissionmanager", "com.android.stk2",
    ],
)  # fmt: skip
def test_sensitive_apps_of_the_large_makers_need_a_person(app: str) -> None:
    outcome = run(Phone([app]), Policy(), Says(TAP, DONE))
    assert (outcome.status, app in outcome.message) == ("denied", True)


def test_a_phone_that_tells_nothing_cannot_keep_rules() -> None:
    class Mute:
        def screen(self) -> Screen:
            return Phone().screen()

        def perform(self, gesture: Gesture) -> None:
            raise AssertionError("no gesture may arrive")

    with pytest.raises(ValueError, match="Mute cannot name its app"):
        Guard(Mute(), Policy(), load_secrets(Policy()), NoSupervisor())
    Guard(Mute(), FREE, load_secrets(FREE), NoSupervisor())


# --- deeds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["Pay", "Send now", "DELETE", "Call Anna", "Install", "Buy", "Place order", "Check out"]
)
def test_a_deed_is_asked_for_and_denied_when_nobody_answers(word: str) -> None:
    phone = Phone(elements=[Element(0, 0, 1, 1, "", "Frame"), button(word)])
    outcome = run(phone, Policy(), Says(TAP, DONE))
    assert outcome.status == "denied"
    assert word in outcome.message
    assert phone.gestures == []
    person = ScriptedSupervisor("yes")
    assert run(phone, Policy(), Says(TAP, DONE), person).status == "complete"
    assert len(person.requests) == 1
    assert phone.gestures == [Touch(((50, 100),), 60)]


def test_what_is_no_deed_is_not_asked_for() -> None:
    for label in ("Sender settings page of the app that sends", "Recall", "Payload", "Callback", "Alarm"):
        assert run(Phone(elements=[button(label)]), Policy(), Says(TAP, DONE)).status == "complete", label


def test_a_label_elsewhere_matters_to_enter_alone() -> None:
    phone = Phone(elements=[PAGE, button("Send", y=0.9)])
    assert run(phone, Policy(), Says(TAP, DONE)).status == "complete"
    outcome = run(phone, Policy(), Says(Press("enter"), DONE))
    assert outcome.status == "denied"
    assert run(phone, Policy(), Says(Press("back"), Type("Send"), DONE)).status == "complete"


def test_what_cannot_be_told_is_asked_for() -> None:
    phone, person = Phone(elements=None), ScriptedSupervisor("yes")
    assert run(phone, Policy(), Says(TAP, DONE)).status == "denied"
    assert run(phone, Policy(), Says(TAP, DONE), person).status == "complete"
    assert person.requests[0].reasons == ("the touched element is unknown",)


# --- people ---


def test_what_a_person_did_instead_is_history_and_trace(tmp_path: Path) -> None:
    phone, mine = Phone(), Tap(Point(0.1, 0.9))
    taken = (Step(phone.screen(), mine), Step(phone.screen(), Press("back")))
    agent = Says(TAP, DONE)
    outcome = run(
        phone, FREE, agent, ScriptedSupervisor(taken, "yes"), trace=TraceWriter(tmp_path / "t", "go")
    )
    assert outcome.status == "complete"
    assert [step.action for step in outcome.steps] == [mine, Press("back"), DONE]
    assert [step.action for step in agent.histories[-1].steps] == [mine, Press("back")]
    assert phone.gestures == [], "the proposal was not done"
    rows = [json.loads(line) for line in (tmp_path / "t" / "trace.jsonl").read_text().splitlines()]
    assert [row["actor"] for row in rows] == ["human", "human", "agent"]
    assert rows[0]["proposed"]["text"] == f"words of {TAP}"
    assert [row["t"] for row in rows] == [0, 1, 2]


def test_a_person_who_always_takes_over_is_not_endless() -> None:
    assert run(Phone(), FREE, Says(TAP), ScriptedSupervisor(()), max_steps=7).status == "max_steps"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("yes", "yes"), ("no", "no"), ("", "no"), ("stop", "stop"), ("mine", ()), ("y\nno", "no")],
)
def test_the_terminal_takes_only_a_clear_yes(
    typed: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(typed.split("\n"))
    monkeypatch.setattr("builtins.input", lambda *_: next(answers))
    console = Console(quiet=True)
    assert (
        TerminalSupervisor(console).answer(ConfirmationRequest(Phone().screen(), None, None, ("why",)))
        == answer
    )
    assert TerminalSupervisor(console).answer(ConfirmationRequest(Phone().screen(), None, None, ())) == "yes"


def test_what_was_confirmed_is_not_done_on_another_screen() -> None:
    """While a person thinks, the phone may move on: a call comes in, a dialog opens."""
    phone = Phone(elements=[button("Send")])

    class Slow(ScriptedSupervisor):
        def answer(self, request: ConfirmationRequest) -> Any:
            if len(self.requests) == 0:
                phone.pixels = phone.pixels[::-1].copy()
            return super().answer(request)

    person, agent = Slow("yes"), Says(TAP, TAP, DONE)
    assert run(phone, Policy(), agent, person).status == "complete"
    assert len(person.requests) == 2, "it looked anew, and asked anew"
    assert len(phone.gestures) == 1
    assert (agent.histories[1].screen.pixels == person.requests[1].screen.pixels).all()


def test_an_app_that_came_to_the_front_meanwhile_is_left_alone() -> None:
    phone = Phone(["app.one"], elements=[button("Send")])

    class Slow(ScriptedSupervisor):
        def answer(self, request: ConfirmationRequest) -> Any:
            phone.apps[0] = "com.bank.app"
            return super().answer(request)

    outcome = run(phone, Policy(deny_apps=("com.bank.*",)), Says(TAP, DONE), Slow("yes"))
    assert (outcome.status, phone.gestures) == ("denied", [])

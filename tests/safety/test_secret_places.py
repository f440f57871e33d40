"""A secret is typed only in the apps and on the hosts that the policy names, whoever types the reference."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.console_client import Glass, Scripted, at_console
from tests.helpers.guarded_run import DONE, TAP, Phone, Says, run
from uivlm.actions.action import Type
from uivlm.actions.gesture import TypeText
from uivlm.rollout.replay import replay
from uivlm.rollout.trace_reader import read_trace
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.guard import Guard
from uivlm.safety.policy import Policy, SecretRule
from uivlm.safety.secrets import load_secrets
from uivlm.safety.supervisor import ConfirmationRequest, NoSupervisor

PIN = "4711-hunter2"
BANK = SecretRule("TEST_PIN", apps=("com.bank.*",))
POLICY = Policy(confirm_apps=(), confirm_labels=(), secrets={"pin": BANK})


@pytest.fixture(autouse=True)
def pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)


@pytest.mark.parametrize("app", ["com.evil.phish", "com.banking", "", "xcom.bank.app"])
def test_a_secret_is_typed_in_its_apps_only(app: str) -> None:
    phone = Phone(apps=("com.bank.app",))
    assert run(phone, POLICY, Says(Type("{secret:pin}"), DONE)).status == "complete"
    assert phone.gestures == [TypeText(PIN)]
    phone = Phone(apps=(app,))
    outcome = run(phone, POLICY, Says(Type("http://evil.example/?p={secret:pin}"), DONE))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert f"{{secret:pin}} in {app or 'an unknown app'}: secrets.pin is for com.bank.*" in outcome.message
    assert run(phone, POLICY, Says(Type("no secret"), DONE)).status == "complete"


def test_the_app_is_looked_up_after_every_confirmation() -> None:
    """The policy itself has no rule on apps, so only the secret's own check can stop it."""
    phone = Phone(apps=("com.bank.app",))

    class SlowPerson(NoSupervisor):
        def answer(self, request: ConfirmationRequest) -> Any:
            phone.apps = ["com.evil.phish"]  # it comes to the front while the person reads
            return "yes"

    outcome = run(phone, POLICY, Says(Type("{secret:pin}"), DONE), SlowPerson())
    assert (outcome.status, phone.gestures) == ("denied", [])


def test_a_replayed_reference_is_bound_too(tmp_path: Path) -> None:
    """A stranger's trace cannot get a secret."""
    trace = TraceWriter(tmp_path / "t", "go")
    theirs = replace(POLICY, secrets={"pin": SecretRule("TEST_PIN", apps=("app.one",))})
    assert run(Phone(), theirs, Says(TAP, Type("{secret:pin}"), DONE), trace=trace).status == "complete"
    phone, secrets = Phone(apps=("com.evil.phish",)), load_secrets(POLICY)
    guard = Guard(phone, POLICY, secrets, NoSupervisor())
    outcome = replay(read_trace(tmp_path / "t"), guard, 1.0).outcome
    assert (outcome.status, len(phone.gestures)) == ("denied", 1)


def test_a_persons_own_reference_is_bound_too(tmp_path: Path) -> None:
    glass = Glass()
    with at_console(Scripted(), glass, tmp_path, POLICY) as person:
        person.does("record", goal="g")
        answer = person.post("type", screen_id=person.view.screen_id, text="{secret:pin}")
        assert answer.status_code == 422
        assert "does not allow {secret:pin} in com.glass" in answer.text
    assert glass.done == []


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("shop.example", True),
        ("pay.shop.example", True),
        ("a.pay.shop.example", True),
        ("evilshop.example", False),
        ("shop.example.evil.org", False),
        ("evil.org", False),
        ("", False),
    ],
)
def test_hosts_of_web_pages(host: str, allowed: bool) -> None:
    rule = SecretRule("X", hosts=("shop.example", "*.shop.example"))
    assert rule.allows(host) == allowed

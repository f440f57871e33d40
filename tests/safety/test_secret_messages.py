"""No message, page, event or log contains a secret: errors, reasons, truncated texts, crashes."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.console_client import Glass, Scripted, at_console
from tests.helpers.guarded_run import TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import InvalidAction, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.cli.devices import run_goal
from uivlm.console.state import state_to_json
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import History
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.policy import Policy, SecretRule
from uivlm.safety.secrets import load_secrets

PIN = "Hunter2-XyZ"
POLICY = Policy(
    confirm_apps=(),
    secrets={"pin": SecretRule("TEST_PIN", apps=("app.one", "com.glass"))},
    redact=(r"\d{4} \d{4} \d{4} \d{4}",),
)
CARD = "4111 1111 1111 1111"


@pytest.fixture(autouse=True)
def pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)


class Refusing(Phone):
    """Its errors quote what it was to type."""

    def perform(self, gesture: Gesture) -> None:
        raise DeviceError(f"cannot perform {gesture!r}")


class Speaks(Says):
    """Its output is not an action."""

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        text = f"{'x' * 194}{PIN}"  # a message has the first 200 letters
        return Decision(InvalidAction(text, f"unknown: {PIN} {CARD}"), text)


def written(folder: Path) -> str:
    return "".join(path.read_text("latin-1") for path in folder.rglob("*") if path.is_file())


def has_secret(text: str) -> bool:
    return any(part.casefold() in text.casefold() for part in (PIN, PIN[:6], CARD))


def test_errors_of_the_phone_are_masked(tmp_path: Path) -> None:
    outcome = run(Refusing(), POLICY, Says(Type("{secret:pin}")), trace=TraceWriter(tmp_path / "t", "go"))
    assert outcome.status == "device_error"
    assert "{secret:pin}" in outcome.message
    assert not has_secret(outcome.message + written(tmp_path))


def test_a_text_is_masked_before_it_is_cut(tmp_path: Path) -> None:
    outcome = run(Phone(), POLICY, Speaks(), trace=TraceWriter(tmp_path / "t", "go"))
    assert outcome.status == "invalid_action"
    assert "x{secr" in outcome.message
    assert "unknown: {secret:pin} [redacted]" in outcome.message
    assert not has_secret(outcome.message + written(tmp_path))


def test_reasons_are_masked(tmp_path: Path) -> None:
    phone = Phone(apps=(f"{PIN.lower()}.example",), elements=[button(f"Pay with {CARD}")])
    person = ScriptedSupervisor("no")
    policy = replace(POLICY, confirm_apps=("*",))
    outcome = run(phone, policy, Says(TAP), person, trace=TraceWriter(tmp_path / "t", "go"))
    assert outcome.status == "denied"
    assert "Pay with [redacted]" in "".join(person.requests[0].reasons)
    assert "each gesture in {secret:pin}.example" in "".join(person.requests[0].reasons)
    assert not has_secret(f"{person.requests} {outcome.message} {written(tmp_path)}")


def test_the_command_line_prints_no_secret_and_the_model_gets_none(tmp_path: Path) -> None:
    agent, lines = Says(Type("{secret:pin}")), list[str]()
    secrets = load_secrets(POLICY)
    goal = f"type {PIN} for {CARD}"
    outcome = run_goal(agent, Refusing(), goal, 5, tmp_path / "t", POLICY, secrets, lines.append)
    assert outcome.status == "device_error"
    assert agent.histories[0].goal == "type {secret:pin} for [redacted]"
    assert not has_secret("".join(lines) + outcome.message + written(tmp_path))


def test_neither_the_console_nor_its_log_has_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Phone(Glass):
        def perform(self, gesture: Gesture) -> None:
            raise DeviceError(f"cannot perform {gesture!r}")

    agent = Scripted(RuntimeError(f"no answer for {PIN} {CARD}"))
    with caplog.at_level(logging.DEBUG), at_console(agent, Phone(), tmp_path, POLICY) as person:
        person.does("start", goal=f"pay with {CARD}", step_mode=False)
        person.sees("idle")
        assert person.view.status == "crashed"
        shown = state_to_json(person.view)
        person.does("record", goal="g")
        answer = person.post("type", screen_id=person.view.screen_id, text=f"{{secret:pin}} {CARD}")
        assert answer.status_code != 204
        shown += state_to_json(person.view) + answer.text
    assert "the run has crashed" in caplog.text
    assert "no answer for {secret:pin} [redacted]" in caplog.text
    assert not has_secret(shown + caplog.text + written(tmp_path))

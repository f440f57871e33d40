"""Only the phone gets a secret: neither model, trace nor page sees it."""

from pathlib import Path

import pytest

from tests.helpers.guarded_run import DONE, TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import InvalidAction, Type
from uivlm.actions.gesture import TypeText
from uivlm.episodes.episode import Element
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.policy import Policy, SecretRule
from uivlm.safety.secrets import SecretError, load_secrets

PIN = "4711-hunter2"
PIN_RULE = {"pin": SecretRule("TEST_PIN", apps=("app.one",))}
SECRETIVE = Policy(confirm_apps=(), confirm_labels=(), secrets=PIN_RULE, redact=(r"\b\d{4} \d{4}\b",))


def test_a_secret_reaches_the_phone_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    shown = Element(0.5, 0.2, 0.1, 0.6, f"typed: {PIN}", "Text")
    phone = Phone(elements=[shown])
    agent = Says(TAP, Type("{secret:pin}"), TAP, DONE)
    outcome = run(
        phone,
        SECRETIVE,
        agent,
        goal="type {secret:pin}",
        trace=TraceWriter(tmp_path / "t", "type {secret:pin}"),
    )
    assert outcome.status == "complete"
    assert phone.gestures[1] == TypeText(PIN)
    for history in agent.histories:
        box = history.screen.pixels[100:120, 20:80]
        assert (box == box[0, 0]).all(), "where it stands the screen is covered"
        assert (history.screen.pixels[150:180] == phone.pixels[150:180]).all(), "and nowhere else"
    for file in (tmp_path / "t").rglob("*.*"):
        assert PIN.encode() not in file.read_bytes(), f"{file.name} holds the secret"


def test_an_agent_that_says_the_secret_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    script = f"{PIN} and 1234 5678"
    nonsense = InvalidAction(script, f"no action: {script}")
    for i, action in enumerate((Type(script), nonsense)):
        run(Phone(), SECRETIVE, Says(action, DONE), trace=TraceWriter(tmp_path / str(i), "go"))  # type: ignore[arg-type]
        for file in (tmp_path / str(i)).glob("*.*"):
            assert PIN.encode() not in file.read_bytes()
            assert b"1234 5678" not in file.read_bytes()
        assert "{secret:pin} and [redacted]" in (tmp_path / str(i) / "trace.jsonl").read_text()


def test_a_secret_that_nobody_named_is_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    phone = Phone()
    outcome = run(phone, SECRETIVE, Says(Type("{secret:other}"), DONE))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert "other" in outcome.message


def test_secrets_need_a_phone_that_tells_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    agent = Says(TAP)
    assert run(Phone(elements=None), SECRETIVE, agent).status == "needs_human"
    assert agent.histories == []


def test_a_variable_that_is_not_set_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_PIN", raising=False)
    with pytest.raises(SecretError, match="secrets.pin: .*TEST_PIN is not set"):
        load_secrets(SECRETIVE)


def test_how_often_the_phone_is_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """One UI dump a gesture and one a covered screen; once more after an answer or a preview."""
    monkeypatch.setenv("TEST_PIN", PIN)

    class Counting(Phone):
        def __init__(self) -> None:
            super().__init__(elements=[button("Alarm")])
            self.num_dumps = self.num_lookups = 0

        def elements(self) -> tuple[Element, ...] | None:
            self.num_dumps += 1
            return super().elements()

        def foreground(self) -> str:
            self.num_lookups += 1
            return super().foreground()

    def inspections(policy: Policy, person: ScriptedSupervisor | None = None) -> tuple[int, int]:
        """Of one gesture and two screens."""
        phone = Counting()
        assert run(phone, policy, Says(TAP, DONE), person).status == "complete"
        return phone.num_dumps, phone.num_lookups

    assert inspections(Policy()) == (1, 4), "the app: with each screen, before and after the gesture"
    assert inspections(Policy(recheck=False, secrets=PIN_RULE)) == (3, 4)
    assert inspections(Policy(secrets=PIN_RULE)) == (4, 4), "the screen is compared, covered"
    person = ScriptedSupervisor("yes")
    assert inspections(Policy(confirm_apps=("app.*",)), person) == (2, 5)
    person.previews_gestures = True
    assert inspections(Policy(), person) == (2, 5)


def test_a_person_is_asked_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    policy = Policy(confirm_apps=("app.*",), secrets=PIN_RULE)
    person = ScriptedSupervisor("yes")
    phone = Phone(elements=[button(f"Send {PIN}")])
    assert run(phone, policy, Says(Type(PIN), TAP, DONE), person).status == "complete"
    assert phone.gestures[0] == TypeText(PIN)
    assert PIN not in "".join(repr((ask.decision, ask.gesture, ask.reasons)) for ask in person.requests)

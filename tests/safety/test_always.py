"""What a person allowed for good is kept in the policy file, and is not asked for again."""

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.helpers.guarded_run import DONE, PAGE, TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import Press, Type
from uivlm.safety.always import Exemption
from uivlm.safety.policy import Policy, allow_always, read_policy
from uivlm.safety.supervisor import ConfirmationRequest, TerminalSupervisor

TEXT = '# mine\n[safety]\nmax_steps = 7  # few\n[secrets]\npin = {env = "TEST_PIN", apps = ["app.one"]}'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEST_PIN", "hunter2")
    path = tmp_path / "policy.toml"
    path.write_text(TEXT)
    path.chmod(0o640)
    return path


def test_always_is_asked_for_once(file: Path) -> None:
    person = ScriptedSupervisor("always", "yes")
    phone = Phone(elements=[PAGE, button("Send")])
    assert run(phone, read_policy(file), Says(TAP, TAP, DONE), person).status == "complete"
    assert [bool(request.reasons) for request in person.requests] == [True, False]
    assert len(phone.gestures) == 2
    assert file.read_text() == f'{TEXT}\n\n[[always]]\napp = "app.one"\nlabel = "Send"\n'
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["policy.toml"]

    policy = read_policy(file)
    assert run(phone, policy, Says(TAP, DONE)).status == "complete", "nor in the next run"
    for other in (
        Phone(["app.two"], elements=[PAGE, button("Send")]),
        Phone(elements=[PAGE, button("Send all")]),
    ):
        assert run(other, policy, Says(TAP, DONE)).status == "denied"
    assert run(phone, policy, Says(Press("enter"), DONE)).status == "complete", "the label counts"


def test_a_kind_of_gesture_is_allowed_in_one_app(file: Path) -> None:
    file.write_text('[safety]\nconfirm_apps = ["app.*"]\nprofile = "strict"\n')
    phone, person = Phone(elements=[PAGE, button("")]), ScriptedSupervisor("always", "yes")
    assert run(phone, read_policy(file), Says(TAP, TAP, DONE), person).status == "complete"
    request = person.requests[0]
    assert not any(later.reasons for later in person.requests[1:])
    assert len(request.reasons) == 3, "the app, the profile, the silent button"
    assert request.exemptions == (Exemption("app.one", gesture="tap"),)
    assert request.describe_exemptions() == "each tap in app.one"
    assert run(phone, read_policy(file), Says(Press("home"), DONE)).status == "denied"
    sends = Phone(elements=[PAGE, button("Send")])
    assert run(sends, read_policy(file), Says(TAP, DONE)).status == "denied", "its label is asked for"


@pytest.mark.parametrize(
    ("action", "phone", "settings"),
    [
        (TAP, Phone([""], elements=[PAGE, button("Send")]), ""),  # nobody knows where
        (TAP, Phone(elements=[PAGE, button("Send hunter2")]), ""),  # the file would hold the secret
        (Type("{secret:pin}"), Phone(), 'profile = "strict"'),
        (TAP, Phone(elements=[PAGE, button("Send")]), "min_confidence = 0.9"),  # one reason has no exception
    ],
)
def test_what_is_asked_for_each_time(action: Any, phone: Phone, settings: str, file: Path) -> None:
    file.write_text(f'[safety]\n{settings}\n[secrets]\npin = {{env = "TEST_PIN", apps = ["app.one"]}}\n')
    person = ScriptedSupervisor("yes")
    agent = Says(action, action, DONE, sure=0.1)
    assert run(phone, read_policy(file), agent, person).status == "complete"
    assert len(person.requests) == 2
    assert all(request.reasons and not request.exemptions for request in person.requests)


def test_a_denied_app_has_no_exception(file: Path) -> None:
    file.write_text(
        '[safety]\ndeny_apps = ["app.one"]\n[[always]]\napp = "app.one"\ngesture = "tap"\n'
        '[[always]]\napp = "app.one"\nlabel = "Send"\n'
    )
    phone = Phone(elements=[PAGE, button("Send")])
    assert run(phone, read_policy(file), Says(TAP, DONE), ScriptedSupervisor("yes")).status == "denied"
    assert phone.gestures == []


def test_without_a_file_nothing_is_offered() -> None:
    person = ScriptedSupervisor("yes")
    run(Phone(elements=[PAGE, button("Send")]), Policy(), Says(TAP, DONE), person)
    assert person.requests[0].exemptions == ()


@pytest.mark.parametrize(
    "label", ['a "b" \\ c', "a\nb\t\x7f", "支付 \u202e", "]]\n[safety]\nmax_steps = 9", "\U0001f680"]
)
def test_any_label_is_kept(label: str, file: Path) -> None:
    exemption = Exemption("app.one", label=label)
    policy = allow_always(read_policy(file), (exemption,))
    assert policy.always == (exemption,)
    assert read_policy(file) == policy
    assert file.read_text().startswith(TEXT)
    assert file.read_text().isprintable() or "\u202e" not in file.read_text()


def test_half_of_a_character_matches_nothing(file: Path) -> None:
    allow_always(read_policy(file), (Exemption("app.one", label="x\ud800"),))
    assert read_policy(file).always == (Exemption("app.one", label="x?"),)


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    allow_always(read_policy(link), (Exemption("app.one", gesture="tap"),))
    assert link.is_symlink()
    assert len(read_policy(file).always) == 1


def test_a_file_that_was_broken_meanwhile_is_left_alone(file: Path) -> None:
    policy, phone = read_policy(file), Phone(elements=[PAGE, button("Send")])
    file.write_text("[safety")
    outcome = run(phone, policy, Says(TAP, DONE), ScriptedSupervisor("always"))
    assert (outcome.status, phone.gestures) == ("needs_human", [])
    assert "not a TOML file" in outcome.message
    assert file.read_text() == "[safety"


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ('app = "a.b"', "expected an app and either a label or a gesture"),
        ('app = "a.b"\nlabel = "x"\ngesture = "tap"', "expected an app and either a label or a gesture"),
        ('app = "a.b"\ngesture = "wink"', r"always\.gesture: got 'wink'; expected one of tap"),
        ('label = "x"', r"always\[0\]"),
        ('app = "a.b"\nlabels = "x"', r"always\[0\]"),
    ],
)
def test_a_bad_block_is_one_sentence(block: str, says: str, file: Path) -> None:
    file.write_text(f"[[always]]\n{block}\n")
    with pytest.raises(ValueError, match=says) as error:
        read_policy(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(("offered", "answer"), [(True, "always"), (False, "no")])
def test_the_terminal_offers_it(offered: bool, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["always", "no"])
    monkeypatch.setattr("builtins.input", lambda *_: next(typed))
    exemptions = (Exemption("app.one", label="Send"),) if offered else ()
    request = ConfirmationRequest(Phone().screen(), None, None, ("why",), exemptions)
    console = Console(record=True, width=200, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    assert TerminalSupervisor(console).answer(request) == answer
    assert ("always: do not ask for 'Send' in app.one again" in console.export_text()) == offered

"""A policy file is read, or refused in one sentence."""

from pathlib import Path

import pytest

from uivlm.safety.policy import Policy, SecretRule, read_policy


def test_a_policy_is_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[safety]\nallow_apps = ["com.android.deskclock", "sim.*"]\nmin_confidence = 0.5\nmax_seconds = 60\n'
        'stop_file = "stop"\nredact = ["[0-9]{16}"]\n[secrets]\n'
        'pin = {env = "BANK_PIN", apps = ["com.bank.*"]}\nkey = {env = "KEY", hosts = ["*.shop.example"]}\n'
    )
    assert read_policy(file) == Policy(
        allow_apps=("com.android.deskclock", "sim.*"), min_confidence=0.5, max_seconds=60.0, stop_file="stop",
        redact=("[0-9]{16}",), 
        secrets={
            "pin": SecretRule("BANK_PIN", apps=("com.bank.*",)),
            "key": SecretRule("KEY", hosts=("*.shop.example",)),
        },
    )  # fmt: skip
    file.write_text("")
    assert read_policy(file) == Policy()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[safety", "is not a TOML file"),
        ("[saftey]\nallow_apps = []", "section 'saftey' is unknown"),
        ("[safety]\nallow_app = []", "safety.allow_app is unknown; expected one of allow_apps"),
        ("[safety]\nallow = []", "safety.allow was renamed .* allow_apps"),
        ("[safety]\nask_in = []", "safety.ask_in was renamed .* confirm_apps"),
        ('[safety.secrets]\npin = "X"', "safety.secrets is unknown"),
        ("[safety]\nstop_file = 2020-01-01", "safety: not a JSON value"),
        ('[safety]\nallow_apps = "x"', "safety.allow_apps: expected"),
        ("[safety]\nallow_apps = [1]", r"safety.allow_apps\[0\]: expected a string"),
        ('[safety]\nallow_apps = ["a b"]', "safety.allow_apps: got 'a b'"),
        ('[safety]\ndeny_apps = ["; rm -rf"]', "safety.deny_apps: got '; rm -rf'"),
        ("[safety]\nmax_steps = 1.5", "safety.max_steps: expected an integer"),
        ("[safety]\nmax_steps = true", "safety.max_steps: expected an integer"),
        ("[safety]\nmax_steps = 0", "safety.max_steps: got 0"),
        ("[safety]\nmax_seconds = inf", "safety.max_seconds: .*finite"),
        ("[safety]\nmin_confidence = nan", "safety.min_confidence: .*finite"),
        ("[safety]\nmin_confidence = 2", "safety.min_confidence: got 2"),
        ('[safety]\nconfirm_labels = [" "]', "safety.confirm_labels: got ' '; expected at least one letter"),
        ('[safety]\nconfirm_labels = ["pay", "*"]', r"safety.confirm_labels: got '\*'"),
        ('[safety]\nredact = ["("]', "safety.redact: .*is not a regular expression"),
        ('[safety]\nredact = ["x*"]', "safety.redact: .*matches the empty text"),
        ("[secrets]\npin = 4711", "secrets.pin: expected an object"),
        ('[secrets]\npin = "BANK_PIN"', r"secrets.pin: got 'BANK_PIN'; expected {env = 'BANK_PIN', .*apps"),
        ('[secrets]\npin = {env = "X"}', "secrets.pin: got neither apps nor hosts; expected"),
        ('[secrets]\npin = {env = "X", apps = []}', "secrets.pin: got neither apps nor hosts; expected"),
        ('[secrets]\npin = {env = "", apps = ["com.bank"]}', "secrets.pin.env: got ''; expected"),
        ('[secrets]\npin = {env = "X", apps = ["*"]}', r"secrets.pin.apps: got '\*'; expected"),
        ('[secrets]\npin = {env = "X", hosts = ["bank.*"]}', r"secrets.pin.hosts: got 'bank\.\*'; expected"),
        ('[secrets]\npin = {env = "X", hosts = ["http://bank.example"]}', "secrets.pin.hosts: got 'http"),
        ('[secrets]\npin = {apps = ["com.bank"]}', "secrets.pin.env: field required"),
        ('[secrets]\n"p i n" = {env = "X", apps = ["com.bank"]}', "secrets: got the name 'p i n'"),
        ("secrets = 1", "secrets: got 1; expected a section"),
        ("safety = 1", "safety: got 1; expected a section"),
    ],
)
def test_a_bad_policy_is_one_sentence_that_names_the_file(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        read_policy(file)
    assert str(file) in str(error.value)

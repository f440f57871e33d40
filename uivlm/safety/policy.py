"""What a run may do: a TOML file in, a validated Policy out.

[safety]
allow_apps = ["com.android.deskclock"]   # apps it may use; default: every app that is not denied
deny_apps = ["com.bank.*"]               # a name may end with *
min_confidence = 0.5                     # below it, a person must confirm
max_seconds = 300

[secrets]  # {secret:pin} in goals and typed text is replaced by the variable BANK_PIN, in these apps only
pin = {env = "BANK_PIN", apps = ["com.bank.app"]}
password = {env = "SHOP_PASSWORD", hosts = ["shop.example.org"]}  # on web pages

[[always]]          # what a person allowed for good, see always.py
app = "com.whatsapp"
label = "Send"
"""

import math
import re
import tomllib
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, with_config

from uivlm.actions.schema import STRICT, from_json
from uivlm.safety.always import Exemption, append_exemptions
from uivlm.safety.apps import SENSITIVE_APPS
from uivlm.safety.labels import normalize, shipped_keywords

PACKAGE_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*\*?|\*")  # Android's names, hosts of web pages; * at the end
HOST_PATTERN = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*")
EXAMPLE_PLACES = 'apps = ["com.bank.app"] or hosts = ["shop.example.org"]'
SECRET_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]*")

RENAMED = {  # settings of uivlm 0.1
    "allow": "allow_apps", "deny": "deny_apps", "ask_in": "confirm_apps", "commits": "confirm_labels",
}  # fmt: skip


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class SecretRule:
    """One secret: where its value is, and where it may be typed."""

    env: str  # environment variable
    apps: tuple[str, ...] = ()  # packages; a name may end with *
    hosts: tuple[str, ...] = ()  # hosts of web pages; *. at the start stands for any subdomain

    def allows(self, app: str) -> bool:
        """May it be typed in this foreground app or on this host?"""
        return bool(app) and _matches(app, (*self.apps, *self.hosts))

    def __str__(self) -> str:
        return ", ".join((*self.apps, *self.hosts))


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Policy:
    allow_apps: tuple[str, ...] = ()  # packages it may use; empty: every app that is not denied
    deny_apps: tuple[str, ...] = ()  # packages it must not use
    confirm_apps: tuple[str, ...] = SENSITIVE_APPS  # packages in which a person confirms each gesture
    # Words on the touched element that need confirmation; a list of one's own replaces the shipped one.
    confirm_labels: tuple[str, ...] = field(default_factory=shipped_keywords)
    profile: Literal["default", "strict"] = "default"  # strict: each gesture but scrolling and back
    unknown: Literal["ask", "allow"] = "ask"  # a touch whose element is unknown: a canvas, a keyboard
    recheck: bool = True  # look again right before each gesture
    min_confidence: float = 0.0  # [0, 1]; below it (of the action type, if known) a person confirms
    max_steps: int = 50
    max_seconds: float = 900.0
    max_repeats: int = 3  # of one gesture on the same screen
    stop_file: str = ""  # path; the run ends when this file appears
    redact: tuple[str, ...] = ()  # regular expressions; neither model nor trace sees what they match
    secrets: dict[str, SecretRule] = field(default_factory=dict)  # by name
    always: tuple[Exemption, ...] = ()  # what a person allowed for good
    file: Path | None = field(default=None, compare=False)  # the policy's file, which keeps `always`

    def __post_init__(self) -> None:
        for name in ("allow_apps", "deny_apps", "confirm_apps"):
            for package in getattr(self, name):
                if not PACKAGE_PATTERN.fullmatch(package):
                    raise ValueError(
                        f"safety.{name}: got {package!r}; "
                        "expected a package such as com.android.chrome or com.bank.*"
                    )
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"safety.min_confidence: got {self.min_confidence}; expected 0 to 1")
        for name in ("max_steps", "max_seconds", "max_repeats"):
            limit = getattr(self, name)
            if not (limit > 0 and math.isfinite(limit)):
                raise ValueError(f"safety.{name}: got {limit}; expected more than 0")
        for label in self.confirm_labels:
            if not normalize(label):
                raise ValueError(f"safety.confirm_labels: got {label!r}; expected at least one letter")
        for pattern in self.redact:
            _check_pattern(pattern)
        for name, rule in self.secrets.items():
            _check_secret(name, rule)

    @property
    def needs_app(self) -> bool:
        """Some rule depends on the foreground app."""
        return bool(self.allow_apps or self.deny_apps or self.confirm_apps)

    def app_denied(self, app: str) -> str | None:
        """Why no gesture is allowed in the app; `app` is "" if the phone cannot name it."""
        if not app:
            restricted = self.allow_apps or self.deny_apps
            return "the foreground app is unknown, and the policy needs its name" if restricted else None
        if _matches(app, self.deny_apps) or (self.allow_apps and not _matches(app, self.allow_apps)):
            return f"the policy does not allow {app}"
        return None

    def confirmation_reasons(self, app: str) -> tuple[str, ...]:
        """Why a person must confirm a gesture in the app."""
        if not app:
            return ("the foreground app is unknown",) if self.confirm_apps else ()
        return (f"each gesture in {app} needs confirmation",) if _matches(app, self.confirm_apps) else ()


# For a simulated phone: nothing can be lost.
PERMISSIVE_POLICY = Policy(confirm_apps=(), confirm_labels=(), unknown="allow", recheck=False)
OTHER_SECTIONS = ("secrets", "always", "file")  # fields of Policy that are not settings of [safety]


def allow_always(policy: Policy, exemptions: tuple[Exemption, ...]) -> Policy:
    """The policy with these exemptions, which are appended to its file. Raises ValueError, OSError."""
    assert policy.file is not None, "a policy without a file offers no exemptions"
    append_exemptions(policy.file, exemptions)
    return replace(policy, always=(*policy.always, *exemptions))


def read_policy(path: Path) -> Policy:
    """The file's policy. Raises ValueError, OSError with one sentence that names the file."""
    try:
        sections = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    try:
        return replace(_parse(sections), file=path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(sections: dict[str, Any]) -> Policy:
    for name, section in sections.items():
        if name not in ("safety", "secrets", "always"):
            raise ValueError(f"section {name!r} is unknown; expected [safety], [secrets] and [[always]]")
        if name != "always" and not isinstance(section, dict):
            raise ValueError(
                f"{name}: got {section!r}; expected a section [{name}] with its settings below it"
            )
    safety = sections.get("safety", {})
    known = [setting.name for setting in fields(Policy) if setting.name not in OTHER_SECTIONS]
    for name in safety:
        if name in RENAMED:
            raise ValueError(f"safety.{name} was renamed in uivlm 0.2: write {RENAMED[name]}")
        if name not in known:
            raise ValueError(f"safety.{name} is unknown; expected one of {', '.join(known)}")
    policy = from_json(TypeAdapter(Policy), safety, "safety")
    for name, rule in sections.get("secrets", {}).items():
        if isinstance(rule, str):  # the form before uivlm 0.3
            raise ValueError(
                f"secrets.{name}: got {rule!r}; expected {{env = {rule!r}, ...}} with the apps or hosts "
                f"in which it may be typed: {EXAMPLE_PLACES}"
            )
    secrets = from_json(TypeAdapter(dict[str, SecretRule]), sections.get("secrets", {}), "secrets")
    always = from_json(TypeAdapter(tuple[Exemption, ...]), sections.get("always", []), "always")
    return replace(policy, secrets=secrets, always=always)


def _matches(app: str, packages: tuple[str, ...]) -> bool:
    return any(fnmatchcase(app, package) for package in packages)


def _check_secret(name: str, rule: SecretRule) -> None:
    if not SECRET_NAME_PATTERN.fullmatch(name):
        raise ValueError(f"secrets: got the name {name!r}; expected lower-case letters, digits and _")
    if not rule.env:
        raise ValueError(f"secrets.{name}.env: got ''; expected the name of an environment variable")
    if not (rule.apps or rule.hosts):
        raise ValueError(
            f"secrets.{name}: got neither apps nor hosts; expected the apps, or the hosts of web pages, "
            f"in which it may be typed: {EXAMPLE_PLACES}"
        )
    for field_name, places, pattern in (
        ("apps", rule.apps, PACKAGE_PATTERN),
        ("hosts", rule.hosts, HOST_PATTERN),
    ):
        for place in places:
            if place == "*" or not pattern.fullmatch(place):
                raise ValueError(f"secrets.{name}.{field_name}: got {place!r}; expected {EXAMPLE_PLACES}")


def _check_pattern(pattern: str) -> None:
    try:
        matches_nothing = re.compile(pattern).search("") is not None
    except re.error as error:
        raise ValueError(f"safety.redact: {pattern!r} is not a regular expression: {error}") from None
    if matches_nothing:
        raise ValueError(
            f"safety.redact: {pattern!r} matches the empty text; it must need at least one letter"
        )

"""What a run may do: the `safety` section of a TOML file in, a checked Policy out.

[safety]
allow = ["com.android.deskclock"]    # apps it may be in; left out: every app that is not denied
deny = ["com.bank.*"]                # a name may end with *
min_confidence = 0.5                 # below it, a person is asked
max_seconds = 300

[secrets]
pin = "BANK_PIN"                     # {secret:pin} in goals and typed text is what BANK_PIN holds in the environment
"""

import math
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*\*?|\*")  # Android's names, hosts of web pages; * at the end
NAME = re.compile(r"[a-z][a-z0-9_]*")

# Where a wrong tap costs most: what may be installed, permitted, or changed for good.
GRAVE = (
    "com.android.settings",
    "com.android.packageinstaller",
    "com.google.android.packageinstaller",
    "com.android.permissioncontroller",
    "com.google.android.permissioncontroller",
    "com.android.vending",
)
# Deeds that cannot be undone, as they are written on buttons.
COMMITS = (
    "pay", "buy", "order", "checkout", "check out", "purchase", "subscribe", "donate", "transfer",
    "send", "post", "publish", "share", "reply", "call", "dial",
    "delete", "remove", "erase", "reset", "uninstall", "install", "format", "unsubscribe",
    "accept", "agree", "allow", "grant", "confirm", "submit", "sign",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Policy:
    allow: tuple[str, ...] = ()  # packages of apps it may be in; none: every one that is not denied
    deny: tuple[str, ...] = ()  # packages it may not be in
    ask_in: tuple[str, ...] = GRAVE  # packages in which each gesture is confirmed
    commits: tuple[str, ...] = COMMITS  # words on what is touched for which a person is asked
    min_confidence: float = 0.0  # [0, 1]: an action (its kind, where that is known) less sure is asked for
    max_steps: int = 50  # actions of a run
    max_seconds: float = 900.0  # of a run
    max_repeats: int = 3  # times the same gesture may be done on the same screen in one run
    stop_file: str = ""  # a path: where such a file appears, the run ends
    redact: tuple[str, ...] = ()  # regular expressions: what they find, neither model nor trace sees
    secrets: dict[str, str] = field(default_factory=dict)  # name -> variable of the environment

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "ask_in"):
            for package in getattr(self, name):
                if not PACKAGE.fullmatch(package):
                    raise ValueError(
                        f"safety.{name}: {package!r} is no package: such as com.android.chrome or com.bank.*"
                    )
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"safety.min_confidence is {self.min_confidence}: it must lie between 0 and 1")
        for name in ("max_steps", "max_seconds", "max_repeats"):
            number = getattr(self, name)
            if not (number > 0 and math.isfinite(number)):
                raise ValueError(f"safety.{name} is {number}: it must be more than 0")
        if not all(word.strip() for word in self.commits):
            raise ValueError("safety.commits holds an empty word, which every button has: leave it out")
        for pattern in self.redact:
            _compiled(pattern)
        for name, variable in self.secrets.items():
            if not NAME.fullmatch(name) or not variable:
                raise ValueError(
                    f"secrets.{name}: a name of small letters, and the name of a variable of the environment"
                )


HARMLESS = Policy(ask_in=(), commits=())  # for a simulated phone: nothing there can be lost


def read_policy(path: Path) -> Policy:
    """The file's policy. Raises ValueError, OSError with one sentence that names the file."""
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file: {error}") from None
    if unknown := sorted(set(told) - {"safety", "secrets"}):
        raise ValueError(f"{path} has a section {unknown[0]!r}: it may have [safety] and [secrets]")
    try:
        return Policy(**_fields(told.get("safety", {})), secrets=_secrets(told.get("secrets", {})))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _fields(told: Any) -> dict[str, Any]:
    """The section's fields, of the right types."""
    if not isinstance(told, dict):
        raise ValueError("safety is no section: write [safety] and its settings below it")
    defaults = Policy()
    known = {each.name: getattr(defaults, each.name) for each in fields(Policy) if each.name != "secrets"}
    return {name: _typed(name, value, known) for name, value in told.items()}


def _typed(name: str, value: Any, known: dict[str, Any]) -> Any:
    if name not in known:
        raise ValueError(f"safety.{name} is no setting: there are {', '.join(known)}")
    match known[name], value:
        case tuple(), list() if all(isinstance(each, str) for each in value):
            return tuple(value)
        case str(), str():
            return value
        case float(), int() | float() if not isinstance(value, bool):
            return float(value)
        case int(), int() if not isinstance(value, bool):
            return value
    kind = {tuple: "a list of texts", str: "a text", float: "a number", int: "a whole number"}[
        type(known[name])
    ]
    raise ValueError(f"safety.{name} is {value!r}: it must be {kind}")


def _secrets(told: Any) -> dict[str, str]:
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise ValueError("[secrets] must give each name the name of a variable of the environment")
    return dict(told)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"safety.redact: {pattern!r} is no regular expression: {error}") from None
    if found.search(""):
        raise ValueError(f"safety.redact: {pattern!r} is found everywhere: it must need at least one letter")
    return found

"""Secrets: values that are typed by reference, and patterns that are redacted. Neither model nor trace sees
them.

A goal contains `{secret:pin}`, the model types `{secret:pin}`, and only the phone gets the environment's
value, in the apps that the policy names. Screens that show the value are covered first.
"""

import os
import re
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from uivlm.actions.action import Action, InvalidAction, Type
from uivlm.actions.gesture import Gesture, TypeText
from uivlm.safety.policy import Policy, SecretRule
from uivlm.safety.similar_text import find_values

REFERENCE_PATTERN = re.compile(r"\{secret:([a-z][a-z0-9_]*)\}")
REDACTED = "[redacted]"
Maskable = TypeVar("Maskable", bound=Action | InvalidAction | Gesture)


class SecretError(ValueError):
    """A reference to an unknown secret, or in an app that must not get it; the text names both."""


@dataclass(frozen=True, slots=True)
class Secrets:
    values: dict[str, str]  # name -> value for the phone
    rules: dict[str, SecretRule]  # name -> where it may be typed
    patterns: tuple[re.Pattern[str], ...]
    typed: set[str] = field(default_factory=set)  # names of the values that the phone has received

    def resolve(self, text: str, app: str) -> str:
        """The text with values in place of references, for the foreground app. Raises SecretError."""
        return REFERENCE_PATTERN.sub(lambda match: self._value(match[1], app), text)

    def _value(self, name: str, app: str) -> str:
        if name not in self.values:
            raise SecretError(f"{{secret:{name}}} is not in the policy: name its variable in [secrets]")
        if not self.rules[name].allows(app):
            raise SecretError(
                f"the policy does not allow {{secret:{name}}} in {app or 'an unknown app'}: "
                f"secrets.{name} is for {self.rules[name]}"
            )
        return self.values[name]

    def contains_secret(self, text: str) -> bool:
        return self.mask(text) != text

    def mask(self, text: str) -> str:
        """The text with references in place of values, and without redacted patterns."""
        masked = "|".join(map(re.escape, (REDACTED, *map(_reference, self.values))))
        parts = re.split(f"({masked})", text)
        return "".join(part if i % 2 else self._mask_part(part) for i, part in enumerate(parts))

    def _mask_part(self, text: str) -> str:
        groups = groupby(zip(text, self.replacements(text), strict=True), key=lambda pair: pair[1])
        return "".join(
            replacement[1] if replacement else "".join(letter for letter, _ in pairs)
            for replacement, pairs in groups
        )

    def replacements(self, text: str) -> list[tuple[int, str] | None]:
        """What replaces each letter: the start of a match and its replacement; longer values come first."""
        result: list[tuple[int, str] | None] = [None] * len(text)
        spans = [(start, end, _reference(name)) for start, end, name in find_values(text, self.values)]
        spans += [(*match.span(), REDACTED) for pattern in self.patterns for match in pattern.finditer(text)]
        for start, end, replacement in spans:
            for i in range(start, end):
                result[i] = result[i] or (start, replacement)
        return result


def _reference(name: str) -> str:
    return f"{{secret:{name}}}"


def mask_secrets(value: Maskable, secrets: Secrets) -> Maskable:
    """The action or gesture as model and trace may see it."""
    if isinstance(value, Type | TypeText):
        return replace(value, text=secrets.mask(value.text))
    if isinstance(value, InvalidAction):
        return replace(value, text=secrets.mask(value.text), reason=secrets.mask(value.reason))
    return value


def load_secrets(policy: Policy) -> Secrets:
    """The values of the policy's secrets. Raises SecretError if a variable is not set."""
    values = {}
    for name, rule in policy.secrets.items():
        value = os.environ.get(rule.env, "")
        if not value:
            raise SecretError(
                f"secrets.{name}: the environment variable {rule.env} is not set: export {rule.env}=..."
            )
        values[name] = value
    return Secrets(values, policy.secrets, tuple(re.compile(pattern) for pattern in policy.redact))

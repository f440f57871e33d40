"""Secrets: values that are typed by reference, and patterns that are redacted. Neither model nor trace sees
them.

A goal contains `{secret:pin}`, the model types `{secret:pin}`, and only the phone gets the environment's
value. Screens that show the value are covered first.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from uivlm.actions.action import Action, InvalidAction, Type
from uivlm.actions.gesture import Gesture, TypeText
from uivlm.episodes.episode import Element, Screen
from uivlm.safety.policy import Policy

REFERENCE_PATTERN = re.compile(r"\{secret:([a-z][a-z0-9_]*)\}")
COVER_GRAY = 96  # gray level of a covered element
Maskable = TypeVar("Maskable", bound=Action | InvalidAction | Gesture)


class SecretError(ValueError):
    """A reference to an unknown secret; the text names it."""


@dataclass(frozen=True, slots=True)
class Secrets:
    values: dict[str, str]  # name -> value for the phone
    patterns: tuple[re.Pattern[str], ...]

    def resolve(self, text: str) -> str:
        """The text with values in place of references. Raises SecretError."""
        return REFERENCE_PATTERN.sub(lambda match: self._value(match[1]), text)

    def _value(self, name: str) -> str:
        if name not in self.values:
            raise SecretError(f"{{secret:{name}}} is not in the policy: name its variable in [secrets]")
        return self.values[name]

    def contains_secret(self, text: str) -> bool:
        return self.mask(text) != text

    def mask(self, text: str) -> str:
        """The text with references in place of values, and without redacted patterns."""
        for name, value in self.values.items():
            text = text.replace(value, f"{{secret:{name}}}")
        for pattern in self.patterns:
            text = pattern.sub("[redacted]", text)
        return text


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
    for name, variable in policy.secrets.items():
        value = os.environ.get(variable, "")
        if not value:
            raise SecretError(
                f"secrets.{name}: the environment variable {variable} is not set: export {variable}=..."
            )
        values[name] = value
    return Secrets(values, tuple(re.compile(pattern) for pattern in policy.redact))


def cover_secrets(screen: Screen, elements: Sequence[Element], secrets: Secrets) -> Screen:
    """The screen with every element covered whose text contains a secret."""
    secret_elements = [element for element in elements if secrets.contains_secret(element.text)]
    if not secret_elements:
        return screen
    pixels = screen.pixels.copy()
    height, width = pixels.shape[:2]
    for element in secret_elements:
        top, left = int(element.y * height), int(element.x * width)
        bottom = int(np.ceil((element.y + element.height) * height))
        right = int(np.ceil((element.x + element.width) * width))
        pixels[max(top, 0) : bottom, max(left, 0) : right] = COVER_GRAY
    visible = tuple(element for element in screen.elements if not secrets.contains_secret(element.text))
    return Screen(pixels, visible)

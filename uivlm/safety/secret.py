"""What neither model nor trace may see: secrets that are typed by reference, and what a policy redacts.

A goal says `{secret:pin}`, the model types `{secret:pin}`, and only the phone gets what the environment holds. Where it
then stands on a screen, the screen is covered before anybody looks.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from uivlm.actions.action import Action, Type
from uivlm.actions.gesture import Gesture, Keys
from uivlm.actions.language import NotAnAction
from uivlm.episode import Element, Screen
from uivlm.safety.policy import Policy

REFERENCE = re.compile(r"\{secret:([a-z][a-z0-9_]*)\}")
COVER = 96  # grey of what is covered
Shown = TypeVar("Shown", bound=Action | NotAnAction | Gesture)


class SecretError(ValueError):
    """A reference to a secret that is not there; the text says which."""


@dataclass(frozen=True, slots=True)
class Secrets:
    values: dict[str, str]  # name -> what the phone gets
    patterns: tuple[re.Pattern[str], ...]

    def filled(self, text: str) -> str:
        """The text with what it refers to."""
        return REFERENCE.sub(lambda found: self._value(found[1]), text)

    def _value(self, name: str) -> str:
        if name not in self.values:
            raise SecretError(f"{{secret:{name}}} is no secret of the policy: name its variable in [secrets]")
        return self.values[name]

    def hides(self, text: str) -> bool:
        return self.hidden(text) != text

    def hidden(self, text: str) -> str:
        """The text with references in place of secrets, and without what is redacted."""
        for name, value in self.values.items():
            text = text.replace(value, f"{{secret:{name}}}")
        for pattern in self.patterns:
            text = pattern.sub("[redacted]", text)
        return text


def without(thing: Shown, secrets: Secrets) -> Shown:
    """An action, words that are none, or a gesture, as model and trace may see it."""
    if isinstance(thing, Type | Keys):
        return replace(thing, text=secrets.hidden(thing.text))
    if isinstance(thing, NotAnAction):
        return replace(thing, words=secrets.hidden(thing.words), reason=secrets.hidden(thing.reason))
    return thing


def open_secrets(policy: Policy) -> Secrets:
    """What the policy's names stand for. Raises SecretError where a variable is not set."""
    values = {}
    for name, variable in policy.secrets.items():
        value = os.environ.get(variable, "")
        if not value:
            raise SecretError(
                f"the secret {name!r} is to be in {variable}, which is not set: export {variable}=..."
            )
        values[name] = value
    return Secrets(values, tuple(re.compile(pattern) for pattern in policy.redact))


def covered(screen: Screen, elements: Sequence[Element], secrets: Secrets) -> Screen:
    """The screen with everything covered whose text is secret; `elements` are those that stand on it."""
    boxes = [each for each in elements if secrets.hides(each.text)]
    if not boxes:
        return screen
    pixels = screen.pixels.copy()
    height, width = pixels.shape[:2]
    for each in boxes:
        top, left = int(each.y * height), int(each.x * width)
        bottom, right = (
            int(np.ceil((each.y + each.height) * height)),
            int(np.ceil((each.x + each.width) * width)),
        )
        pixels[max(top, 0) : bottom, max(left, 0) : right] = COVER
    kept = tuple(each for each in screen.elements if not secrets.hides(each.text))
    return Screen(pixels, kept)

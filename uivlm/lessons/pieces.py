"""What a lesson is made of: words of a person, screens of the shelf, right actions, and what decides an answer."""

from dataclasses import dataclass

from uivlm.actions.action import Action, Point
from uivlm.devices.sim.canvas import Box


@dataclass(frozen=True, slots=True)
class Spot:
    """What on a screen decides the answer."""

    box: Box
    words: tuple[str, ...]  # those in the box that do; "on" and "off" are switches
    at: Point | None = None  # where a finger goes for it; None: it is to be read only


@dataclass(frozen=True, slots=True)
class Ask:
    """Words of a person."""

    text: str
    spot: Spot | None = None  # on the screen before


@dataclass(frozen=True, slots=True)
class Show:
    """A screen of the shelf."""

    page: int
    spot: Spot | None = None  # for the question before


@dataclass(frozen=True, slots=True)
class Answer:
    """The right action."""

    action: Action


Piece = Ask | Show | Answer
Lesson = tuple[Piece, ...]

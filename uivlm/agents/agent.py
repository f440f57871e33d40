"""What every agent is: reset before an episode, then one decision for each history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from uivlm.actions.action import Action
from uivlm.actions.language import NotAnAction
from uivlm.episode import History


@dataclass(frozen=True, slots=True)
class Decision:
    """What an agent decided: the action (or why its words are none), the words it said, its confidence."""

    action: Action | NotAnAction
    words: str
    confidence: float | None = None  # [0, 1]
    kind_confidence: float | None = None  # of its kind alone


class Agent(Protocol):
    def reset(self) -> None:
        """Called before each episode: forget whatever was planned."""

    def act(self, history: History) -> Decision:
        """One decision for the screen in `history.screen`."""


@runtime_checkable
class SideBySide(Agent, Protocol):
    """An agent that keeps nothing between steps, so that it may answer several conversations at once."""

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        """One decision for each, the same as from `act`."""

    def forget(self) -> None:
        """What is said next depends to the last bit on nothing that was asked before."""


@runtime_checkable
class Ranking(Agent, Protocol):
    """An agent that can tell what else it might have done."""

    def rank(self, history: History, most: int) -> list[Decision]:
        """The likeliest decisions, from the likeliest on."""


class AgentError(RuntimeError):
    """The agent cannot decide: out of reach, or failed. The text says what to do."""

"""The agent protocols: reset before an episode, then one decision for each history."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History


class Agent(Protocol):
    def reset(self) -> None:
        """Called before each episode: discard any plan."""

    def act(self, history: History) -> Decision:
        """One decision for the screen in `history.screen`."""


@runtime_checkable
class BatchAgent(Agent, Protocol):
    """An agent without state between steps: it can decide for several histories at once."""

    def act_batch(self, histories: Sequence[History]) -> list[Decision]:
        """One decision for each history, the same as from `act`."""

    def reset_cache(self) -> None:
        """Afterwards decisions are bit-equal to those of a new agent."""


@runtime_checkable
class ConcurrentAgent(Agent, Protocol):
    """An agent whose `act` several threads may call at once: its engine batches their calls by itself."""

    max_concurrency: int  # threads


@runtime_checkable
class RankingAgent(Agent, Protocol):
    """An agent that can return alternatives to its decision."""

    def top_k(self, history: History, k: int) -> list[Decision]:
        """At most `k` decisions in order of decreasing confidence."""


class AgentError(RuntimeError):
    """The agent failed or cannot be reached. The message names the remedy."""

"""Agents that decide what a test says. Each remembers what it was given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from uivlm.actions.action import Action, InvalidAction
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import Episode, History


class ScriptedAgent:
    """Decides the listed actions in order, whatever it is given; raises an exception that is in the list."""

    def __init__(
        self,
        *script: Action | InvalidAction | BaseException,
        confidence: float | None = 0.5,
        action_type_confidence: float | None = None,
        repeat_last: bool = False,
    ) -> None:
        self.script = script
        self.confidence, self.action_type_confidence = confidence, action_type_confidence
        self.repeat_last = repeat_last
        self.histories: list[History] = []
        self.num_resets = 0

    def reset(self) -> None:
        self.num_resets += 1

    def act(self, history: History) -> Decision:
        index = len(self.histories)
        self.histories.append(history)
        action = self.script[min(index, len(self.script) - 1) if self.repeat_last else index]
        if isinstance(action, BaseException):
            raise action
        return Decision(action, f"text {index + 1}", self.confidence, self.action_type_confidence)


@dataclass
class TextAgent:
    """Outputs the text that `text_of(history)` gives."""

    text_of: Callable[[History], str]
    confidence: float | None = None
    num_resets: int = 0
    num_past_steps: list[int] = field(default_factory=list)  # of each history

    def reset(self) -> None:
        self.num_resets += 1

    def act(self, history: History) -> Decision:
        self.num_past_steps.append(len(history.steps))
        text = self.text_of(history)
        return Decision(ActionText().parse(text), text, self.confidence)


@dataclass
class BatchTextAgent(TextAgent):
    """A TextAgent that takes batches."""

    batches: list[list[int]] = field(default_factory=list)  # the numbers of past steps
    num_cache_resets: int = 0

    def reset_cache(self) -> None:
        self.num_cache_resets += 1

    def act_batch(self, histories: Sequence[History]) -> list[Decision]:
        self.batches.append([len(history.steps) for history in histories])
        return [self.act(history) for history in histories]


class OracleAgent:
    """Gives the recorded actions of the episodes in order."""

    def __init__(self, episodes: Sequence[Episode], confidence: float | None = None) -> None:
        self.actions = iter([step.action for episode in episodes for step in episode.steps])
        self.confidence = confidence

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        text = ActionText().format(next(self.actions))
        return Decision(ActionText().parse(text), text, self.confidence)

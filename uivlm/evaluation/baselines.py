"""Baselines: agents without a model, beside which a score means something.

In: recorded episodes; those of training are read without their screens. Out: agents that keep nothing between steps.

- Majority says what was done most often in training.
- RepeatLast does again what was done last.
- Nearest does what was done for the most similar goal of training.
- Oracle says the recorded action: the top, 100 % by AITW's rule with 6 bins or more, but for steps that look alike.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rapidfuzz import fuzz, process

from uivlm.actions.action import Action, Finish, Point, Tap
from uivlm.actions.language import Language
from uivlm.agents.agent import Agent, AgentError, Decision
from uivlm.episode import Episode, History, Screen
from uivlm.evaluation.names import Baseline

MIDDLE = Tap(Point(0.5, 0.5))
Key = tuple[str, int, bytes]  # goal, number of steps before, SHA-256 of the screen


def baseline(name: Baseline, train: Sequence[Episode], test: Sequence[Episode], bins: int) -> Agent:
    """The baseline of that name; it reads only the episodes that it needs."""
    match name:
        case "majority":
            return Majority(train, bins)
        case "repeat-last":
            return RepeatLast(bins)
        case "nearest":
            return Nearest(train, bins)
        case "oracle":
            return Oracle(test, bins)


class Majority:
    """Says the most frequent words of training, whatever is asked; of equally frequent ones the first."""

    def __init__(self, train: Sequence[Episode], bins: int = 100) -> None:
        self.language = Language(bins)
        said = Counter(self.language.say(a) for _, actions in _goals_and_actions(train) for a in actions)
        [(self.words, _)] = said.most_common(1)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return Decision(self.language.parse(self.words), self.words)


class RepeatLast:
    """Does again what was done last; first it taps the middle."""

    def __init__(self, bins: int = 100) -> None:
        self.language = Language(bins)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return _decision(self.language, history.steps[-1].action if history.steps else MIDDLE)


class Nearest:
    """Does what was done at the same step for the goal of training with the most similar words, in any order.

    Beyond the end of that episode it says complete. Of equally similar goals, and of episodes of one goal, the first.
    """

    def __init__(self, train: Sequence[Episode], bins: int = 100) -> None:
        self.language = Language(bins)
        self.done: dict[str, list[Action]] = {}
        for goal, actions in _goals_and_actions(train):
            self.done.setdefault(goal, actions)
        self.goals = list(self.done)
        self.nearest: dict[str, str] = {}  # goal asked -> goal of training: looked for once an episode

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        if history.goal not in self.nearest:
            found = process.extractOne(history.goal, self.goals, scorer=fuzz.token_sort_ratio)
            self.nearest[history.goal] = found[0]
        actions, t = self.done[self.nearest[history.goal]], len(history.steps)
        return _decision(self.language, actions[t] if t < len(actions) else Finish("complete"))


class Oracle:
    """Says what was recorded on this screen, after as many steps, for this goal; of several such steps, at the first."""

    def __init__(self, test: Sequence[Episode], bins: int = 100) -> None:
        self.language = Language(bins)
        self.recorded: dict[Key, Action] = {}
        for i in range(len(test)):
            for t, step in enumerate((one := test[i]).steps):
                self.recorded.setdefault(_key(one.goal, t, step.screen), step.action)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        action = self.recorded.get(_key(history.goal, len(history.steps), history.screen))
        if action is None:
            raise AgentError("the oracle has not seen this step: give it the episodes that it is asked about")
        return _decision(self.language, action)


def _decision(language: Language, action: Action) -> Decision:
    words = language.say(action)
    return Decision(language.parse(words), words)


def _key(goal: str, t: int, screen: Screen) -> Key:
    return goal, t, hashlib.sha256(np.ascontiguousarray(screen.pixels).data).digest()


def _goals_and_actions(episodes: Sequence[Episode]) -> Iterator[tuple[str, list[Action]]]:
    """What was asked and done in each episode; prepared data is read without its screens."""
    if not episodes:
        raise ValueError("there is no episode of training to learn from: the data or the split is empty")
    read: Callable[[int], Episode] = getattr(episodes, "unseen", episodes.__getitem__)
    for i in range(len(episodes)):
        one = read(i)
        yield one.goal, [step.action for step in one.steps]

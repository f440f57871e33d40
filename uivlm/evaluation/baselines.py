"""Baselines: agents without a model, which give a score its scale.

In: recorded episodes; training episodes are read without their screens. Out: stateless agents.

- Majority repeats the most frequent training action.
- RepeatLast repeats the previous action.
- Nearest takes the actions of the training episode with the most similar goal.
- Oracle gives the recorded action: 100 % by AITW's rule with 6 bins or more, except for steps that look
  alike.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from rapidfuzz import fuzz, process

from uivlm.actions.action import Action, Finish, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.agents.agent import Agent, AgentError
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.episode import Episode, History, Screen
from uivlm.evaluation.names import BaselineName

CENTER_TAP = Tap(Point(0.5, 0.5))
StepKey = tuple[str, int, bytes]  # goal, number of steps before, SHA-256 of the screen's pixels


def make_baseline(
    name: BaselineName, train: Sequence[Episode], test: Sequence[Episode], num_bins: int
) -> Agent:
    """The baseline of that name. It reads only the episodes that it needs."""
    match name:
        case "majority":
            return Majority(train, num_bins)
        case "repeat-last":
            return RepeatLast(num_bins)
        case "nearest":
            return Nearest(train, num_bins)
        case "oracle":
            return Oracle(test, num_bins)


class Majority:
    """Repeats the most frequent action text of training; of equally frequent ones, the first."""

    def __init__(self, train: Sequence[Episode], num_bins: int = 100) -> None:
        self.action_text = ActionText(num_bins)
        actions = (action for _, episode_actions in _goals_and_actions(train) for action in episode_actions)
        [(self.text, _)] = Counter(map(self.action_text.format, actions)).most_common(1)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return Decision(self.action_text.parse(self.text), self.text)


class RepeatLast:
    """Repeats the previous action; the first one is a tap on the center."""

    def __init__(self, num_bins: int = 100) -> None:
        self.action_text = ActionText(num_bins)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return _decision(self.action_text, history.steps[-1].action if history.steps else CENTER_TAP)


class Nearest:
    """Takes the action of the same step in the training episode whose goal has the most similar words.

    The order of the words does not count. After that episode's end it finishes. The first of equally similar
    goals, and the first episode of a goal, is taken.
    """

    def __init__(self, train: Sequence[Episode], num_bins: int = 100) -> None:
        self.action_text = ActionText(num_bins)
        self.actions_by_goal: dict[str, list[Action]] = {}
        for goal, actions in _goals_and_actions(train):
            self.actions_by_goal.setdefault(goal, actions)
        self.goals = list(self.actions_by_goal)
        self.nearest_goal: dict[str, str] = {}  # goal -> training goal: searched once an episode

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        if history.goal not in self.nearest_goal:
            match = process.extractOne(history.goal, self.goals, scorer=fuzz.token_sort_ratio)
            self.nearest_goal[history.goal] = match[0]
        actions, t = self.actions_by_goal[self.nearest_goal[history.goal]], len(history.steps)
        return _decision(self.action_text, actions[t] if t < len(actions) else Finish("complete"))


class Oracle:
    """Gives the action recorded at this screen, goal and step index; of several such steps, the first."""

    def __init__(self, test: Sequence[Episode], num_bins: int = 100) -> None:
        self.action_text = ActionText(num_bins)
        self.recorded_actions: dict[StepKey, Action] = {}
        for i in range(len(test)):
            episode = test[i]
            for t, step in enumerate(episode.steps):
                self.recorded_actions.setdefault(_step_key(episode.goal, t, step.screen), step.action)

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        action = self.recorded_actions.get(_step_key(history.goal, len(history.steps), history.screen))
        if action is None:
            raise AgentError("the oracle has no such step: make it from the episodes that it is evaluated on")
        return _decision(self.action_text, action)


def _decision(action_text: ActionText, action: Action) -> Decision:
    text = action_text.format(action)
    return Decision(action_text.parse(text), text)


def _step_key(goal: str, t: int, screen: Screen) -> StepKey:
    return goal, t, hashlib.sha256(np.ascontiguousarray(screen.pixels).data).digest()


def _goals_and_actions(episodes: Sequence[Episode]) -> Iterator[tuple[str, list[Action]]]:
    """Goal and actions of each episode. Screens of prepared data are not read."""
    if not episodes:
        raise ValueError("no training episode: the data or the split train is empty")
    for i in range(len(episodes)):
        episode = episodes.without_screens(i) if isinstance(episodes, PreparedEpisodes) else episodes[i]
        yield episode.goal, [step.action for step in episode.steps]

"""Small recorded episodes, and verdicts on them. Imports no torch."""

import numpy as np
from rich.console import Console

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.episodes.episode import Element, Episode, Screen, Step
from uivlm.evaluation.verdict import Verdict

QUIET = Console(quiet=True)
TAP, SWIPE_UP = Tap(Point(0.2, 0.3)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
DONE = Finish("complete")
HOSTILE = "<script>alert('x')</script><img src=http://evil.example/a onerror=alert(1)>\x00\ud800[red]"


def make_episode(name: str, subset: str, *actions: Action, goal: str = "open the clock") -> Episode:
    """An episode on gray screens of 60 x 30 pixels with one element."""
    pixels = np.full((60, 30, 3), 200, np.uint8)
    screen = Screen(pixels, (Element(0.1, 0.1, 0.1, 0.4, "ok"),))
    return Episode(name, goal, subset, tuple(Step(screen, action) for action in actions))


# Two subsets: A with episodes of 1 and 3 steps, B with one of 4.
EPISODES = [
    make_episode("1", "A", TAP),
    make_episode("2", "A", TAP, SWIPE_UP, DONE),
    make_episode("3", "B", Press("home"), Type("milk"), Press("enter"), DONE),
]


def make_verdict(name: str, t: int, correct: bool, subset: str = "A", num_steps: int = 1) -> Verdict:
    """A verdict on step `t` of the episode of that name, which is also its index."""
    return Verdict(
        episode_index=int(name),
        episode=name,
        step=t,
        num_steps=num_steps,
        subset=subset,
        size=(60, 30),
        text="complete",
        predicted=DONE,
        gold=DONE,
        correct=correct,
        action_type="complete",
        error="" if correct else "wrong_type",
        reason="",
        confidence=None,
        latency_ms=1.0,
    )

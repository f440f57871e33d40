"""Histories and agents for the tests of the server, and what its metrics count."""

import random
import threading
import zlib
from collections.abc import Sequence

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import Element, History, Screen, Step

TEXTS = ["", "plain", 'it\'s "q" \\ \n\t %s', "日本語 👩‍👩‍👧", "</script>\0\x7f\u2028", "x" * 10_000]


def random_screen(seed: int, height: int = 31, width: int = 17, elements: tuple[Element, ...] = ()) -> Screen:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Screen(pixels, elements)


def random_action(rng: random.Random) -> Action:
    def point() -> Point:
        return Point(rng.random(), float(np.float32(rng.random())))

    return rng.choice(
        [
            Tap(point()),
            Swipe(point(), point()),
            Type(rng.choice(TEXTS)),
            Press(rng.choice(["back", "home", "enter"])),
            Finish(rng.choice(["complete", "impossible"])),
        ]
    )


def random_history(rng: random.Random, steps: int) -> History:
    boxes = (Element(0.1, 0.2, 1 / 3, 0.4, "Wi-Fi é", "ICON_X"), Element(0.0, 0.0, 1.0, 1.0))
    return History(
        rng.choice(TEXTS),
        tuple(Step(random_screen(rng.randrange(99)), random_action(rng)) for _ in range(steps)),
        random_screen(rng.randrange(99), rng.randrange(1, 40), rng.randrange(1, 40), rng.choice([(), boxes])),
    )


def same_history(a: History, b: History) -> bool:
    screens = [(x.screen, y.screen) for x, y in zip(a.steps, b.steps, strict=True)] + [(a.screen, b.screen)]
    return (
        a.goal == b.goal
        and [step.action for step in a.steps] == [step.action for step in b.steps]
        and all(np.array_equal(x.pixels, y.pixels) and x.elements == y.elements for x, y in screens)
    )


class HeldAgent:
    """A batch agent that waits for `release`. Decides `tap at LENGTH 7`; fails for the goal "bad"."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started = threading.Event()
        self.batches: list[list[str]] = []

    def reset(self) -> None:
        pass

    def reset_cache(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return self.act_batch([history])[0]

    def act_batch(self, histories: Sequence[History]) -> list[Decision]:
        self.batches.append([history.goal for history in histories])
        self.started.set()
        assert self.release.wait(20)
        if any(history.goal == "bad" for history in histories):
            raise RuntimeError("bad")
        texts = [f"tap at {len(history.steps)} 7" for history in histories]
        return [Decision(ActionText().parse(text), text, 0.5) for text in texts]


class ChecksumAgent:
    """A decision that any change of the history would change."""

    def __init__(self) -> None:
        self.histories: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        summed = zlib.crc32(history.screen.pixels.tobytes() + repr(history.screen.elements).encode())
        for step in history.steps:
            summed = zlib.crc32(step.screen.pixels.tobytes() + repr(step.action).encode(), summed)
        summed = zlib.crc32(history.goal.encode(), summed)
        rng = random.Random(summed)
        action = rng.choice([random_action(rng), InvalidAction(rng.choice(TEXTS), "no verb: \0")])
        return Decision(action, rng.choice(TEXTS), rng.choice([None, 0.0, 1.0, rng.random()]))


class CountingPhone:
    """Its next screen depends on the number of gestures so far."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def screen(self) -> Screen:
        return random_screen(len(self.done))

    def perform(self, gesture: object) -> None:
        self.done.append(gesture)


class ScriptByLength:
    """One line for each length of the history, parsed as a model's output."""

    lines = ("tap at 10 20", 'Input text "a b"', "press back", "swipe from 90 50 to 10 50", "complete")

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        text = self.lines[len(history.steps)]
        return Decision(ActionText().parse(text), text)


JSON = {"content-type": "application/json"}


def small_screen(seed: int, *elements: Element) -> Screen:
    return Screen(np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8), elements)


def small_history(steps: int = 0, goal: str = "g") -> History:
    past = tuple(Step(small_screen(i), Tap(Point(0.5, 0.5))) for i in range(steps))
    return History(goal, past, small_screen(steps))


def released_agent() -> HeldAgent:
    agent = HeldAgent()
    agent.release.set()
    return agent


def metric_sums(url: str) -> dict[str, float]:
    """The value of each metric, summed over its labels."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums

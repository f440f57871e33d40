"""Episodes that the benchmarks measure on: of the simulated phone, or random ones of any size."""

from dataclasses import replace
from itertools import count, islice

import numpy as np

from uivlm.actions.action import Point, Tap
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.goals import Split
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.episode import Episode, Screen, Step
from uivlm.models.cost import TYPICAL_GOAL


def episodes_of_length(split: Split, num_steps: int, num_episodes: int) -> list[Episode]:
    """The first `num_episodes` with at least `num_steps` steps, cut to `num_steps`."""
    every = (record_demonstration(make_task(seed, split)) for seed in count())
    long = (
        replace(episode, steps=episode.steps[:num_steps])
        for episode in every
        if len(episode.steps) >= num_steps
    )
    return list(islice(long, num_episodes))


def simulated_episodes(split: Split, num_episodes: int) -> list[Episode]:
    """Episodes of any length."""
    return [record_demonstration(make_task(seed, split)) for seed in range(num_episodes)]


def phone_episode(num_steps: int, size: tuple[int, int], seed: int = 0) -> Episode:
    """Taps on random screens of this height and width, no two alike."""
    random = np.random.default_rng(seed)
    screens = (Screen(random.integers(0, 256, (*size, 3), np.uint8)) for _ in range(num_steps))
    steps = tuple(Step(screen, Tap(Point(*random.random(2).tolist()))) for screen in screens)
    return Episode(f"random {seed}", TYPICAL_GOAL, "random", steps)

"""Episodes of the simulated phone that the benchmarks measure on."""

from dataclasses import replace
from itertools import count, islice

from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.goals import Split
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.episode import Episode


def episodes_of_length(split: Split, num_steps: int, num_episodes: int) -> list[Episode]:
    """The first `num_episodes` with at least `num_steps` steps, cut to `num_steps`."""
    every = (record_demonstration(make_task(seed, split)) for seed in count())
    long = (replace(one, steps=one.steps[:num_steps]) for one in every if len(one.steps) >= num_steps)
    return list(islice(long, num_episodes))

"""Episodes of the simulated phone that programs here measure on."""

from dataclasses import replace
from itertools import count, islice

from uivlm.devices.sim.expert import record
from uivlm.devices.sim.goals import Split
from uivlm.devices.sim.tasks import task
from uivlm.episode import Episode


def of_length(split: Split, steps: int, number: int) -> list[Episode]:
    """The first so many that have at least so many steps, cut to that."""
    every = (record(task(seed, split)) for seed in count())
    long = (replace(one, steps=one.steps[:steps]) for one in every if len(one.steps) >= steps)
    return list(islice(long, number))

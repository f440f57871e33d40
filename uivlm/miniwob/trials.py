"""MiniWoB++ as a live benchmark: which unseen tasks in, trials out."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from uivlm.devices.device import DeviceError
from uivlm.devices.web import WebDevice
from uivlm.live import Trial
from uivlm.miniwob.tasks import NAMES, goal, room, succeeded, tasks


def trials(seed: int, number: int, names: tuple[str, ...] = NAMES) -> Iterator[Trial]:
    """So many tasks of the test split, each name in turn and on a page of its own; one begins when the one before is done."""
    with room() as here:
        for task in islice(tasks("test", seed, names), number):
            with here.begun(task) as device:
                yield Trial(goal(device), device, partial(_reached, device))


def _reached(device: WebDevice) -> bool:
    try:
        return succeeded(device)
    except DeviceError:  # the run has ended by it, and says so; a page that is gone has rewarded nothing
        return False

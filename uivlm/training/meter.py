"""What an optimizer step was worth: the loss of each kind of action, and how fast it went.

In: the nats of each trained token, forward by forward. Out: figures for the log, of all processes together.
"""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from uivlm.actions.language import KINDS

COUNTED = ("tokens", "screens", "episodes", "operations")
KILOBYTE = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`


@dataclass(frozen=True, slots=True)
class Read:
    """What a forward read, and how many floating-point operations that needs, forward and backward."""

    tokens: int
    screens: int
    episodes: int
    operations: float


class Meter:
    """Sums since the last `told`. `shared` adds a tensor up over all processes; `peak`: operations a second that all of them
    reach together when they multiply matrices."""

    def __init__(self, shared: Callable[[Tensor], Tensor], peak: float) -> None:
        self.shared, self.peak = shared, peak
        self._anew()

    def _anew(self) -> None:
        self.nats = torch.zeros(len(KINDS), dtype=torch.float64)
        self.trained = torch.zeros(len(KINDS), dtype=torch.float64)
        self.counts = torch.zeros(len(COUNTED), dtype=torch.float64)
        self.waited, self.since = 0.0, time.perf_counter()

    def waits(self, seconds: float) -> None:
        """So long nothing was computed, because no batch was there."""
        self.waited += seconds

    def add(self, nats: Tensor, kinds: Tensor, read: Read) -> None:
        """One forward: nats and kinds [trained tokens], in the same order."""
        nats, kinds = nats.detach().double().cpu(), kinds.cpu()
        self.nats.index_add_(0, kinds, nats)
        self.trained += torch.bincount(kinds, minlength=len(KINDS))
        self.counts += torch.tensor(astuple(read), dtype=torch.float64)

    def told(self) -> dict[str, float]:
        """The figures of the steps since; the sums begin anew.

        `loss_KIND`: nats per trained token of the actions of a kind; `loss_mean_of_kinds`: their mean, in which rare kinds
        weigh like frequent ones. `mfu`: model operations a second (without those of recomputation) as share of the peak. `wait`: share of the time in which this process waited for a batch. `memory_gb`: this
        process's highest so far, of the GPU where there is one.
        """
        seconds = time.perf_counter() - self.since
        nats, trained, counts = self.shared(torch.cat([self.nats, self.trained, self.counts])).split(
            [len(KINDS), len(KINDS), len(COUNTED)]
        )
        losses = {
            f"loss_{kind.replace(' ', '_')}": float(sum_ / number)
            for kind, sum_, number in zip(KINDS, nats, trained, strict=True)
            if number
        }
        a_second = {
            f"{name}_s": float(number) / seconds for name, number in zip(COUNTED, counts, strict=True)
        }
        figures = {
            **losses,
            "loss_mean_of_kinds": sum(losses.values()) / max(1, len(losses)),
            **a_second,
            "mfu": a_second["operations_s"] / self.peak,
            "wait": self.waited / seconds,
            "memory_gb": memory() / 1e9,
        }
        self._anew()
        return figures


def memory() -> int:
    """Bytes, at their highest so far."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE

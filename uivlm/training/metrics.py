"""Metrics of an optimizer step: the loss by action type, throughput, MFU and memory.

In: the loss of each trained token, forward by forward. Out: numbers for the log, summed over all processes.
"""

import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from uivlm.episodes.encode import TOKEN_TYPES

MATRIX_SIZES = {"cuda": 8192, "cpu": 1024}
NUM_TRIALS = 5
MAX_SECONDS = 1.0  # a CPU without bfloat16 units needs longer for one product
# Dense bfloat16 operations per second in the data sheets, by words of the device's name; the first fit is
# taken.
DATASHEET_FLOPS = {
    "B200": 2.25e15,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
}
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of `ru_maxrss`


def measure_peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a square matrix product; the fastest of a few trials."""
    size = MATRIX_SIZES.get(device.type, MATRIX_SIZES["cpu"])
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = list[float]()
    while len(seconds) < NUM_TRIALS and sum(seconds) < MAX_SECONDS:
        seconds.append(_time_matmul(a, b))
    return 2 * size**3 / min(seconds)


def datasheet_flops(device_name: str, dtype: torch.dtype) -> float | None:
    """Operations per second that the maker states; None for other dtypes and unknown devices."""
    if dtype != torch.bfloat16:
        return None
    fits = (
        flops
        for name, flops in DATASHEET_FLOPS.items()
        if set(name.split()) <= set(re.split(r"[\s-]", device_name))
    )
    return next(fits, None)


def _time_matmul(a: Tensor, b: Tensor) -> float:
    started = time.perf_counter()
    (a @ b)[0, 0].item()  # waits for a GPU
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What one forward pass read, and the floating-point operations of its forward and backward."""

    tokens: int
    screens: int
    episodes: int
    flops: float


class Meter:
    """Sums since the last `flush`. They stay on the device of the losses, so that adding waits for nothing.

    `all_reduce` sums a tensor over all processes. `peak_flops`: operations per second that all of them reach
    together in matrix products; `datasheet_flops`: those that the maker of their GPUs states, if known.
    """

    def __init__(
        self,
        all_reduce: Callable[[Tensor], Tensor],
        peak_flops: float,
        datasheet_flops: float | None = None,
    ) -> None:
        self.all_reduce, self.peak_flops, self.datasheet_flops = all_reduce, peak_flops, datasheet_flops
        self._reset()

    def _reset(self) -> None:
        self.loss_sums = torch.zeros(len(TOKEN_TYPES), dtype=torch.float64)
        self.num_trained_tokens = torch.zeros_like(self.loss_sums)
        self.counts = [0.0] * 4  # StepCounts
        self.wait_seconds, self.started = 0.0, time.perf_counter()

    def add_wait(self, seconds: float) -> None:
        """Add the time that this process waited for a batch."""
        self.wait_seconds += seconds

    def add(self, losses: Tensor, action_types: Tensor, counts: StepCounts) -> None:
        """Add one forward pass: losses and action types [trained tokens], in the same order."""
        losses = losses.detach().double()
        self.loss_sums = self.loss_sums.to(losses.device).index_add(0, action_types, losses)
        self.num_trained_tokens = self.num_trained_tokens.to(losses.device).index_add(
            0, action_types, torch.ones_like(losses)
        )
        self.counts = [total + new for total, new in zip(self.counts, astuple(counts), strict=True)]

    def flush(self) -> dict[str, float]:
        """Return the metrics accumulated since the last call, and reset them.

        `loss_TYPE`: mean loss per token (nats) of one action type; `loss_thought`: of thoughts. `loss_macro`:
        macro average over action types. `tflops`: model operations per second, without recomputation. `mfu`:
        their share of the measured peak; `mfu_datasheet`: of the stated one, if it is known.
        `data_loading_fraction`: share of the time in which this process waited for a batch. `peak_memory_gb`:
        highest memory of this process so far, of the GPU if there is one.
        """
        seconds = time.perf_counter() - self.started
        loss_sums, num_tokens, counts = self.all_reduce(
            torch.cat([self.loss_sums, self.num_trained_tokens, self.loss_sums.new_tensor(self.counts)])
        ).split([len(TOKEN_TYPES), len(TOKEN_TYPES), len(self.counts)])
        losses = {
            f"loss_{name.replace(' ', '_')}": float(loss_sum / count)
            for name, loss_sum, count in zip(TOKEN_TYPES, loss_sums, num_tokens, strict=True)
            if count
        }
        of_actions = [loss for name, loss in losses.items() if name != "loss_thought"]
        tokens, screens, episodes, flops = (counts / seconds).tolist()
        metrics = {
            **losses,
            "loss_macro": sum(of_actions) / max(1, len(of_actions)),
            "tokens_per_second": tokens,
            "screens_per_second": screens,
            "episodes_per_second": episodes,
            "tflops": flops / 1e12,
            "mfu": flops / self.peak_flops,
            **({"mfu_datasheet": flops / self.datasheet_flops} if self.datasheet_flops else {}),
            "data_loading_fraction": self.wait_seconds / seconds,
            "peak_memory_gb": peak_memory_bytes() / 1e9,
        }
        self._reset()
        return metrics


def peak_memory_bytes() -> int:
    """The highest memory of this process so far."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT

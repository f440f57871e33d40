"""The least time in which a device can do what a model does for an action: weights that it must read, operations that it must do.

Every forward of the language model reads its weights once, seeing reads the vision encoder's; torch counts the operations of both.
Neither can be faster than this device reads or multiplies, which is measured in the same run. Keys and values, and what a library
spends beside, are not counted: the floor is low.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from uivlm.episode import Episode
from uivlm.inference.predict import Predictor
from uivlm.models.vision import sees

TRIES = 10


@dataclass(frozen=True, slots=True)
class Device:
    """What it does in a second, at most."""

    bytes: float  # read, as the weights are for one token
    operations: float

    def least(self, read: int, operations: int) -> float:
        """Seconds."""
        return max(read / self.bytes, operations / self.operations)


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes."""

    language: int  # without the table of tokens
    vision: int


def device_of(module: nn.Module) -> Device:
    """By a product of a large matrix with a vector, and one of two matrices, in the type of the weights."""
    one = next(module.parameters())
    side = 16384 if one.device.type == "cuda" else 4096
    matrix = torch.randn(side, side, device=one.device, dtype=one.dtype)
    vector, other = matrix[0].clone(), matrix[:, : side // 4].clone()
    read = matrix.numel() * matrix.element_size() / _fastest(lambda: matrix @ vector)
    return Device(read, 2 * matrix.numel() * other.shape[1] / _fastest(lambda: matrix @ other))


def weights_of(module: nn.Module) -> Weights:
    size = {name: value.numel() * value.element_size() for name, value in module.named_parameters()}
    vision = sum(value for name, value in size.items() if sees(name))
    table: Tensor = module.get_input_embeddings().weight  # type: ignore[operator]
    return Weights(sum(size.values()) - vision - table.numel() * table.element_size(), vision)


def floors(
    predictor: Predictor, episode: Episode, steps: Iterable[int], device: Device, weights: Weights
) -> dict[int, float]:
    """Seconds of the action at each step."""
    module, counter = predictor.loaded.module, FlopCounterMode(display=False)
    passed: list[int] = []  # operations so far, before and after each forward

    def note(*_: object) -> None:
        passed.append(counter.get_total_flops())

    hooks = module.register_forward_pre_hook(note), module.register_forward_hook(note)
    found = {}
    for t in steps:
        passed.clear()
        with counter:
            predictor.predict(episode.history(t))
        starts, ends = passed[::2], passed[1::2]
        seen = [start - end for start, end in zip(starts, [0, *ends], strict=False)]
        found[t] = sum(device.least(weights.language, b - a) for a, b in zip(starts, ends, strict=True))
        found[t] += sum(device.least(weights.vision, each) for each in seen if each)
    for hook in hooks:
        hook.remove()
    return found


def _fastest(work: Callable[[], Tensor]) -> float:
    """Seconds."""
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        if work().is_cuda:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took)

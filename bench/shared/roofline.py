"""A lower bound on the time of one action: the weights that a device must read and the operations it must do.

Every forward of the language model reads its weights once; a screen reads those of the vision encoder.
torch counts the operations of both. The same run measures how fast the device reads and multiplies. The bound
leaves out keys, values and the overhead of libraries, so it is low.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from uivlm.episodes.episode import Episode
from uivlm.inference.engine import TorchEngine
from uivlm.models.multimodal import is_vision_parameter

NUM_TRIALS = 10


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """What it does in a second, at most."""

    bytes_per_second: float  # read, as the weights are for one token
    flops_per_second: float

    def min_seconds(self, num_bytes: int, flops: int) -> float:
        """Seconds."""
        return max(num_bytes / self.bytes_per_second, flops / self.flops_per_second)


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes."""

    language: int  # without the table of tokens
    vision: int


def measure_device(model: nn.Module) -> DeviceSpeed:
    """By a product of a large matrix with a vector, and one of two matrices, in the type of the weights."""
    one = next(model.parameters())
    side = 16384 if one.device.type == "cuda" else 4096
    matrix = torch.randn(side, side, device=one.device, dtype=one.dtype)
    vector, other = matrix[0].clone(), matrix[:, : side // 4].clone()
    read = matrix.numel() * matrix.element_size() / _fastest(lambda: matrix @ vector)
    return DeviceSpeed(read, 2 * matrix.numel() * other.shape[1] / _fastest(lambda: matrix @ other))


def count_weight_bytes(model: nn.Module) -> WeightBytes:
    size = {name: value.numel() * value.element_size() for name, value in model.named_parameters()}
    vision = sum(value for name, value in size.items() if is_vision_parameter(name))
    table: Tensor = model.get_input_embeddings().weight  # type: ignore[operator]
    return WeightBytes(sum(size.values()) - vision - table.numel() * table.element_size(), vision)


def latency_floors(
    predictor: TorchEngine, episode: Episode, steps: Iterable[int], speed: DeviceSpeed, weights: WeightBytes
) -> dict[int, float]:
    """Seconds of the action at each step."""
    module, counter = predictor.checkpoint.model, FlopCounterMode(display=False)
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
        found[t] = sum(speed.min_seconds(weights.language, b - a) for a, b in zip(starts, ends, strict=True))
        found[t] += sum(speed.min_seconds(weights.vision, each) for each in seen if each)
    for hook in hooks:
        hook.remove()
    return found


def _fastest(fn: Callable[[], Tensor]) -> float:
    """Seconds."""
    took = []
    for _ in range(NUM_TRIALS):
        began = time.perf_counter()
        if fn().is_cuda:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took)

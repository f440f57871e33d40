"""How fast this machine multiplies matrices: what the work of a training step is held against."""

import time

import torch

SIDES = {"cuda": 8192, "cpu": 1024}
TRIES = 5
ENOUGH = 1.0  # seconds: a CPU without bfloat16 units takes longer for one product


def peak(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of a product of two square matrices, in its fastest try of some."""
    side = SIDES.get(device.type, SIDES["cpu"])
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    taken = list[float]()
    while len(taken) < TRIES and sum(taken) < ENOUGH:
        taken.append(_seconds(a, b))
    return 2 * side**3 / min(taken)


def _seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    began = time.perf_counter()
    (a @ b)[0, 0].item()  # waits for a GPU
    return time.perf_counter() - began

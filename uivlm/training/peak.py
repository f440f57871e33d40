"""How fast this machine multiplies matrices: what the work of a training step is held against."""

import time

import torch

SIDES = {"cuda": 8192, "cpu": 512}  # a CPU that knows no bfloat16 takes a second for 1024
TRIES = 5


def peak(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of a product of two square matrices, in its fastest try of some."""
    side = SIDES.get(device.type, SIDES["cpu"])
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return max(2 * side**3 / _seconds(a, b) for _ in range(TRIES))


def _seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    began = time.perf_counter()
    (a @ b)[0, 0].item()  # waits for a GPU
    return time.perf_counter() - began

"""A model whose weights are split over all processes of a run: PyTorch's FSDP2 (`fully_shard`).

In: process 0's model in the machine's memory, and in the other processes the same model's shapes. Out: in
each process its share of every weight, on its device. The weights of a block are gathered while it computes.
A function marked "collective" is called by all processes together.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor


def shard(
    model: nn.Module, device: torch.device, compute_dtype: torch.dtype | None, cpu_offload: bool
) -> None:
    """Give each process its share of process 0's weights. Collective.

    Blocks are sent and split one by one: no device ever holds the whole model. With a `compute_dtype`,
    trained weights become float32, and a block computes with copies of that dtype.
    """
    _match_dtypes(model)
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=compute_dtype,
            reduce_dtype=torch.float32 if compute_dtype else None,
            cast_forward_inputs=False,  # pixels stay float32 until the model casts them
        ),
        "offload_policy": CPUOffloadPolicy(device.type == "cuda") if cpu_offload else OffloadPolicy(),
    }
    received: set[nn.Module] = set()
    for block in (*_blocks(model), model):
        parts = [part for part in block.modules() if part not in received]
        _receive(parts, device, compute_dtype is not None)
        fully_shard(block, **options)
        received.update(parts)
    left = [name for name, value in _tensors(model) if value.is_meta]
    assert not left, f"these tensors have no values: {left[:4]}"


def gather_weights(
    model: nn.Module, device: torch.device, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Process 0: whole tensors on the CPU, by name; the others: none. Collective.

    Without a `dtype`, the trained ones; with it, all, and floating-point ones as `dtype`. A tensor of several
    names stays one tensor.
    """
    whole: dict[int, Tensor | None] = {}
    gathered: dict[str, Tensor] = {}
    for name, value in (*model.named_parameters(remove_duplicate=False), *model.named_buffers()):
        if dtype is None and not value.requires_grad:
            continue
        if id(value) not in whole:
            full = value.detach().to(device)
            full = full.full_tensor() if isinstance(full, DTensor) else full
            wanted = dtype if full.is_floating_point() else None
            whole[id(value)] = full.to("cpu", wanted) if dist.get_rank() == 0 else None
        if (kept := whole[id(value)]) is not None:
            gathered[name] = kept
    return gathered


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def is_first_process() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks of each stack: a stack of transformer blocks is always a ModuleList."""
    for part in model.children():
        if isinstance(part, nn.ModuleList):
            yield from part
        else:
            yield from _blocks(part)


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _match_dtypes(model: nn.Module) -> None:
    """Give the shapes process 0's dtypes: reading weights leaves some buffers float32. Collective."""
    own = [(name, tuple(value.shape), value.dtype) for name, value in _tensors(model)]
    first: list[Any] = [own]
    dist.broadcast_object_list(first, src=0)
    assert [row[:2] for row in own] == [row[:2] for row in first[0]], "the processes have different models"
    for (_, value), (_, _, dtype) in zip(_tensors(model), first[0], strict=True):
        value.data = value.data.to(dtype)


def _receive(parts: list[nn.Module], device: torch.device, as_float32: bool) -> None:
    """Replace the modules' own tensors by process 0's, on the device. Shared ones stay shared. Collective."""
    seen: dict[int, tuple[Tensor, Tensor]] = {}  # old and new tensors, by the id of the old one
    for part in parts:
        tables: tuple[dict[str, Any], ...] = part._parameters, part._buffers
        for held in tables:
            for name, old in held.items():
                if old is None:
                    continue
                if id(old) not in seen:
                    new = _broadcast(old, device)
                    if isinstance(old, nn.Parameter):
                        new = new.float() if as_float32 and old.requires_grad else new
                        new = nn.Parameter(new, requires_grad=old.requires_grad)
                    seen[id(old)] = old, new
                held[name] = seen[id(old)][1]


def _broadcast(value: Tensor, device: torch.device) -> Tensor:
    on_device = (
        value.detach().to(device).contiguous()
        if dist.get_rank() == 0
        else torch.empty(value.shape, dtype=value.dtype, device=device)
    )
    dist.broadcast(on_device, src=0)
    return on_device

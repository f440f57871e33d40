"""A model whose weights are split over all processes of a run: PyTorch's FSDP2 (`fully_shard`).

In: the same model in every process, most of its weights as shapes alone, and the files of these. Out: in each
process its share of every weight, on its device; it reads no other rows. The weights of a block are gathered
while it computes. A function marked "collective" is called by all processes together.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard

from uivlm.models.stored_weights import StoredWeight, StoredWeights

T = TypeVar("T")


def shard(
    model: nn.Module,
    device: torch.device,
    compute_dtype: torch.dtype | None,
    cpu_offload: bool,
    stored: StoredWeights,
) -> None:
    """Give each process its share of the weights. Collective.

    `stored`: by the model's names, those that are read from files. All others have the same values in every
    process, and so have buffers. With a `compute_dtype`, trained weights become float32, and a block computes
    with copies of that dtype.
    """
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=compute_dtype,
            reduce_dtype=torch.float32 if compute_dtype else None,
            cast_forward_inputs=False,  # pixels stay float32 until the model casts them
        ),
        "offload_policy": CPUOffloadPolicy(device.type == "cuda") if cpu_offload else OffloadPolicy(),
    }
    dtypes = {name: value.dtype for name, value in model.named_parameters(remove_duplicate=False)}
    for name, buffer in model.named_buffers():
        if name in stored:
            buffer.copy_(stored[name].read())

    def prepared(name: str, value: nn.Parameter) -> nn.Parameter:
        new = torch.empty_like(value, device="meta") if name in stored else value.detach()
        new = new.float() if compute_dtype is not None and value.requires_grad else new
        return nn.Parameter(new, requires_grad=value.requires_grad)

    replace_parameters(model, prepared)
    for block in (*_blocks(model), model):
        fully_shard(block, **options)
    place = torch.device("cpu") if cpu_offload else device

    def read(name: str, value: nn.Parameter) -> nn.Parameter:
        return _read_share(value, stored[name], dtypes[name], place) if name in stored else value

    replace_parameters(model, read)
    left = [name for name, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
    assert not left, f"these tensors have no values: {left[:4]}"


def replace_parameters(model: nn.Module, replaced: Callable[[str, nn.Parameter], nn.Parameter]) -> None:
    """Put `replaced(name, parameter)` in place of every parameter. A parameter of two names stays one."""
    seen: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # old and new ones, by the id of the old one
    for name, old in list(model.named_parameters(remove_duplicate=False)):
        if id(old) not in seen:
            seen[id(old)] = old, replaced(name, old)
        part, _, last = name.rpartition(".")
        setattr(model.get_submodule(part), last, seen[id(old)][1])


def gather_weights(
    model: nn.Module, device: torch.device, folder: Path, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Process 0: whole tensors on the CPU, by name; the others: none. Collective.

    Process 0 holds one whole tensor at a time: it writes each into a file in `folder`, and the result is
    mapped from there. Without a `dtype`, the trained ones; with it, all, and floating-point ones as `dtype`.
    A tensor of several names stays one tensor.
    """
    if is_first_process():
        folder.mkdir(exist_ok=True)  # of an interrupted run: its files are replaced
    whole: dict[int, Tensor | None] = {}
    gathered: dict[str, Tensor] = {}
    for name, value in (*model.named_parameters(remove_duplicate=False), *model.named_buffers()):
        if dtype is None and not value.requires_grad:
            continue
        if id(value) not in whole:
            full = value.detach().to(device)
            full = full.full_tensor() if isinstance(full, DTensor) else full
            new_dtype = dtype if full.is_floating_point() else None
            file = folder / f"{len(whole)}.safetensors"
            whole[id(value)] = _to_file(full.to("cpu", new_dtype), file) if is_first_process() else None
        if (kept := whole[id(value)]) is not None:
            gathered[name] = kept
    return gathered


def _to_file(value: Tensor, file: Path) -> Tensor:
    """The tensor in a new file, mapped into memory: the system drops its pages when it needs room."""
    save_file({"value": value.contiguous()}, file)
    return load_file(file)["value"]


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def is_first_process() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def from_first_process(value: Callable[[], T]) -> T:
    """What `value` returns in process 0, in all processes. Collective."""
    if not dist.is_initialized():
        return value()
    values = [value() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(values, src=0)
    return values[0]  # type: ignore[return-value]


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks of each stack: a stack of transformer blocks is always a ModuleList."""
    for part in model.children():
        if isinstance(part, nn.ModuleList):
            yield from part
        else:
            yield from _blocks(part)


def _read_share(
    value: nn.Parameter, weight: StoredWeight, dtype: torch.dtype, device: torch.device
) -> nn.Parameter:
    """The sharded parameter with this process's rows of the weight, as `dtype` before its own."""
    assert isinstance(value, DTensor), "fully_shard splits every parameter"
    mesh = value.device_mesh
    size, start = Shard.local_shard_size_and_offset(len(value), mesh.size(), mesh.get_local_rank())
    new = torch.empty_like(value, device=device)
    local = cast(DTensor, new).to_local()
    assert local.shape == (size, *value.shape[1:]), f"fully_shard split {value.placements} rather than rows"
    if size:
        local.copy_(weight.read_rows(start, start + size).to(dtype))
    return nn.Parameter(new, requires_grad=value.requires_grad)

"""Two steps of a small sharded Qwen-VL in two processes, of which only the first has screens.

tests/training/test_fsdp.py runs this program with the model's folder and an empty one.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from uivlm.models.qwen_vl import files
from uivlm.models.sharding import gather_weights, shard
from uivlm.models.stored_weights import StoredWeight
from uivlm.training.distributed import process_group
from uivlm.training.train import exit_distributed


def main(folder: str, scratch: Path) -> None:
    with process_group() as device:
        rank = dist.get_rank()
        module = files.from_config(folder, torch.float32)
        module.requires_grad_(False).transformer.h.requires_grad_(True)
        share = sum(value.numel() for value in module.parameters()) // 2
        stored = files.open_weights(folder)
        watched = {
            name: replace(weight, read_rows=while_holding(share, weight)) for name, weight in stored.items()
        }
        shard(module, device, None, False, watched)
        whole = files.load(folder, torch.float32)
        own = sum(value.to_local().numel() for value in module.parameters() if isinstance(value, DTensor))
        assert own == share
        ids, pixels = row(module, rank == 0)
        assert module.train()(ids, pixels=pixels).logits.equal(whole.train()(ids, pixels=pixels).logits)
        optimizer = torch.optim.AdamW([v for v in module.parameters() if v.requires_grad], 1e-3)
        for _ in range(2):
            module(ids, pixels=pixels).logits.square().mean().backward()
            optimizer.step()
        with holding_no_more_than(4 * max(value.numel() for value in module.parameters())) as writes:
            gathered = gather_weights(module, device, scratch / "whole", torch.float32)
            if rank == 0:
                save(folder, gathered, scratch / "saved")
        assert bool(writes) == (rank == 0)
        expected = {name for name, _ in (*whole.named_parameters(), *whole.named_buffers())}
        assert gathered.keys() == (expected if rank == 0 else set())
        before = dict(whole.named_parameters())
        moved = {name for name, value in gathered.items() if name in before and not value.equal(before[name])}
        assert all(name.startswith("transformer.h.") for name in moved)
        assert bool(moved) == (rank == 0)
        if rank == 0:
            saved = files.load(scratch / "saved", torch.float32).state_dict()
            assert all(value.equal(gathered[name]) for name, value in saved.items())
        print(f"process {rank} is done", flush=True)
    exit_distributed()


def while_holding(share: int, weight: StoredWeight) -> Callable[[int, int], Tensor]:
    """`read_rows`, while this process holds no more than its share, and asks for its own rows."""

    def read_rows(start: int, stop: int) -> Tensor:
        assert held_bytes() <= 4 * share
        assert stop - start == weight.shape[0] // 2
        return weight.read_rows(start, stop)

    return read_rows


@contextmanager
def holding_no_more_than(limit: int) -> Iterator[list[int]]:
    """While a file of weights is written, this process holds `limit` bytes more than before; gives these."""
    before, held, write = held_bytes(), list[int](), safetensors.torch.serialize_file

    def measured(*arguments: Any, **named: Any) -> None:
        held.append(held_bytes() - before)
        write(*arguments, **named)

    with patch.object(safetensors.torch, "serialize_file", measured):
        yield held
    assert max(held, default=0) <= limit


def held_bytes() -> int:
    """Of this process's tensors, without those that are mapped from a file.

    What holds less than 4 KiB is not counted: a test has many small tensors.
    """
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    bounds = [line[0].split("-") for line in lines if line[-1].endswith(".safetensors")]
    files_at = [range(int(start, 16), int(end, 16)) for start, end in bounds]
    tensors = (value for value in gc.get_objects() if isinstance(value, Tensor))
    plain = (value.to_local() if isinstance(value, DTensor) else value for value in tensors)
    storages = {v.untyped_storage()._cdata: v.untyped_storage() for v in plain if not v.is_meta}
    own = (v for v in storages.values() if not any(v.data_ptr() in at for at in files_at))
    return sum(storage.nbytes() for storage in own if storage.nbytes() >= 4096)


def save(base: str, weights: dict[str, Tensor], out: Path) -> None:
    """The model with these weights, as a run saves it."""
    model = files.from_config(base, torch.float32)
    model.load_state_dict(weights, strict=False, assign=True)
    files.save(out, model, max_shard_size="100KB")


def row(module: files.QwenVL, sees: bool) -> tuple[Tensor, Tensor | None]:
    words = torch.arange(10, 30)
    if not sees:
        return words[None], None
    places = torch.full((module.config.num_queries,), module.config.image_token_id)
    start = torch.tensor([module.config.image_start_id])
    side = int(module.config.visual["image_size"])
    pixels = torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8)
    return torch.cat([words, start, places, start + 1])[None], pixels


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""Two steps of a small sharded Qwen-VL in two processes, of which only the first has screens.

tests/training/test_fsdp.py runs this program with the model's folder as its argument.
"""

import gc
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from uivlm.models import sharding
from uivlm.models.qwen_vl import files
from uivlm.models.sharding import gather_weights, shard
from uivlm.training.distributed import process_group
from uivlm.training.train import exit_distributed


def main(folder: str) -> None:
    with process_group() as device:
        rank = dist.get_rank()
        module = files.load(folder, torch.float32) if rank == 0 else files.from_config(folder, torch.float32)
        module.requires_grad_(False).transformer.h.requires_grad_(True)
        sharding.fully_shard = only_a_block_is_whole if rank else sharding.fully_shard
        shard(module, device, None, cpu_offload=False)
        whole = files.load(folder, torch.float32)
        own = sum(value.to_local().numel() for value in module.parameters() if isinstance(value, DTensor))
        assert own == sum(value.numel() for value in whole.parameters()) // 2
        ids, pixels = row(module, rank == 0)
        assert module.train()(ids, pixels=pixels).logits.equal(whole.train()(ids, pixels=pixels).logits)
        optimizer = torch.optim.AdamW([v for v in module.parameters() if v.requires_grad], 1e-3)
        for _ in range(2):
            module(ids, pixels=pixels).logits.square().mean().backward()
            optimizer.step()
        gathered = gather_weights(module, device, torch.float32)
        expected = {name for name, _ in (*whole.named_parameters(), *whole.named_buffers())}
        assert gathered.keys() == (expected if rank == 0 else set())
        before = dict(whole.named_parameters())
        moved = {name for name, value in gathered.items() if name in before and not value.equal(before[name])}
        assert all(name.startswith("transformer.h.") for name in moved)
        assert bool(moved) == (rank == 0)
        print(f"process {rank} is done", flush=True)
    exit_distributed()


def only_a_block_is_whole(block: nn.Module, **options: Any) -> None:
    """`fully_shard`, when this process holds whole weights of this block alone."""
    held = {id(v): v.numel() for v in gc.get_objects() if type(v) is nn.Parameter and not v.is_meta}
    assert sum(held.values()) == sum(v.numel() for v in block.parameters() if not isinstance(v, DTensor))
    fully_shard(block, **options)


def row(module: files.QwenVL, sees: bool) -> tuple[Tensor, Tensor | None]:
    words = torch.arange(10, 30)
    if not sees:
        return words[None], None
    places = torch.full((module.config.num_queries,), module.config.image_token_id)
    start = torch.tensor([module.config.image_start_id])
    side = int(module.config.visual["image_size"])
    return torch.cat([words, start, places, start + 1])[None], torch.rand(1, 3, side, side)


if __name__ == "__main__":
    main(sys.argv[1])

"""Two ZeRO-3 steps of a small Qwen-VL in two processes, of which only rank 0 has screens.

tests/training/test_deepspeed.py runs this program with the model's folder as its argument.
"""

import os
import sys

import torch
from torch import Tensor

from uivlm.models.qwen_vl import files
from uivlm.training.deepspeed import deepspeed_config
from uivlm.training.train import exit_distributed

config = deepspeed_config(3)
assert config is not None
import deepspeed as library  # noqa: E402  # only now is its compiler out of the way


def main(folder: str) -> None:
    library.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    module = files.load(folder, torch.float32)
    module.requires_grad_(False)
    module.transformer.h.requires_grad_(True)
    trained = [value for value in module.parameters() if value.requires_grad]
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": config["zero_optimization"]}
    optimizer = torch.optim.AdamW(trained, 1e-3)
    engine, *_ = library.initialize(
        model=module.train(),
        model_parameters=trained,
        optimizer=optimizer,
        config=settings | {"zero_allow_untested_optimizer": True},
    )
    ids, pixels = row(module, rank == 0)
    for _ in range(2):
        loss = engine(ids, pixels=pixels).logits.square().mean()
        engine.backward(loss)
        engine.step()
    print(f"process {rank} is done", flush=True)
    torch.distributed.barrier()
    exit_distributed()


def row(module: files.QwenVL, sees: bool) -> tuple[Tensor, Tensor | None]:
    token_ids = torch.arange(10, 30)
    if not sees:
        return token_ids[None], None
    places = torch.full((module.config.num_queries,), module.config.image_token_id)
    start = torch.tensor([module.config.image_start_id])
    side = int(module.config.visual["image_size"])
    return torch.cat([token_ids, start, places, start + 1])[None], torch.rand(1, 3, side, side)


if __name__ == "__main__":
    main(sys.argv[1])

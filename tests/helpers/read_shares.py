"""Every kind of model read in shares: gathered, they are the model of one process, bit for bit.

tests/training/test_read_shares.py runs this program in several processes, with the folder of the models and
an empty one.
"""

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.helpers.every_kind import EVERY_KIND, recipe_of
from uivlm.models import stored_weights
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import build
from uivlm.models.sharding import gather_weights
from uivlm.recipe import LlamaPartsArgs, Recipe
from uivlm.training.distributed import process_group
from uivlm.training.fsdp import build_base, shard_model
from uivlm.training.train import exit_distributed

FEW = ("llama_vit", "parts_vit", "Qwen2_5_VL", "full bfloat16", "tied")  # in more than two processes
READ = Counter[str]()  # bytes, by the name in the file
safe_open = stored_weights.safe_open


class CountedSlice:
    def __init__(self, name: str, part: Any) -> None:
        self.name, self.part, self.get_shape = name, part, part.get_shape

    def __getitem__(self, rows: Any) -> Tensor:
        value: Tensor = self.part[rows]
        READ[self.name] += value.nbytes
        return value


class CountedFile:
    def __init__(self, file: Path, framework: str) -> None:
        self.opened = safe_open(file, framework)
        self.keys = self.opened.keys

    def get_slice(self, name: str) -> CountedSlice:
        return CountedSlice(name, self.opened.get_slice(name))


def recipes(root: Path) -> dict[str, Recipe]:
    """A run of every kind with adapters, and runs of models whose files are special."""
    found = {kind: recipe_of(root, kind) for kind in EVERY_KIND}

    def with_model(kind: str, **changes: Any) -> Recipe:
        return replace(found[kind], model=replace(found[kind].model, **changes))

    full = recipe_of(root, "Qwen2_5_VL", precision="bfloat16", fsdp=True)
    found["full bfloat16"] = replace(full, model=replace(full.model, lora=None))
    found["vision adapters"] = with_model("Qwen3VL", lora=replace(found["Qwen3VL"].model.lora, vision=True))
    found["sharded"] = with_model("Qwen2VL", base_model=str(root / "sharded"))
    found["tied"] = with_model("Qwen2VL", base_model=str(root / "tied"))
    found["tied head"] = with_model("Qwen2VL", base_model=str(root / "tied_head"))
    found["tied bridge"] = with_model("llama_vit", base_model=str(root / "tied_bridge"))
    found["bin"] = with_model("qwen_vl", base_model=str(root / "bin"))
    found["swiglu"] = with_model("parts_dinov2", vision_encoder=str(root / "swiglu"))
    found["second stage"] = with_model("parts_vit", projector=str(root / "stage1"))
    found["second stage of a folder"] = with_model("llama_vit", projector=str(root / "stage1"))
    return found


def check(name: str, recipe: Recipe, device: torch.device, scratch: Path) -> None:
    READ.clear()
    loaded, stored = build_base(recipe)
    before = Counter(READ)
    model = prepare_for_training(loaded, recipe.train.seed)
    shard_model(recipe, model, stored, device)
    read = READ - before
    if name not in ("bin", "swiglu"):  # not in counted files; converted from whole weights
        assert sum(read.values()) == sum(map(own_bytes, shapes_in_files(recipe, model))), name
    if name == "swiglu":
        halves = {key: size for key, size in read.items() if "weights_in" in key}
        assert halves, "this encoder is to be split"
    new_projection = isinstance(recipe.model, LlamaPartsArgs) and recipe.model.projector is None
    measured = {"model.embed_tokens.weight"} if new_projection and dist.get_rank() == 0 else set()
    assert set(before) == measured, f"{name}: {before}"
    gathered = gather_weights(model, device, scratch / name, torch.float32)
    if dist.get_rank():
        return
    whole = build(recipe)
    expected = prepare_for_training(whole, recipe.train.seed)
    tensors = dict((*expected.named_parameters(remove_duplicate=False), *expected.named_buffers()))
    assert gathered.keys() == tensors.keys(), name
    for key, value in tensors.items():
        assert gathered[key].equal(value.float() if value.is_floating_point() else value), f"{name}: {key}"


def shapes_in_files(recipe: Recipe, model: nn.Module) -> list[tuple[int, ...]]:
    """Of the weights that are read from the files of bases: all but adapters, and a projection that is new or
    of an earlier stage. A tied one once.
    """
    assert all(isinstance(value, DTensor) for value in model.parameters())
    new = r"\.lora_"
    if isinstance(recipe.model, LlamaPartsArgs) or getattr(recipe.model, "projector", None):
        new += r"|base_model\.model\.projection\."
    return [tuple(value.shape) for name, value in model.named_parameters() if not re.search(new, name)]


def own_bytes(shape: tuple[int, ...]) -> int:
    """Of a float32 weight: torch.chunk gives process r the rows from r * ceil(rows / processes)."""
    size = -(-shape[0] // dist.get_world_size())
    rows = len(range(shape[0])[dist.get_rank() * size :][:size])
    return 4 * rows * torch.Size(shape[1:]).numel()


def main(root: Path, scratch: Path) -> None:
    with process_group() as device:
        stored_weights.safe_open = CountedFile
        known = recipes(root)
        for name in FEW if dist.get_world_size() > 2 else known:
            check(name, known[name], device, scratch)
        print(f"process {dist.get_rank()} is done", flush=True)
    exit_distributed()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

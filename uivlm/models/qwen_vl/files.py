"""Qwen-VL on disk or on the hub, in the original's format: `config.json`, weights, `qwen.tiktoken`.

In: a folder or a hub id. Out: the model and its tokens; and back into a folder. Weights may be one file or sharded,
safetensors or PyTorch's `.bin` (read without running any code in it). Loading is strict: every weight is there once,
with its shape, or one sentence says what is wrong.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn

from uivlm.models import hub
from uivlm.models.qwen_vl.config import LongContext, QwenVLConfig, from_original, to_original
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokens import FILE, Tokens, read_ranks
from uivlm.models.weights import Shapes, check_shapes, shapes_in, shapes_of

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there counts, whole or sharded


def load(
    name: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    long_context: LongContext | None = None,
    **rest: Any,
) -> QwenVL:
    """The model in evaluation mode. `long_context` None: as the folder says, else "none".

    `rest` goes to transformers' `from_pretrained`: `quantization_config`, `device_map`.
    """
    root = fetch(name)
    config = read_config(root)
    if long_context is not None:
        config.long_context = long_context
    check(root, config)
    loaded: Any = QwenVL.from_pretrained(
        root, config=config, dtype=dtype, weights_only=True, output_loading_info=True, **rest
    )
    module, told = loaded
    wrong = {kind: sorted(names) for kind, names in told.items() if names}
    assert not wrong, f"weights that were checked did not load: {wrong}"
    assert isinstance(module, QwenVL)
    nn.Module.eval(module)
    return module


def outline(
    name: str | Path, dtype: torch.dtype, long_context: LongContext | None = None, device: str = "meta"
) -> QwenVL:
    """The model of its configuration alone: on the meta device its shapes, elsewhere with random weights."""
    config = read_config(fetch(name, weights=False))
    if long_context is not None:
        config.long_context = long_context
    with torch.device(device):
        module = QwenVL(config)
    nn.Module.to(module, dtype)
    nn.Module.eval(module)
    return module


def load_tokens(name: str | Path) -> Tokens:
    root = fetch(name, weights=False)
    if not (root / FILE).is_file():
        raise ValueError(f"the folder {root} has no {FILE}: it comes with every Qwen-VL")
    return Tokens(read_ranks(root / FILE))


def fetch(name: str | Path, weights: bool = True) -> Path:
    """The folder of that name, or else what the hub has under that id, downloaded once."""
    heavy = ["*.safetensors*", "*.bin*"] if weights else []
    return hub.fetch(name, "Qwen-VL", [CONFIG, "generation_config.json", FILE, *heavy])


def read_config(root: Path) -> QwenVLConfig:
    if not (root / CONFIG).is_file():
        raise ValueError(f"the folder {root} holds no Qwen-VL: it has no {CONFIG}")
    try:
        return from_original(json.loads((root / CONFIG).read_text("utf-8")))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{root / CONFIG} describes no Qwen-VL that can be read: {error}") from error


def check(root: Path, config: QwenVLConfig) -> None:
    """Every weight of the model is in the folder, once, with its shape; ValueError otherwise."""
    found: Shapes = {}
    for file in weight_files(root):
        told = shapes_in(file)
        if twice := found.keys() & told.keys():
            raise ValueError(f"{file} holds {min(twice)}, which another shard holds as well")
        found |= told
    with torch.device("meta"):
        wanted = shapes_of(QwenVL(config).state_dict())
    check_shapes(root, found, wanted)


def weight_files(root: Path) -> list[Path]:
    for name in WEIGHTS:
        if (root / name).is_file():
            return [root / name]
        index = root / f"{name}.index.json"
        if not index.is_file():
            continue
        try:
            files = [
                root / file
                for file in sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} is damaged ({error}): get it again") from error
        for file in files:
            if not file.is_file():
                raise ValueError(f"{index} names {file.name}, which is not there: get it")
        return files
    raise ValueError(
        f"the folder {root} has no weights: neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or sharded"
    )


def save(folder: str | Path, module: QwenVL, tokens: Path | None = None, max_shard_size: str = "5GB") -> None:
    """Write the model in the original's format under a temporary name, then rename. `tokens`: its `qwen.tiktoken`."""
    out = Path(folder)
    if out.exists():
        raise ValueError(f"{out} exists already: name a new folder")
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    weights: dict[str, Tensor] = {name: value.detach() for name, value in module.state_dict().items()}
    save_torch_state_dict(weights, fresh, max_shard_size=max_shard_size, metadata={"format": "pt"})
    told = to_original(module.config) | {"torch_dtype": str(module.dtype).removeprefix("torch.")}
    (fresh / CONFIG).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")
    if tokens is not None:
        shutil.copyfile(tokens, fresh / FILE)
    os.replace(fresh, out)

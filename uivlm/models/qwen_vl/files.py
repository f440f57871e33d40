"""Qwen-VL on disk or on the hub, in the original's format: `config.json`, weights, `qwen.tiktoken`.

In: a folder or a hub id. Out: the model and its tokenizer. Weights may be one file or sharded, safetensors or
PyTorch's `.bin` (read without running code in it). Loading is strict: a weight that is missing, stored twice
or of another shape is an error of one sentence.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn

from uivlm.atomic import new_dir
from uivlm.models import pretrained
from uivlm.models.pretrained import check_finite, check_shapes, shapes_of
from uivlm.models.qwen_vl.config import LongContext, QwenVLConfig, from_original, to_original
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokenizer import TOKENIZER_FILE, QwenTokenizer, read_ranks
from uivlm.models.stored_weights import PYTORCH, SAFETENSORS, StoredWeights, open_files, weight_files

CONFIG = "config.json"
WEIGHT_FILES = (SAFETENSORS, PYTORCH)


def load(
    name: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    long_context: LongContext | None = None,
    **rest: Any,
) -> QwenVL:
    """The model in evaluation mode. `long_context` None: as in the folder's configuration, else "none".

    `rest` goes to transformers' `from_pretrained`: `quantization_config`, `device_map`.
    """
    root = find_or_download(name)
    config = read_config(root)
    if long_context is not None:
        config.long_context = long_context
    check_weights(root, config)
    loaded: Any = QwenVL.from_pretrained(
        root,
        config=config,
        dtype=dtype,
        weights_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        **rest,
    )
    model, report = loaded
    wrong = {problem: sorted(names) for problem, names in report.items() if names}
    assert not wrong, f"weights that were checked did not load: {wrong}"
    assert isinstance(model, QwenVL)
    check_finite(root, model.named_parameters())
    nn.Module.eval(model)
    return model


def from_config(
    name: str | Path, dtype: torch.dtype, long_context: LongContext | None = None, device: str = "meta"
) -> QwenVL:
    """The model made from its configuration alone: shapes on the meta device, random weights elsewhere."""
    config = read_config(find_or_download(name, with_weights=False))
    if long_context is not None:
        config.long_context = long_context
    with pretrained.created_as(dtype, device):
        module = QwenVL(config)
    nn.Module.eval(module)
    return module


def open_weights(name: str | Path) -> StoredWeights:
    """The weights of the model that `from_config` makes, in their files."""
    root = find_or_download(name)
    return check_weights(root, read_config(root))


def load_tokenizer(name: str | Path) -> QwenTokenizer:
    root = find_or_download(name, with_weights=False)
    if not (root / TOKENIZER_FILE).is_file():
        raise ValueError(f"the folder {root} has no {TOKENIZER_FILE}: it comes with every Qwen-VL")
    return QwenTokenizer(read_ranks(root / TOKENIZER_FILE))


def find_or_download(name: str | Path, with_weights: bool = True) -> Path:
    """The folder of that name, or else the hub's model of that id, downloaded once."""
    heavy = ["*.safetensors*", "*.bin*"] if with_weights else []
    return pretrained.find_or_download(
        name, "Qwen-VL", [CONFIG, "generation_config.json", TOKENIZER_FILE, *heavy]
    )


def read_config(root: Path) -> QwenVLConfig:
    if not (root / CONFIG).is_file():
        raise ValueError(f"the folder {root} is not a Qwen-VL: it has no {CONFIG}")
    try:
        return from_original(json.loads((root / CONFIG).read_text("utf-8")))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{root / CONFIG} does not describe a supported Qwen-VL: {error}") from error


def check_weights(root: Path, config: QwenVLConfig) -> StoredWeights:
    """The weights in the folder. ValueError unless it has every one of the model, once, with its shape."""
    weights = open_files(weight_files(root, WEIGHT_FILES))
    with torch.device("meta"):
        expected = shapes_of(QwenVL(config).state_dict())
    check_shapes(root, shapes_of(weights), expected)
    return weights


def save(
    folder: str | Path, model: QwenVL, tokenizer_file: Path | None = None, max_shard_size: str = "5GB"
) -> None:
    """Write the model in the original's format into a new folder. `tokenizer_file`: its `qwen.tiktoken`."""
    weights: dict[str, Tensor] = {name: value.detach() for name, value in model.state_dict().items()}
    config = to_original(model.config) | {"torch_dtype": str(model.dtype).removeprefix("torch.")}
    with new_dir(Path(folder)) as out:
        save_torch_state_dict(weights, out, max_shard_size=max_shard_size, metadata={"format": "pt"})
        (out / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", "utf-8")
        if tokenizer_file is not None:
            shutil.copyfile(tokenizer_file, out / TOKENIZER_FILE)

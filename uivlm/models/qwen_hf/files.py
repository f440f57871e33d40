"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL on disk or on the hub, in the format of the hub.

In: a folder or a hub id. Out: the model, and how it reads; and back into a folder. Loading is strict: every weight is
there with its shape, or one sentence says what is wrong. Nothing here needs torchvision.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)

from uivlm.models import hub
from uivlm.models.hub import first_line
from uivlm.models.published import colours, load_module, read_table
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.pixels import Scale, Sight
from uivlm.models.qwen_hf.reader import Reader

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
PIXELS = ("preprocessor_config.json", "processor_config.json")  # the first that is there counts
READING = (TOKENIZER, TOKENIZER_CONFIG, *PIXELS)
FETCHED = [CONFIG, "generation_config.json", *READING, "chat_template.*"]
WHAT = "Qwen2-VL or later"
WEIGHTS = "*.safetensors*"
KINDS: dict[str, type[PreTrainedModel]] = {
    kind.__name__: kind
    for kind in (
        Qwen2VLForConditionalGeneration,
        Qwen2_5_VLForConditionalGeneration,
        Qwen3VLForConditionalGeneration,
    )
}


def load(name: str | Path, dtype: torch.dtype = torch.bfloat16, **rest: Any) -> QwenHF:
    """The model in evaluation mode. `rest` goes to `from_pretrained`: `quantization_config`, `device_map`."""
    root = fetch(name)
    module = QwenHF(load_module(architecture(root), root, dtype, **rest))
    nn.Module.eval(module)
    return module


def load_reader(name: str | Path, sight: Sight | None = None) -> Reader:
    root = fetch(name, weights=False)
    config = _config(root, architecture(root))
    tokenizer = read_tokenizer(root / TOKENIZER)
    control = {str(token): at for at, token in tokenizer.get_added_tokens_decoder().items()}
    ids = set(control.values())
    for field in ("image_token_id", "vision_start_token_id", "vision_end_token_id"):
        if getattr(config, field) not in ids:
            raise ValueError(
                f"{root / CONFIG}: {field} is {getattr(config, field)}, no control token of {TOKENIZER}"
            )
    if max(tokenizer.get_vocab().values()) >= config.text_config.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has ids up to {max(tokenizer.get_vocab().values())}, the model only "
            f"{config.text_config.vocab_size} embeddings"
        )
    end, pad = read_ends(root / TOKENIZER_CONFIG, control)
    return Reader(tokenizer, config, read_scale(root, config), end, pad, sight)


def outline(name: str | Path, dtype: torch.dtype, device: str = "meta") -> QwenHF:
    """The model of its configuration alone: on the meta device its shapes, elsewhere with random weights."""
    root = fetch(name, weights=False)
    kind = architecture(root)
    config = _config(root, kind)
    with torch.device(device):
        module = QwenHF(kind(config))
    nn.Module.to(module, dtype)
    nn.Module.eval(module)
    return module


def fetch(name: str | Path, weights: bool = True) -> Path:
    """The folder of that name, or else what the hub has under that id, downloaded once."""
    return hub.fetch(name, WHAT, [*FETCHED, *([WEIGHTS] if weights else [])])


def _config(root: Path, kind: type[PreTrainedModel]) -> PretrainedConfig:
    try:
        config = AutoConfig.from_pretrained(root, local_files_only=True)
    except Exception as error:  # whatever the file holds, transformers may stumble over it
        raise ValueError(f"{root / CONFIG} describes no {kind.__name__} ({first_line(error)})") from error
    assert isinstance(config, PretrainedConfig)
    return config


def architecture(root: Path) -> type[PreTrainedModel]:
    told = read_table(root / CONFIG, WHAT)
    names = told.get("architectures") or [None]
    kind = KINDS.get(str(names[0]))
    if kind is None:
        raise ValueError(f"{root / CONFIG}: the architecture is {names[0]}, known are {', '.join(KINDS)}")
    return kind


def read_tokenizer(file: Path) -> Tokenizer:
    """All added tokens become special, also those that the file calls plain: so text never yields one."""
    told = read_table(file, WHAT)
    for token in told.get("added_tokens", ()):
        token["special"] = True
    try:
        return Tokenizer.from_str(json.dumps(told))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{file} cannot be read as a tokenizer ({first_line(error)})") from error


def read_ends(file: Path, control: dict[str, int]) -> tuple[int, int]:
    """The ids that end an action and that fill short rows."""
    told, found = read_table(file, WHAT), []
    for field in ("eos_token", "pad_token"):
        name = told.get(field)
        name = name.get("content") if isinstance(name, dict) else name
        if name not in control:
            raise ValueError(f"{file}: {field} is {name}, no control token of {TOKENIZER}")
        found.append(control[name])
    return found[0], found[1]


def read_scale(root: Path, config: PretrainedConfig) -> Scale:
    """Mean and standard deviation; refused where the patches that the file tells are not the model's."""
    file = next((root / name for name in PIXELS if (root / name).is_file()), root / PIXELS[0])
    told = read_table(file, WHAT)
    told = told.get("image_processor", told)
    vision = config.vision_config
    sizes = {"patch_size": vision.patch_size, "merge_size": vision.spatial_merge_size}
    for field, size in sizes.items():
        if told.get(field, size) != size:
            raise ValueError(f"{file}: {field} is {told[field]}, in {CONFIG} it is {size}")
    return Scale(*colours(file, told))


def save(folder: str | Path, module: QwenHF, source: str | Path) -> None:
    """Write the model under a temporary name, then rename; what tells how to read comes from the folder `source`."""
    out, root = Path(folder), Path(source)
    if out.exists():
        raise ValueError(f"{out} exists already: name a new folder")
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    module.whole.save_pretrained(fresh)
    for name in READING:
        if (root / name).is_file():
            shutil.copyfile(root / name, fresh / name)
    os.replace(fresh, out)

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
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.pixels import Scale, Sight
from uivlm.models.qwen_hf.reader import Reader

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
PIXELS = ("preprocessor_config.json", "processor_config.json")  # the first that is there counts
READING = (TOKENIZER, TOKENIZER_CONFIG, *PIXELS)
FETCHED = [CONFIG, "generation_config.json", *READING, "chat_template.*"]
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
    kind = architecture(root)
    try:
        loaded: Any = kind.from_pretrained(
            root, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True, **rest
        )
    except Exception as error:  # damaged files raise nearly anything
        raise ValueError(f"the {kind.__name__} in {root} cannot be loaded ({first_line(error)})") from error
    whole, told = loaded
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if names := sorted(map(str, told.get(what, ()))):
            raise ValueError(
                f"the weights in {root} do not fit {kind.__name__}: {len(names)} {what.replace('_', ' ')}, such as "
                f"{names[0]}"
            )
    module = QwenHF(whole)
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
    return hub.fetch(name, "Qwen2-VL or later", [*FETCHED, *([WEIGHTS] if weights else [])])


def _config(root: Path, kind: type[PreTrainedModel]) -> PretrainedConfig:
    try:
        config = AutoConfig.from_pretrained(root, local_files_only=True)
    except Exception as error:  # whatever the file holds, transformers may stumble over it
        raise ValueError(f"{root / CONFIG} describes no {kind.__name__} ({first_line(error)})") from error
    assert isinstance(config, PretrainedConfig)
    return config


def architecture(root: Path) -> type[PreTrainedModel]:
    told = _read(root / CONFIG)
    names = told.get("architectures") or [None]
    kind = KINDS.get(str(names[0]))
    if kind is None:
        raise ValueError(f"{root / CONFIG}: the architecture is {names[0]}, known are {', '.join(KINDS)}")
    return kind


def read_tokenizer(file: Path) -> Tokenizer:
    """All added tokens become special, also those that the file calls plain: so text never yields one."""
    told = _read(file)
    for token in told.get("added_tokens", ()):
        token["special"] = True
    try:
        return Tokenizer.from_str(json.dumps(told))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{file} cannot be read as a tokenizer ({first_line(error)})") from error


def read_ends(file: Path, control: dict[str, int]) -> tuple[int, int]:
    """The ids that end an action and that fill short rows."""
    told, found = _read(file), []
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
    told = _read(file)
    told = told.get("image_processor", told)
    vision = config.vision_config
    sizes = {"patch_size": vision.patch_size, "merge_size": vision.spatial_merge_size}
    for field, size in sizes.items():
        if told.get(field, size) != size:
            raise ValueError(f"{file}: {field} is {told[field]}, in {CONFIG} it is {size}")
    try:
        mean, std = (tuple(map(float, told[field])) for field in ("image_mean", "image_std"))
        return Scale((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{file} tells no image_mean and image_std of three channels each") from error


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


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"the folder {file.parent} holds no Qwen2-VL or later: it has no {file.name}")
    try:
        told = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON ({first_line(error)}): get it again") from error
    if not isinstance(told, dict):
        raise ValueError(f"{file} holds no table: get it again")
    return told

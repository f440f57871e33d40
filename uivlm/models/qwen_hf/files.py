"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL on disk or on the hub, in the format of the hub.

In: a folder or a hub id. Out: the model and its processor. Loading is strict: a weight that is missing or of
another shape is an error of one sentence. torchvision is not needed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)

from uivlm.atomic import new_dir
from uivlm.models import pretrained
from uivlm.models.pretrained import (
    BICUBIC,
    RGBFloats,
    first_line,
    image_mean_std,
    image_resample,
    load_pretrained,
    read_json_object,
    read_model_config,
)
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor, VisualTokenBudget
from uivlm.models.stored_weights import StoredWeights, open_pretrained

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
PREPROCESSOR_CONFIGS = ("preprocessor_config.json", "processor_config.json")  # the first that exists counts
PROCESSOR_FILES = (TOKENIZER, TOKENIZER_CONFIG, *PREPROCESSOR_CONFIGS)
GENERATION_CONFIG = "generation_config.json"
DOWNLOAD_FILES = [CONFIG, GENERATION_CONFIG, *PROCESSOR_FILES, "chat_template.*"]
WHAT = "Qwen2-VL or later"
WEIGHTS = "*.safetensors*"
ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    kind.__name__: kind
    for kind in (
        Qwen2VLForConditionalGeneration,
        Qwen2_5_VLForConditionalGeneration,
        Qwen3VLForConditionalGeneration,
    )
}


def load(name: str | Path, dtype: torch.dtype = torch.bfloat16, **rest: Any) -> QwenHF:
    """The model in evaluation mode. `rest` goes to `from_pretrained`: `quantization_config`, `device_map`."""
    root = find_or_download(name)
    mean_std, cls = read_mean_std(root), read_architecture(root)
    hf_model = load_pretrained(cls, root, dtype, config=_read_config(root, cls), **rest)
    module = QwenHF(hf_model, *mean_std)
    nn.Module.eval(module)
    return module


def load_processor(name: str | Path, budget: VisualTokenBudget | None = None) -> QwenHFProcessor:
    root = find_or_download(name, with_weights=False)
    config = _read_config(root, read_architecture(root))
    tokenizer = read_tokenizer(root / TOKENIZER)
    control = {str(token): at for at, token in tokenizer.get_added_tokens_decoder().items()}
    ids = set(control.values())
    for field in ("image_token_id", "vision_start_token_id", "vision_end_token_id"):
        if getattr(config, field) not in ids:
            raise ValueError(
                f"{root / CONFIG}: {field} is {getattr(config, field)}, not a control token of {TOKENIZER}"
            )
    if max(tokenizer.get_vocab().values()) >= config.text_config.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has ids up to {max(tokenizer.get_vocab().values())}, the model only "
            f"{config.text_config.vocab_size} embeddings"
        )
    end, pad = read_eos_and_pad(root / TOKENIZER_CONFIG, control)
    check_image_processor(root, config)
    return QwenHFProcessor(tokenizer, config, end, pad, budget)


def from_config(name: str | Path, dtype: torch.dtype, device: str = "meta") -> QwenHF:
    """The model made from its configuration alone: shapes on the meta device, random weights elsewhere."""
    root = find_or_download(name, with_weights=False)
    kind = read_architecture(root)
    config = _read_config(root, kind)
    with pretrained.created_as(dtype, device):
        module = QwenHF(kind(config), *read_mean_std(root))
    if (root / GENERATION_CONFIG).is_file():
        fields = read_json_object(root / GENERATION_CONFIG, WHAT)
        module.hf_model.generation_config = GenerationConfig.from_dict(fields)
    nn.Module.eval(module)
    return module


def open_weights(name: str | Path, model: QwenHF) -> StoredWeights:
    """The weights of the model that `from_config` makes, in their files."""
    return open_pretrained(model.hf_model, find_or_download(name))


def find_or_download(name: str | Path, with_weights: bool = True) -> Path:
    """The folder of that name, or else the hub's model of that id, downloaded once."""
    return pretrained.find_or_download(name, WHAT, [*DOWNLOAD_FILES, *([WEIGHTS] if with_weights else [])])


def _read_config(root: Path, cls: type[PreTrainedModel]) -> PretrainedConfig:
    kind: Any = cls.config_class  # not AutoConfig, which offers to run the code of an unknown `model_type`
    model_type = read_model_config(root / CONFIG, WHAT).get("model_type")
    if model_type != kind.model_type:
        raise ValueError(
            f"{root / CONFIG}: model_type: got {model_type!r:.80}; expected {kind.model_type!r}, as of a "
            f"{cls.__name__}"
        )
    try:
        config = kind.from_pretrained(root, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises nearly anything on a bad file
        raise ValueError(
            f"{root / CONFIG} does not describe a {cls.__name__} ({first_line(error)})"
        ) from error
    assert isinstance(config, PretrainedConfig)
    return config


def read_architecture(root: Path) -> type[PreTrainedModel]:
    payload = read_json_object(root / CONFIG, WHAT)
    names = payload.get("architectures") or [None]
    kind = ARCHITECTURES.get(str(names[0]))
    if kind is None:
        raise ValueError(
            f"{root / CONFIG}: architectures: got {names[0]}; expected one of {', '.join(ARCHITECTURES)}"
        )
    return kind


def read_tokenizer(file: Path) -> Tokenizer:
    """All added tokens become special, whatever the file has: text then never encodes to one."""
    payload = read_json_object(file, WHAT)
    for token in payload.get("added_tokens", ()):
        token["special"] = True
    try:
        return Tokenizer.from_str(json.dumps(payload))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{file} cannot be read as a tokenizer ({first_line(error)})") from error


def read_eos_and_pad(file: Path, special_tokens: dict[str, int]) -> tuple[int, int]:
    """The ids that end an action and pad short rows."""
    payload, ids = read_json_object(file, WHAT), []
    for field in ("eos_token", "pad_token"):
        name = payload.get(field)
        name = name.get("content") if isinstance(name, dict) else name
        if name not in special_tokens:
            raise ValueError(f"{file}: {field} is {name}, not a control token of {TOKENIZER}")
        ids.append(special_tokens[name])
    return ids[0], ids[1]


def read_mean_std(root: Path) -> tuple[RGBFloats, RGBFloats]:
    """Mean and standard deviation of the colors that the vision encoder reads."""
    return image_mean_std(*_read_image_processor(root))


def check_image_processor(root: Path, config: PretrainedConfig) -> None:
    """ValueError if the file's patch sizes are not the model's, or if it resizes or scales in another way."""
    file, payload = _read_image_processor(root)
    vision = config.vision_config
    sizes = {"patch_size": vision.patch_size, "merge_size": vision.spatial_merge_size}
    for field, size in sizes.items():
        if payload.get(field, size) != size:
            raise ValueError(f"{file}: {field}: got {payload[field]}; expected {size}, as in {CONFIG}")
    image_resample(file, payload, {BICUBIC: "bicubic"})


def _read_image_processor(root: Path) -> tuple[Path, dict[str, Any]]:
    """The file of the image processor's settings, and these."""
    candidates = [root / name for name in PREPROCESSOR_CONFIGS]
    file = next((file for file in candidates if file.is_file()), candidates[0])
    payload = read_json_object(file, WHAT)
    return file, payload.get("image_processor", payload)


def save(folder: str | Path, model: QwenHF, source: str | Path) -> None:
    """Write the model into a new folder. The files of its processor are copied from the folder `source`."""
    with new_dir(Path(folder)) as out:
        model.hf_model.save_pretrained(out)
        for name in PROCESSOR_FILES:
            if (Path(source) / name).is_file():
                shutil.copyfile(Path(source) / name, out / name)

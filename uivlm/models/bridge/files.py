"""A bridge base on disk: `config.json`, `model.safetensors` and `tokenizer.json` in one folder.

In and out: a LlamaVit and its tokenizer. Loading is strict: a weight that is missing, unknown or of another
shape is an error of one sentence.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from uivlm.atomic import tmp_path
from uivlm.models.bridge.model import BridgeConfig, LlamaVit
from uivlm.models.pretrained import (
    Shapes,
    check_shapes,
    created_as,
    read_model_config,
    read_weights,
    shapes_of,
)
from uivlm.models.stored_weights import StoredWeight, open_files

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def save_base(
    folder: str | Path, model: LlamaVit, tokenizer: Tokenizer, dtype: torch.dtype = torch.float16
) -> None:
    """Write the base: the three files appear together.

    Other files of an existing folder, such as a README, stay.
    """
    out = Path(folder)
    temporary, previous = tmp_path(out), out.with_name(f".{out.name}.previous")
    shutil.rmtree(temporary, ignore_errors=True)
    if out.is_dir():
        shutil.copytree(out, temporary)
    else:
        temporary.mkdir(parents=True)
    names = _weight_names(model)
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items() if name in names}
    save_file(
        {name: _cast(value, dtype).contiguous() for name, value in weights.items()}, temporary / WEIGHTS
    )
    config = {name: value for name, value in model.config.to_dict().items() if not name.startswith("_")}
    (temporary / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", "utf-8")
    (temporary / TOKENIZER).write_text(tokenizer.to_str(), "utf-8")
    if out.is_dir():
        out.rename(previous)
    temporary.rename(out)
    shutil.rmtree(previous, ignore_errors=True)


def load_base(folder: str | Path, dtype: torch.dtype = torch.float32) -> tuple[LlamaVit, Tokenizer]:
    """The bridge in evaluation mode with its weights as `dtype`, and its tokenizer."""
    model, tokenizer = from_config(folder, dtype, "cpu")
    weights = read_weights(Path(folder) / WEIGHTS)
    _check_weights(Path(folder), model, shapes_of(weights))
    model.load_state_dict(weights, strict=False)  # a tied lm_head has no entry of its own
    return model, tokenizer


def open_weights(folder: str | Path, model: LlamaVit) -> dict[str, StoredWeight]:
    """The weights of the model that `from_config` makes, in their file."""
    weights = open_files([Path(folder) / WEIGHTS])
    _check_weights(Path(folder), model, shapes_of(weights))
    return weights


def from_config(folder: str | Path, dtype: torch.dtype, device: str = "meta") -> tuple[LlamaVit, Tokenizer]:
    """The bridge of the folder's configuration in evaluation mode, and its tokenizer.

    Its weights are shapes on the meta device, random elsewhere.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"model.base_model: got {root}; expected 'tiny' or the folder of a bridge base")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (root / name).is_file():
            raise ValueError(f"the folder {root} is not a bridge base: it has no {name}")
    try:
        payload = read_model_config(root / CONFIG, "bridge base")
        if "picture_id" in payload:
            raise ValueError("uivlm 0.1 wrote it: picture_id is now image_token_id, and grid is grid_size")
        config = BridgeConfig(**payload)
        with created_as(dtype, device):
            model = LlamaVit(config)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{root / CONFIG} does not describe a bridge ({error})") from error
    try:
        tokenizer = Tokenizer.from_file(str(root / TOKENIZER))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{root / TOKENIZER} cannot be read as a tokenizer ({error})") from error
    _check_ids(root, config, tokenizer)
    nn.Module.eval(model)
    return model, tokenizer


def _check_weights(root: Path, model: LlamaVit, stored: Shapes) -> None:
    expected = {k: v for k, v in model.state_dict().items() if k in _weight_names(model)}
    check_shapes(root / WEIGHTS, stored, shapes_of(expected))


def _weight_names(model: LlamaVit) -> set[str]:
    """Names of the weights in the file: a tied lm_head is the token embeddings."""
    tied = {"language.lm_head.weight"} if model.config.text_config.tie_word_embeddings else set()
    return set(model.state_dict()) - tied


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _check_ids(root: Path, config: BridgeConfig, tokenizer: Tokenizer) -> None:
    text = config.text_config
    placeholder_limit = text.vocab_size + 1  # only the placeholder may be the id after the last
    control = {
        "bos_token_id": text.bos_token_id,
        "eos_token_id": text.eos_token_id,
        "pad_token_id": text.pad_token_id,
        "image_token_id": config.image_token_id,
    }
    for name, value in control.items():
        limit = placeholder_limit if name == "image_token_id" else text.vocab_size
        if not isinstance(value, int) or not 0 <= value < limit:
            raise ValueError(f"{root / CONFIG}: {name}: got {value}; expected an id below {limit}")
    if config.image_token_id in (text.bos_token_id, text.eos_token_id, text.pad_token_id):
        raise ValueError(
            f"{root / CONFIG}: image_token_id {config.image_token_id} is also another control id"
        )
    if tokenizer.get_vocab_size() > text.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has {tokenizer.get_vocab_size()} ids, the model only {text.vocab_size} "
            "embeddings"
        )

"""A bridge base on disk: `config.json`, `model.safetensors` and `tokenizer.json` in one folder, and back.

In and out: a LlamaVit and its tokenizer. Loading is strict: every weight is there once, with its shape, or one
sentence says what is wrong.
"""

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from uivlm.models.llama_vit import BridgeConfig, LlamaVit
from uivlm.models.weights import check_shapes, read_weights, shapes_of

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def save_base(
    folder: str | Path, module: LlamaVit, tokenizer: Tokenizer, dtype: torch.dtype = torch.float16
) -> None:
    """Write the base under a temporary name, then rename: the three files of `folder` appear together.

    Other files of an existing folder (a README) are kept.
    """
    out = Path(folder)
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    if out.is_dir():
        shutil.copytree(out, fresh)
    else:
        fresh.mkdir(parents=True)
    names = _names(module)
    weights = {name: value.detach().cpu() for name, value in module.state_dict().items() if name in names}
    save_file({name: _as(value, dtype).contiguous() for name, value in weights.items()}, fresh / WEIGHTS)
    config = {name: value for name, value in module.config.to_dict().items() if not name.startswith("_")}
    (fresh / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", "utf-8")
    (fresh / TOKENIZER).write_text(tokenizer.to_str(), "utf-8")
    if out.is_dir():
        old = out.with_name(f"{out.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(out, old)
        os.replace(fresh, out)
        shutil.rmtree(old)
    else:
        os.replace(fresh, out)


def load_base(folder: str | Path, dtype: torch.dtype = torch.float32) -> tuple[LlamaVit, Tokenizer]:
    """The bridge in evaluation mode with its weights as `dtype`, and its tokenizer."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no folder {root} with a bridge base: model.base names one, or 'tiny'")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (root / name).is_file():
            raise ValueError(f"the folder {root} is no bridge base: it has no {name}")
    try:
        config = BridgeConfig(**json.loads((root / CONFIG).read_text("utf-8")))
        module = LlamaVit(config)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{root / CONFIG} does not describe a bridge ({error})") from error
    try:
        tokenizer = Tokenizer.from_file(str(root / TOKENIZER))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{root / TOKENIZER} cannot be read as a tokenizer ({error})") from error
    _check_ids(root, config, tokenizer)
    weights = read_weights(root / WEIGHTS)
    wanted = {k: v for k, v in module.state_dict().items() if k in _names(module)}
    check_shapes(root / WEIGHTS, shapes_of(weights), shapes_of(wanted))
    module.load_state_dict(weights, strict=False)  # a tied lm_head is no name of its own
    nn.Module.to(module, dtype)
    nn.Module.eval(module)
    return module, tokenizer


def _names(module: LlamaVit) -> set[str]:
    """Names of the weights that the file holds: a tied lm_head is the token embeddings."""
    tied = {"language.lm_head.weight"} if module.config.text_config.tie_word_embeddings else set()
    return set(module.state_dict()) - tied


def _as(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _check_ids(root: Path, config: BridgeConfig, tokenizer: Tokenizer) -> None:
    text = config.text_config
    first_beyond = text.vocab_size + 1  # the placeholder alone may be the id after the last
    control = {
        "bos_token_id": text.bos_token_id,
        "eos_token_id": text.eos_token_id,
        "pad_token_id": text.pad_token_id,
        "picture_id": config.picture_id,
    }
    for name, value in control.items():
        most = first_beyond if name == "picture_id" else text.vocab_size
        if not isinstance(value, int) or not 0 <= value < most:
            raise ValueError(
                f"{root / CONFIG}: {name} is {value}, outside the {text.vocab_size} ids of the vocabulary"
            )
    if config.picture_id in (text.bos_token_id, text.eos_token_id, text.pad_token_id):
        raise ValueError(f"{root / CONFIG}: picture_id {config.picture_id} is also another control id")
    if tokenizer.get_vocab_size() > text.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has {tokenizer.get_vocab_size()} ids, the model only {text.vocab_size} embeddings"
        )

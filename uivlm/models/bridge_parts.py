"""A bridge put together of two published models, a Llama and a vision encoder; the projection between them is new.

In: folders or hub ids. Out: the bridge and the Llama's tokenizer, as `bridge_folder.load_base` gives them.
"""

import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from uivlm.models import hub, vision
from uivlm.models.attention import by_sentence
from uivlm.models.hub import first_line
from uivlm.models.llama_vit import BridgeConfig, LlamaVit, Projection
from uivlm.models.published import load_module
from uivlm.recipe import VisualTokens

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
FETCHED, WEIGHTS = [CONFIG, "generation_config.json", TOKENIZER], "*.safetensors*"
UNKNOWN = "<unk>"
CONTROL = ("bos_token_id", "eos_token_id", "pad_token_id")


def from_parts(
    language: str | Path,
    sight: str | Path,
    visual_tokens: VisualTokens,
    grid: int,
    dtype: torch.dtype,
    seed: int,
    **rest: Any,
) -> tuple[LlamaVit, Tokenizer]:
    """In evaluation mode. `grid`: rows and columns of visual tokens; `rest` goes to Llama's `from_pretrained`."""
    module, tokenizer = outline(language, sight, visual_tokens, grid, dtype)
    root = hub.fetch(language, "Llama", [*FETCHED, WEIGHTS])
    llama = load_module(LlamaForCausalLM, root, dtype, **rest)
    text = module.config.text_config
    llama.config.update({name: getattr(text, name) for name in CONTROL})
    device = next(llama.parameters()).device
    by_sentence(llama)
    module.language = llama
    module.vision = vision.load(sight, module.config.vision_config, dtype).to(device)
    module.projection = _projection(module, dtype, seed)
    nn.Module.eval(module)
    return module, tokenizer


def outline(
    language: str | Path,
    sight: str | Path,
    visual_tokens: VisualTokens,
    grid: int,
    dtype: torch.dtype,
    device: str = "meta",
) -> tuple[LlamaVit, Tokenizer]:
    """The bridge of the configurations alone: on the meta device its shapes, elsewhere with random weights.

    A screen's placeholder is the id after the last of the vocabulary: no embedding is added for it, and text cannot
    hold it.
    """
    root = hub.fetch(language, "Llama", FETCHED)
    tokenizer = _tokenizer(root)
    try:
        text = LlamaConfig.from_pretrained(root, local_files_only=True)
    except Exception as error:  # whatever the file holds, transformers may stumble over it
        raise ValueError(f"{root / CONFIG} describes no Llama ({first_line(error)})") from error
    text.update(dict(zip(CONTROL, _control(root, text, tokenizer), strict=True)))
    seen, mean, std = vision.described(sight)
    with torch.device(device):
        module = LlamaVit(BridgeConfig(text, seen, visual_tokens, (grid, grid), text.vocab_size, mean, std))
    nn.Module.to(module, dtype)
    nn.Module.eval(module)
    return module, tokenizer


def _tokenizer(root: Path) -> Tokenizer:
    if not (root / TOKENIZER).is_file():
        raise ValueError(f"the folder {root} holds no Llama with a fast tokenizer: it has no {TOKENIZER}")
    try:
        return Tokenizer.from_file(str(root / TOKENIZER))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{root / TOKENIZER} cannot be read as a tokenizer ({first_line(error)})") from error


def _control(root: Path, text: LlamaConfig, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Ids that begin a sentence, end an action and fill rows. Llama-2 has none that fills: its <unk> does, which no
    text yields; the end token would do too, since masks come from lengths.
    """
    found = []
    for name in ("bos_token_id", "eos_token_id"):
        value = getattr(text, name)
        if not isinstance(value, int) or not 0 <= value < text.vocab_size:
            raise ValueError(
                f"{root / CONFIG}: {name} is {value}, no id of a vocabulary of {text.vocab_size}: name one"
            )
        found.append(value)
    pad = text.pad_token_id
    if not isinstance(pad, int) or not 0 <= pad < text.vocab_size:
        pad = tokenizer.token_to_id(UNKNOWN)
    if tokenizer.get_vocab_size() > text.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has {tokenizer.get_vocab_size()} ids, the model only {text.vocab_size} embeddings"
        )
    return found[0], found[1], found[1] if pad is None else pad


@torch.inference_mode()
def _spread(module: LlamaVit) -> float:
    """Of the projection's weights, so that what it makes of a grey screen is as large as a token's embedding."""
    weight = module.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    grey = torch.zeros(1, 3, *module.config.image_size, device=weight.device, dtype=weight.dtype)
    features = torch.cat(list(module.look(grey))).float()
    return float(weight.float().square().mean().sqrt() / features.square().sum(-1).mean().sqrt())


def _projection(module: LlamaVit, dtype: torch.dtype, seed: int) -> Projection:
    """A new one. Without the right size of its output the loss would leap at first."""
    made = Projection(module.projection.in_features, module.projection.out_features)
    spread = _spread(module)
    if not math.isfinite(spread):
        raise ValueError("the vision encoder says nothing of a grey screen: its weights are damaged")
    with torch.no_grad():
        made.weight.normal_(0.0, spread, generator=torch.Generator().manual_seed(seed))
        made.bias.zero_()
    return made.to(module.get_input_embeddings().weight.device, dtype)  # type: ignore[arg-type]

"""What a model of the project is, and the one place where a recipe's model part becomes one.

In: a recipe. Out: the frozen base module in evaluation mode, how it reads, its loss, and what of it is trained.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from uivlm import recipe as recipes
from uivlm.models import llama_vit
from uivlm.models.bridge_folder import load_base
from uivlm.models.bridge_parts import from_parts
from uivlm.models.bridge_parts import outline as outline_parts
from uivlm.models.quantise import quantised, stay_as_read
from uivlm.models.qwen_hf import files as hf_files
from uivlm.models.qwen_hf import model as qwen_hf
from uivlm.models.qwen_hf.pixels import Sight
from uivlm.models.qwen_vl import files as qwen_files
from uivlm.models.qwen_vl import model as qwen_vl
from uivlm.models.qwen_vl.reader import Reader as QwenReader
from uivlm.sentences.encode import IGNORE, Encoder
from uivlm.sentences.sentence import Grammar

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Reader(Encoder, Protocol):
    """How one model reads and speaks."""

    pad: int  # id that fills short rows; the attention mask hides it
    context: int  # most tokens of a sentence

    def text(self, ids: list[int]) -> str: ...

    def speaks(self, token: int) -> bool: ...


class Model(Protocol):
    """The module of a model: a `torch.nn.Module` with these."""

    def look(self, pixels: Tensor) -> Tensor:
        """[N, 3, h, w] -> [N, S, width]: the frozen part of seeing a screen."""

    def forward(
        self,
        input_ids: Tensor,  # int64 [B, T]
        pixels: Tensor | None = None,  # [N, 3, h, w], screens in row order
        attention_mask: Tensor | None = None,  # bool [B, T]
        labels: Tensor | None = None,  # int64 [B, T]; given: logits of trained positions only
        features: Tensor | None = None,  # what `look` gave, instead of pixels
        lengths: Tensor | None = None,  # int64 [sentences]: they lie one after another in a single row, B = 1
        places: Tensor
        | None = None,  # int64 [B, T]: of the tokens in their rows, where padding stands between them
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A model without adapters, and what the rooms that use it must know of it."""

    module: nn.Module
    reader: Reader
    lora: recipes.Lora | None  # None: full fine-tuning
    targets: str  # regex of the linear layers that carry adapters
    projector: str | None = None  # name of the submodule that is trained whole beside the adapters
    full: str | None = None  # regex of the parameters that full fine-tuning trains
    quantised: bool = False  # then adapters are not merged: rounding again would lose what they learned
    recompute: bool = False  # activations are computed again in the backward: the model fills a GPU
    reuse: bool = True  # do keys and values of a beginning stay right when the sentence grows?


def build(recipe: recipes.Recipe, outline: str | None = None) -> Built:
    """`outline` names a device: then no weights are read, the model is made there of its configuration alone: without
    values on "meta", at random elsewhere. (A bridge's own folder is small, and read all the same.)"""
    built = _built(recipe, outline)
    if built.quantised:
        stay_as_read(built.module)
    return built


def _built(recipe: recipes.Recipe, outline: str | None) -> Built:
    dtype = DTYPES[recipe.train.precision]
    match recipe.model:
        case recipes.LlamaVit(base=base, lora=lora):
            bridge, tokenizer = load_base(llama_vit.TINY if base == "tiny" else base, dtype)
            reader = llama_vit.Reader(tokenizer, bridge.config)
            return Built(
                bridge, reader, lora, llama_vit.TARGETS, projector(recipe.model), full=llama_vit.FULL
            )
        case recipes.LlamaParts() as part:
            return _llama_parts(part, dtype, recipe.train.seed, outline)
        case recipes.QwenVL() as part:
            return _qwen_vl(part, dtype, outline)
        case recipes.QwenHF() as part:
            return _qwen_hf(part, dtype, outline)


def projector(part: recipes.ModelPart) -> str | None:
    """Name of the submodule that is trained whole beside the adapters; known before anything is loaded."""
    match part:
        case recipes.LlamaVit() | recipes.LlamaParts():
            return "projection"
        case recipes.QwenVL() | recipes.QwenHF():
            return None


def grammar(recipe: recipes.Recipe) -> Grammar:
    return Grammar(**asdict(recipe.grammar))


def check_length(input_ids: Sequence[int] | NDArray[np.int64], reader: Reader, what: str) -> None:
    """Nothing is cut: a sentence longer than the context is an error."""
    if len(input_ids) > reader.context:
        raise ValueError(
            f"a sentence of {what} has {len(input_ids)} tokens, the model reads {reader.context}: "
            "lower grammar.screens (or grammar.before)"
        )


def nll(outputs: Any, labels: Tensor) -> Tensor:
    """Nats of each trained token, row by row, from a forward that was given `labels`; shifts itself."""
    targets = labels[:, 1:]
    return functional.cross_entropy(outputs.logits.float(), targets[targets != IGNORE], reduction="none")


def _kept(quantise: Literal["nf4", "int8", None], dtype: torch.dtype) -> dict[str, Any]:
    return {} if quantise is None else quantised(quantise, dtype)


def _llama_parts(part: recipes.LlamaParts, dtype: torch.dtype, seed: int, outline: str | None) -> Built:
    named = part.base, part.vision, part.visual_tokens, part.grid, dtype
    bridge, tokenizer = (
        outline_parts(*named, outline) if outline else from_parts(*named, seed, **_kept(part.quantise, dtype))
    )
    return Built(
        bridge,
        llama_vit.Reader(tokenizer, bridge.config),
        part.lora,
        llama_vit.TARGETS,
        projector(part),
        full=llama_vit.FULL,
        quantised=part.quantise is not None,
        recompute=True,
    )


def _qwen_vl(part: recipes.QwenVL, dtype: torch.dtype, outline: str | None) -> Built:
    tokens = qwen_files.load_tokens(part.base)
    module = (
        qwen_files.outline(part.base, dtype, part.long_context, outline)
        if outline
        else qwen_files.load(part.base, dtype, part.long_context, **_kept(part.quantise, dtype))
    )
    reader = QwenReader(tokens, module.config)
    if part.context is not None:
        if part.context > module.config.max_position_embeddings:
            raise ValueError(
                f"model.context is {part.context}, the model of {part.base} has positions for "
                f"{module.config.max_position_embeddings} tokens: lower it"
            )
        reader.context = part.context
    return Built(
        module,
        reader,
        part.lora,
        qwen_vl.TARGETS,
        projector(part),
        full=qwen_vl.FULL,
        quantised=part.quantise is not None,
        recompute=True,
        reuse=part.long_context == "none",  # "original" turns keys by a factor of the prompt's length
    )


def _qwen_hf(part: recipes.QwenHF, dtype: torch.dtype, outline: str | None) -> Built:
    reader = hf_files.load_reader(part.base, Sight(part.most, part.older, part.least))
    module = (
        hf_files.outline(part.base, dtype, outline)
        if outline
        else hf_files.load(part.base, dtype, **_kept(part.quantise, dtype))
    )
    return Built(
        module,
        reader,
        part.lora,
        qwen_hf.lora_targets(module),
        projector(part),
        full=qwen_hf.FULL,
        quantised=part.quantise is not None,
        recompute=True,
    )

"""What a model of the project is, and the one place where a recipe's model part becomes one.

In: a recipe. Out: the frozen base module in evaluation mode, how it reads, its loss, and what of it is trained.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from uivlm import recipe as recipes
from uivlm.models import llama_vit
from uivlm.models.bridge_folder import load_base
from uivlm.sentences.encode import Encoder
from uivlm.sentences.sentence import Grammar

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Reader(Encoder, Protocol):
    """How one model reads and speaks."""

    pad: int  # id that fills short rows; the attention mask hides it
    placeholder: int  # id that stands where a visual token goes
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
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A model without adapters, and what the rooms that use it must know of it."""

    module: nn.Module
    reader: Reader
    nll: Callable[
        [Any, Tensor], Tensor
    ]  # (outputs, labels) -> nats summed over trained tokens; shifts itself
    lora: recipes.Lora
    targets: str  # regex of the linear layers that carry adapters
    projector: str  # name of the submodule that is trained whole


def build(recipe: recipes.Recipe) -> Built:
    match recipe.model:
        case recipes.LlamaVit(base=base, lora=lora):
            folder = llama_vit.TINY if base == "tiny" else base
            module, tokenizer = load_base(folder, DTYPES[recipe.train.precision])
            reader = llama_vit.Reader(tokenizer, module.config)
            return Built(module, reader, llama_vit.nll, lora, llama_vit.TARGETS, "projection")


def grammar(recipe: recipes.Recipe) -> Grammar:
    return Grammar(**asdict(recipe.grammar))

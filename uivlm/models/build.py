"""The one place where a recipe's `model` part becomes a model, and its `prompt` part a prompt format."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray

from uivlm.episodes.encode import Processor
from uivlm.episodes.sentence import PromptFormat
from uivlm.models.bridge.load import LlamaPartsLoader, LlamaVitLoader
from uivlm.models.device import local_device
from uivlm.models.loaded_model import LoadedModel, ModelLoader
from uivlm.models.quantize import disable_weight_repacking
from uivlm.models.qwen_hf.load import QwenHFLoader
from uivlm.models.qwen_vl.load import QwenVLLoader
from uivlm.recipe import LlamaPartsArgs, LlamaVitArgs, ModelArgs, QwenHFArgs, QwenVLArgs, Recipe

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def model_loader(args: ModelArgs) -> ModelLoader:
    match args:
        case LlamaVitArgs():
            return LlamaVitLoader(args)
        case LlamaPartsArgs():
            return LlamaPartsLoader(args)
        case QwenVLArgs():
            return QwenVLLoader(args)
        case QwenHFArgs():
            return QwenHFLoader(args)


def build(recipe: Recipe, init_device: str | None = None, device: torch.device | None = None) -> LoadedModel:
    """The recipe's model without adapters, in evaluation mode.

    Weights are read to `device`, by default the CPU, or for quantized ones the GPU of this process.
    With `init_device`, no weights are read: the model is made from its configuration alone. On "meta" its
    parameters have shapes only; on another device they are random.
    """
    device = device or (local_device() if recipe.quantize else torch.device("cpu"))
    train = recipe.train
    loaded = model_loader(recipe.model).load(DTYPES[train.precision], train.seed, init_device, device)
    if loaded.quantized:
        disable_weight_repacking(loaded.model)
    return loaded


def prompt_format(recipe: Recipe) -> PromptFormat:
    return PromptFormat(**asdict(recipe.prompt))


def check_length(input_ids: Sequence[int] | NDArray[np.int64], processor: Processor, name: str) -> None:
    """Nothing is truncated: a sentence that is longer than the model's context is an error."""
    if len(input_ids) > processor.max_length:
        raise ValueError(
            f"a sentence of {name} has {len(input_ids)} tokens, the model reads {processor.max_length}: "
            "lower prompt.max_screens (or prompt.max_past_actions)"
        )

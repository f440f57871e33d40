"""What a recipe costs: parameters, tokens, memory, FLOPs. Computed from shapes: no weights are read.

In: a recipe, its model on the meta device, an index of windows. Out: sizes of sentences, bytes on a GPU,
FLOPs. What a library allocates in addition is not included, except CUDA_RUNTIME_BYTES.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from torch import nn

from uivlm import recipe as recipes
from uivlm.actions.action import Point, Tap
from uivlm.episodes.episode import Episode, Screen, Step
from uivlm.episodes.window_index import WindowIndex
from uivlm.models.adapters import prepare_for_training
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.lora_layers import lora_layers
from uivlm.models.multimodal import is_vision_parameter

SCREEN_SIZE = (2400, 1080)  # height and width in pixels; used without data
TYPICAL_STEPS = 8  # of an episode; AITW's mean is 5,689,993 steps / 715,142 episodes
TYPICAL_GOAL = "open the settings and turn on the dark mode of the display"
AITW_STEPS = {  # subset: recorded steps (Rawles et al. 2023, table 2)
    "GoogleApps": 4_903_601,
    "Install": 250_058,
    "WebShopping": 365_253,
    "General": 85_413,
    "Single": 85_668,
}
TRAINED_SHARE = 0.8  # of AITW's episodes: its standard splits are 80 / 10 / 10
BYTES_PER_QUANTIZED_WEIGHT = {
    "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int8": 1.0,
}  # bytes a weight, its scales among them
CUDA_RUNTIME_BYTES = 0.8e9  # bytes that CUDA and its libraries take on a GPU


@dataclass(frozen=True, slots=True)
class SentenceSize:
    """One sentence."""

    num_tokens: int
    num_trained_tokens: int
    num_screens: int
    num_patches: int
    num_visual_tokens: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model that memory and FLOPs depend on."""

    num_parameters: int
    num_trainable: int
    linear_parameters: int  # weights of the language tower's blocks
    vision_parameters: int  # parameters of the vision encoder
    vocab_size: int
    hidden_size: int
    intermediate_size: int  # of the MLP
    num_layers: int
    patch_area: int  # pixels that the vision encoder takes as one
    vision_hidden_size: int
    trained_vision_layers: int = 0  # blocks of the vision encoder that the gradient passes; 0: it is frozen


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU, and in the memory of a machine that has all GPUs."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    host: float  # what is offloaded; with FSDP new adapters, or a tensor to save

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + CUDA_RUNTIME_BYTES


def typical_episode() -> Episode:
    """An episode of AITW's mean length on a typical phone, used without data."""
    screen = Screen(np.zeros((*SCREEN_SIZE, 3), np.uint8))
    return Episode(
        "usual",
        TYPICAL_GOAL,
        "usual",
        tuple(Step(screen, Tap(Point(0.5, 0.5))) for _ in range(TYPICAL_STEPS)),
    )


def sentence_sizes(index: WindowIndex, model: nn.Module) -> list[list[SentenceSize]]:
    """The sizes of each episode's sentences."""
    area = _patch_area(model)
    columns = (
        index.num_tokens,
        index.num_trained_tokens,
        index.num_screens,
        index.num_pixels // area,
        index.num_visual_tokens,
    )
    sizes = zip(index.episode.tolist(), np.stack(columns, 1).tolist(), strict=True)
    return [[SentenceSize(*row) for _, row in group] for _, group in groupby(sizes, itemgetter(0))]


def forward_sizes(recipe: recipes.Recipe, sizes: list[list[SentenceSize]]) -> list[SentenceSize]:
    """The sentences of the largest forward pass: the longest sentence, as often as it fits.

    Packed sentences fill `train.max_packed_tokens`, so that a part of one counts, too.
    """
    longest = max((row for episode in sizes for row in episode), key=lambda row: row.num_tokens)
    budget = recipe.train.max_packed_tokens
    if budget is None:
        return [longest] * recipe.train.per_device_batch_size
    share = budget / longest.num_tokens
    return [SentenceSize(*(math.ceil(share * number) for number in astuple(longest)))]


def prepare_and_measure(loaded: LoadedModel, seed: int) -> tuple[nn.Module, ModelShape]:
    """The model prepared for training, as a run has it, and its shape."""
    module = loaded.model
    adapted = [_linear(module, name) for name in lora_layers(module, loaded.lora_targets)]
    vocabulary, width = module.get_input_embeddings().weight.shape  # type: ignore[operator]
    text: Any = getattr(module.config, "text_config", module.config)
    kernel = _patch_embedding(module)
    patch = _patch_area(module)
    before = {
        "num_parameters": sum(value.numel() for value in module.parameters()),
        "linear_parameters": sum(layer.in_features * layer.out_features for layer in adapted),
        "vision_parameters": sum(
            value.numel() for name, value in module.named_parameters() if is_vision_parameter(name)
        ),
        "intermediate_size": max(max(layer.in_features, layer.out_features) for layer in adapted),
    }
    model = prepare_for_training(loaded, seed)
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    return model, ModelShape(
        **before,
        num_trainable=trained,
        vocab_size=vocabulary,
        hidden_size=width,
        num_layers=int(text.num_hidden_layers),
        patch_area=patch,
        vision_hidden_size=kernel.out_channels,
        trained_vision_layers=_vision_layers(module) if loaded.lora and loaded.lora.vision else 0,
    )


def estimate_memory(
    recipe: recipes.Recipe,
    shape: ModelShape,
    rows: Sequence[SentenceSize],
    gpus: int,
    distributed: recipes.DistributedArgs,
) -> MemoryEstimate:
    """Memory of each GPU with this sharding, and `rows` in one forward pass.

    A trained parameter takes 16 bytes: a float32 value and gradient with two moments, or under DeepSpeed
    bfloat16 with a float32 copy.
    """
    size = 4 if recipe.train.precision == "float32" else 2
    frozen = shape.num_parameters * size
    if recipe.quantize is not None:
        frozen -= shape.linear_parameters * (size - BYTES_PER_QUANTIZED_WEIGHT[recipe.quantize])  # type: ignore[assignment]
    adapters = recipe.model.lora is not None or recipe.freeze_language_model
    zero_stage, away = distributed.zero_stage, distributed.cpu_offload
    activations = _activations(shape, rows, size, adapters, recipe.train.activation_checkpointing)
    if distributed.fsdp:
        weights = frozen + shape.num_trainable * (4 if adapters else 4 - size)
        trained = shape.num_trainable * 12
        share = (0 if away else 1) / gpus
        made = shape.num_trainable * 4 * gpus if recipe.model.lora else 0  # new adapters, in each process
        saved = shape.vocab_size * shape.hidden_size * size  # one whole tensor, in process 0
        return MemoryEstimate(
            weights * share + _gathered(shape, size),
            shape.num_trainable * 4 * share,
            shape.num_trainable * 8 * share,
            activations,
            host=max(made, saved) + (weights + trained if away else 0),
        )
    low = (not adapters and size == 2) or (zero_stage > 0 and size == 2)
    weight, gradient, moments = (2, 2, 12) if low else (4, 4, 8)
    return MemoryEstimate(
        frozen + (shape.num_trainable * weight if adapters else 0),
        shape.num_trainable * gradient / (gpus if zero_stage == 2 else 1),
        0.0 if away else shape.num_trainable * moments / (gpus if zero_stage else 1),
        activations,
        host=shape.num_trainable * moments if away else 0.0,
    )


def _gathered(shape: ModelShape, size: int) -> float:
    """The weights that FSDP gathers on each GPU at one time: embeddings, head, a block and the next one."""
    blocks = 2 * shape.linear_parameters / shape.num_layers
    return (2 * shape.vocab_size * shape.hidden_size + blocks) * size


def _activations(
    shape: ModelShape,
    rows: Sequence[SentenceSize],
    size: int,
    adapters: bool,
    activation_checkpointing: bool,
) -> float:
    """What the forward pass keeps for the backward pass.

    With activation checkpointing: the input of every block and one whole block; otherwise every block. In
    addition the logits of trained tokens, their float32 copy and gradient, and one vision block.
    """
    longest = max(row.num_tokens for row in rows) * len(rows)
    block = longest * (8 * shape.hidden_size + 4 * shape.intermediate_size) * size
    if adapters:
        # the inputs of the adapters after dropout
        block += longest * (6 * shape.hidden_size + shape.intermediate_size) * size
    blocks = (
        longest * shape.hidden_size * size * shape.num_layers + block
        if activation_checkpointing
        else block * shape.num_layers
    )
    logits = sum(row.num_trained_tokens for row in rows) * shape.vocab_size * (size + 8)
    vision = sum(row.num_patches for row in rows) * shape.vision_hidden_size * 10 * size
    if shape.trained_vision_layers:
        vision *= 1 if activation_checkpointing else shape.trained_vision_layers
        patches = sum(row.num_patches for row in rows)
        vision += patches * shape.vision_hidden_size * size * shape.trained_vision_layers
    return blocks + logits + vision


def hardware_flops(shape: ModelShape, row: SentenceSize, activation_checkpointing: bool) -> float:
    """FLOPs of one training step on a sentence.

    For each weight and token: two forward, two backward, two more if blocks are recomputed, two for each
    trained weight.
    """
    passes = 3 if activation_checkpointing else 2
    linear = 2 * row.num_tokens * (passes * shape.linear_parameters + shape.num_trainable)
    attention = (
        2 * row.num_tokens**2 * shape.hidden_size * shape.num_layers * (passes + 1)
    )  # causal: half of all pairs
    head = 4 * row.num_trained_tokens * shape.vocab_size * shape.hidden_size
    vision = 2 * shape.vision_parameters * row.num_patches * (passes if shape.trained_vision_layers else 1)
    return float(linear + attention + head + vision)


def model_flops(shape: ModelShape, tokens: Sequence[int], num_trained_tokens: int, num_pixels: int) -> float:
    """FLOPs that a batch needs, without recomputation.

    `tokens`: of each sentence; `num_pixels`: of the screens that pass the vision encoder in this step.
    """
    rows = [SentenceSize(count, 0, 0, 0, 0) for count in tokens]
    rows.append(SentenceSize(0, num_trained_tokens, 0, num_pixels // shape.patch_area, 0))
    return sum(hardware_flops(shape, row, activation_checkpointing=False) for row in rows)


def _vision_layers(module: nn.Module) -> int:
    """Blocks of the vision encoder."""
    names = (name for name, _ in module.named_parameters() if is_vision_parameter(name))
    return 1 + max(int(match[1]) for name in names if (match := re.search(r"\.(\d+)\.", name)))


def _linear(module: nn.Module, name: str) -> nn.Linear:
    layer = module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def _patch_embedding(module: nn.Module) -> nn.Conv2d | nn.Conv3d:
    """The convolution that makes a vector of each patch."""
    return next(part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Conv3d))


def _patch_area(module: nn.Module) -> int:
    """Pixels of one patch."""
    height, width = _patch_embedding(module).kernel_size[-2:]
    return int(height * width)

"""What a recipe costs before it is run: parameters, tokens, memory, computing. Shapes alone: no weights are read.

In: a recipe, its model on the meta device, episodes. Out: sizes of sentences, bytes on a GPU, operations.
All of it is arithmetic on shapes; what a library keeps beside is not in it but for `RUNTIME`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from uivlm import recipe as recipes
from uivlm.actions.action import Point, Tap
from uivlm.episode import Episode, Screen, Step
from uivlm.models import tune
from uivlm.models.lora import targets
from uivlm.models.model import Built, check_length, grammar
from uivlm.models.vision import sees
from uivlm.sentences.encode import IGNORE, encode
from uivlm.sentences.sentence import Picture

PHONE = (2400, 1080)  # pixels, height and width: of episodes that are not given
STEPS = 8  # of such an episode: AITW's mean is 5,689,993 steps / 715,142 episodes
WORDS = "open the settings and turn on the dark mode of the display"
AITW = {  # subset: recorded steps (Rawles et al. 2023, table 2)
    "GoogleApps": 4_903_601,
    "Install": 250_058,
    "WebShopping": 365_253,
    "General": 85_413,
    "Single": 85_668,
}
EPISODES = 200  # of prepared data, read for their lengths
TRAINED_SHARE = 0.8  # of AITW's episodes: its standard splits are 80 / 10 / 10
QUANTISED = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256), "int8": 1.0}  # bytes a weight, its scales among them
RUNTIME = 0.8e9  # bytes that CUDA and its libraries take on a GPU


@dataclass(frozen=True, slots=True)
class Size:
    """One sentence: its tokens, those that are trained, its screens, the patches that they are seen in and their tokens."""

    tokens: int
    trained: int
    screens: int
    patches: int
    visual: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of episodes and of their sentences."""

    episodes: int
    a_step: float  # mean over sentences of tokens a screen, words included
    a_screen: float  # mean over screens of visual tokens
    median: int  # of an episode
    high: int  # 95 % of the episodes are not longer
    longest: int
    longest_sentence: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A model in numbers, for memory and operations."""

    parameters: int
    trained: int
    linear: int  # weights of the language tower's blocks
    vision: int  # parameters of the vision encoder
    vocabulary: int
    width: int
    inner: int  # of the MLP
    layers: int
    patch: int  # pixels that the vision encoder takes as one
    vision_width: int
    recompute: bool  # are blocks computed again in the backward?


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + RUNTIME


def usual_episode() -> Episode:
    """An episode of AITW's mean length on a usual phone, for want of data."""
    screen = Screen(np.zeros((*PHONE, 3), np.uint8))
    return Episode("usual", WORDS, "usual", tuple(Step(screen, Tap(Point(0.5, 0.5))) for _ in range(STEPS)))


def sizes(recipe: recipes.Recipe, built: Built, episodes: Iterable[Episode]) -> list[list[Size]]:
    """Of each episode's sentences. ValueError where one is longer than the model reads; no screen is ever cut."""
    spoken, patch = grammar(recipe), _patch(built.module)
    found = []
    for episode in episodes:
        rows = []
        for window in spoken.windows(episode):
            sentence = spoken.sentence(window)
            example = encode(sentence, built.reader, look=False)
            check_length(example.input_ids, built.reader, f"episode {episode.id!r}")
            seen = [built.reader.pixels(piece).shape for piece in sentence if isinstance(piece, Picture)]
            patches = sum(shape[1] * shape[2] // patch for shape in seen)
            trained = int((example.labels != IGNORE).sum())
            rows.append(Size(len(example.input_ids), trained, len(seen), patches, sum(example.tokens)))
        found.append(rows)
    return found


def lengths(found: list[list[Size]]) -> Lengths:
    """What `sizes` found, in a few numbers."""
    rows = [row for each in found for row in each]
    tokens = sorted(sum(row.tokens for row in each) for each in found)
    return Lengths(
        episodes=len(found),
        a_step=sum(row.tokens / row.screens for row in rows) / len(rows),
        a_screen=sum(row.visual for row in rows) / sum(row.screens for row in rows),
        median=tokens[len(tokens) // 2],
        high=tokens[int(0.95 * (len(tokens) - 1))],
        longest=tokens[-1],
        longest_sentence=max(row.tokens for row in rows),
    )


def begun(built: Built, seed: int) -> tuple[nn.Module, Shape]:
    """The model made ready to train, as a run has it, and its shape."""
    module = built.module
    adapted = [_linear(module, name) for name in targets(module, built.targets)]
    vocabulary, width = module.get_input_embeddings().weight.shape  # type: ignore[operator]
    text: Any = getattr(module.config, "text_config", module.config)
    kernel = _kernel(module)
    patch = _patch(module)
    before = {
        "parameters": sum(value.numel() for value in module.parameters()),
        "linear": sum(one.in_features * one.out_features for one in adapted),
        "vision": sum(value.numel() for name, value in module.named_parameters() if sees(name)),
        "inner": max(max(one.in_features, one.out_features) for one in adapted),
    }
    model = tune.begin(built, seed)
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    return model, Shape(
        **before,
        trained=trained,
        vocabulary=vocabulary,
        width=width,
        layers=int(text.num_hidden_layers),
        patch=patch,
        vision_width=kernel.out_channels,
        recompute=built.recompute,
    )


def memory(recipe: recipes.Recipe, shape: Shape, rows: Sequence[Size], gpus: int, zero: int) -> Memory:
    """On each GPU under a ZeRO stage, with `rows` in one forward.

    Adapters and what is trained beside them are float32 with two moments each: 16 bytes; under DeepSpeed and in full
    fine-tuning bfloat16 with float32 copies, 16 bytes too. `train.offload` takes the moments away, and the weights of stage 3
    but for those of the block at work, which are not counted.
    """
    size = 4 if recipe.train.precision == "float32" else 2
    frozen = shape.parameters * size
    if recipe.quantise is not None:
        frozen -= shape.linear * (size - QUANTISED[recipe.quantise])  # type: ignore[assignment]
    adapters = recipe.model.lora is not None
    low = (not adapters and size == 2) or (zero > 0 and size == 2)
    weight, gradient, moments = (2, 2, 12) if low else (4, 4, 8)
    weights = frozen + (shape.trained * weight if adapters else 0)
    share = {
        "weights": gpus if zero >= 3 else 1,
        "gradients": gpus if zero >= 2 else 1,
        "optimizer": gpus if zero >= 1 else 1,
    }
    away = recipe.train.offload
    return Memory(
        0.0 if away and zero == 3 else weights / share["weights"],
        shape.trained * gradient / share["gradients"],
        0.0 if away and zero else shape.trained * moments / share["optimizer"],
        _activations(shape, rows, size, adapters),
    )


def _activations(shape: Shape, rows: Sequence[Size], size: int, adapters: bool) -> float:
    """What the forward keeps for the backward: every block's input and one whole block where blocks are computed again,
    else every block; the logits of trained tokens as they are, in float32, and their gradient; one vision block."""
    longest = max(row.tokens for row in rows) * len(rows)
    block = longest * (8 * shape.width + 4 * shape.inner) * size
    if adapters:
        block += longest * (6 * shape.width + shape.inner) * 4  # adapters read their input in float32
    blocks = longest * shape.width * size * shape.layers + block if shape.recompute else block * shape.layers
    logits = sum(row.trained for row in rows) * shape.vocabulary * (size + 8)
    vision = sum(row.patches for row in rows) * shape.vision_width * 10 * size
    return blocks + logits + vision


def operations(shape: Shape, row: Size) -> float:
    """Floating-point operations that one training step spends on a sentence: two for each weight and token forward, two
    back through it, two more where blocks are computed again, two for gradients of what is trained."""
    passes = 3 if shape.recompute else 2
    linear = 2 * row.tokens * (passes * shape.linear + shape.trained)
    attention = 2 * row.tokens**2 * shape.width * shape.layers * (passes + 1)  # causal: half of all pairs
    head = 4 * row.trained * shape.vocabulary * shape.width
    return float(linear + attention + head + 2 * shape.vision * row.patches)


def needed(shape: Shape, tokens: Sequence[int], trained: int, pixels: int) -> float:
    """Floating-point operations that a batch cannot do without: sentences of so many tokens, so many of which are trained,
    and screens of so many pixels that pass the vision encoder now. What is computed again is not needed."""
    lean = replace(shape, recompute=False)
    rows = [Size(number, 0, 0, 0, 0) for number in tokens]
    return sum(operations(lean, row) for row in rows) + operations(
        lean, Size(0, trained, 0, pixels // shape.patch, 0)
    )


def _linear(module: nn.Module, name: str) -> nn.Linear:
    found = module.get_submodule(name)
    assert isinstance(found, nn.Linear)
    return found


def _kernel(module: nn.Module) -> nn.Conv2d | nn.Conv3d:
    """What makes a vector of each patch."""
    return next(part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Conv3d))


def _patch(module: nn.Module) -> int:
    """Pixels of one patch."""
    height, width = _kernel(module).kernel_size[-2:]
    return int(height * width)

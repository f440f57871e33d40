"""A run as a value: which model, which grammar, which data, how it trains.

A recipe file is a Python program with one function, `recipe() -> Recipe`; a variant is `dataclasses.replace`.
A checkpoint carries its recipe as JSON.
"""

import dataclasses
import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from uivlm.trees import TreeError, build


class RecipeError(ValueError):
    """A recipe that cannot be run; the text says which setting and what to write instead."""


VisualTokens = Literal["pooled", "grid", "patches", "busy"]  # of a bridge


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters on the language model's linear layers (Hu et al. 2021)."""

    r: int = 64
    alpha: int = 16
    dropout: float = 0.05

    def __post_init__(self) -> None:
        _at_least("model.lora.r", self.r, 1)
        _at_least("model.lora.alpha", self.alpha, 1)
        if not 0 <= self.dropout < 1:
            raise RecipeError(f"model.lora.dropout is {self.dropout}: it must lie in [0, 1)")


@dataclass(frozen=True, slots=True)
class LlamaVit:
    """The bridge of `models/llama_vit.py`: Llama, ViT and one linear projection."""

    base: str  # folder of a bridge base, or "tiny": the one that comes with this package
    lora: Lora | None = field(default_factory=Lora)  # None: language model and projection in full
    kind: Literal["llama_vit"] = "llama_vit"


@dataclass(frozen=True, slots=True)
class LlamaParts:
    """The same bridge, put together of a published Llama and a published vision encoder (`models/bridge_parts.py`); the
    projection between them is new, and trained whole. LoRA as it stands; Q-LoRA with `quantise`."""

    base: str  # the Llama: folder in the hub's format, or an id on the model hub
    vision: str  # a ViT, SigLIP, CLIP or DINOv2, likewise
    lora: Lora | None = field(default_factory=Lora)  # None: as above
    quantise: Literal["nf4", "int8", None] = None  # how the frozen Llama is kept (bitsandbytes)
    visual_tokens: VisualTokens = "grid"  # one; means; all; the busy ones
    grid: int = 8  # rows, and columns, of visual tokens
    kind: Literal["llama_parts"] = "llama_parts"

    def __post_init__(self) -> None:
        _at_least("model.grid", self.grid, 1)
        _check_quantise(self.quantise, self.lora)


@dataclass(frozen=True, slots=True)
class QwenVL:
    """The original Qwen-VL of `models/qwen_vl`. LoRA as it stands; Q-LoRA with `quantise`; `lora` None: full
    fine-tuning of the language model and the resampler."""

    base: str  # folder in the original's format, or an id on the model hub
    lora: Lora | None = field(default_factory=Lora)
    quantise: Literal["nf4", "int8", None] = None  # how the frozen language model is kept (bitsandbytes)
    long_context: Literal["none", "original"] = "none"  # "none": training and acting read alike
    context: int | None = None  # most tokens of a sentence; None: what the base was made for
    kind: Literal["qwen_vl"] = "qwen_vl"

    def __post_init__(self) -> None:
        if self.context is not None:
            _at_least("model.context", self.context, 1)
        _check_quantise(self.quantise, self.lora)


@dataclass(frozen=True, slots=True)
class QwenHF:
    """Qwen2-VL, Qwen2.5-VL or Qwen3-VL, transformers' own classes (`models/qwen_hf`). LoRA as it stands; Q-LoRA with
    `quantise`; `lora` None: full fine-tuning of the language model. Screens keep their aspect ratio: a visual token
    is 28 x 28 pixels (Qwen3-VL: 32 x 32), and these are the most and the least of them a screen."""

    base: str  # folder in the hub's format, or an id on the model hub
    lora: Lora | None = field(default_factory=Lora)
    quantise: Literal["nf4", "int8", None] = None  # how the frozen language model is kept (bitsandbytes)
    most: int = 512  # visual tokens of the newest screen
    older: tuple[int, ...] = ()  # most at age 1, 2, ...; the last for all beyond; (): as `most`
    least: int = 4  # smaller screens are enlarged
    kind: Literal["qwen_hf"] = "qwen_hf"

    def __post_init__(self) -> None:
        _check_quantise(self.quantise, self.lora)
        _at_least("model.least", self.least, 1)
        _at_least("model.most", self.most, self.least)
        for tokens in self.older:
            if not self.least <= tokens <= self.most:
                raise RecipeError(
                    f"model.older has {tokens}: it must be {self.least} (model.least) to {self.most} (model.most)"
                )


def _check_quantise(quantise: str | None, lora: Lora | None) -> None:
    if lora is None and quantise is not None:
        raise RecipeError(
            f"model.quantise is {quantise!r}, but quantised weights cannot be trained: set model.quantise "
            "to null, or keep model.lora"
        )


ModelPart = LlamaVit | LlamaParts | QwenVL | QwenHF


@dataclass(frozen=True, slots=True)
class GrammarPart:
    """How episodes become sentences (`sentences.sentence.Grammar`)."""

    bins: int = 100  # equal bins of each axis
    screens: int = 8  # most screens in one sentence
    before: int = 8  # most older actions told in words


@dataclass(frozen=True, slots=True)
class Also:
    """More prepared data, mixed in."""

    folder: str
    weight: float = (
        1.0  # share of its sentences in an epoch: of 0.5 a half, each epoch another; of 2 each twice
    )
    split: str = "train"
    limit: int | None = None  # episodes

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 100:
            raise RecipeError(f"data.also has a weight of {self.weight}: it must be above 0 and at most 100")


@dataclass(frozen=True, slots=True)
class Data:
    folder: str  # prepared data: what `python -m data_prep` wrote
    split: str = "train"
    limit: int | None = None  # episodes
    also: tuple[Also, ...] = ()  # more folders, mixed in by weight
    validation: int = 0  # episodes of the split "validation", judged at each tenth of a run; 0: none

    def __post_init__(self) -> None:
        _at_least("data.validation", self.validation, 0)


@dataclass(frozen=True, slots=True)
class Train:
    lr: float = 1e-5  # peak learning rate
    epochs: float = 1.0
    batch: int = 1  # sentences a device and forward
    accumulate: int = 1  # forwards a step
    pack: bool = False  # a forward's sentences lie in one row, none sees another; else in rows, padded
    warmup: float = 0.01  # share of all steps
    weight_decay: float = 0.1
    beta2: float = 0.95  # AdamW
    clip: float = 1.0  # gradient norm
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    zero: Literal[0, 1, 2, 3] = 0  # DeepSpeed stage; 0: no DeepSpeed
    offload: bool = False  # optimizer (and weights, zero=3) in the machine's memory instead of the GPU's
    keep_features: bool = False  # each screen is seen once by frozen parts; features stay in DATA/features
    readers: int | None = None  # processes that read beside it; None: half of the cores, at most eight
    patience: int | None = None  # so many judgements in a row without a better one end a run
    report_to: tuple[str, ...] = ("tensorboard",)  # and what else transformers can report to: "wandb", ...
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("accumulate", 1)):
            _at_least(f"train.{name}", getattr(self, name), least)
        if self.offload and not self.zero:
            raise RecipeError(
                "train.offload needs DeepSpeed: set train.zero to 1, 2 or 3, or train.offload to false"
            )
        for name, least in (("readers", 0), ("patience", 1)):
            if getattr(self, name) is not None:
                _at_least(f"train.{name}", getattr(self, name), least)
        for name in ("lr", "epochs", "clip"):
            if not getattr(self, name) > 0:
                raise RecipeError(f"train.{name} is {getattr(self, name)}: it must be above 0")


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    model: ModelPart
    grammar: GrammarPart
    data: Data
    train: Train

    @property
    def quantise(self) -> Literal["nf4", "int8", None]:
        """How the frozen language model is kept; None: as it is."""
        return None if isinstance(self.model, LlamaVit) else self.model.quantise

    def __post_init__(self) -> None:
        if self.quantise is not None and self.train.zero == 3:
            raise RecipeError(
                f"train.zero is 3, which cannot share out quantised weights (model.quantise {self.quantise!r}): "
                "set train.zero to 2 or less"
            )
        if self.train.patience is not None and not self.data.validation:
            raise RecipeError(
                f"train.patience is {self.train.patience}, but nothing is judged: set data.validation to a number of episodes"
            )
        if self.model.lora is None:
            _check_full(self.train)
        if isinstance(self.model, QwenHF) and self.model.older and self.train.keep_features:
            raise RecipeError(
                "train.keep_features keeps each screen at one size, but model.older shrinks screens as they age: set "
                "train.keep_features to false"
            )


def _check_full(train: Train) -> None:
    """What full fine-tuning (model.lora null) asks of the rest."""
    if train.zero == 3:
        raise RecipeError(
            "train.zero is 3, under which no process holds the weights that full fine-tuning (model.lora null) "
            "has to save: set train.zero to 2 or less"
        )
    if train.precision == "bfloat16" and train.zero == 0:
        raise RecipeError(
            "full fine-tuning (model.lora null) in bfloat16 would lose its small steps: set train.precision to "
            "float32, or train.zero to 1 or 2, which keeps float32 copies"
        )
    if train.keep_features:
        raise RecipeError(
            "train.keep_features keeps what frozen parts said of a screen, but full fine-tuning (model.lora null) "
            "may train some of them: set train.keep_features to false"
        )


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise RecipeError(f"{name} is {value}: it must be at least {least}")


def load(path: str | Path) -> Recipe:
    """The recipe of a file, by its path or its name in `recipes/`."""
    file = Path(path)
    if file.suffix != ".py":
        file = Path("recipes") / f"{path}.py"
    if not file.is_file():
        known = ", ".join(sorted(p.stem for p in Path("recipes").glob("*.py") if p.stem != "__init__"))
        raise RecipeError(f"no recipe {str(path)!r}: {file} is not a file (recipes here: {known or 'none'})")
    spec = importlib.util.spec_from_file_location(f"recipe_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.recipe() if callable(getattr(module, "recipe", None)) else None
    if not isinstance(made, Recipe):
        raise RecipeError(
            f"{file} is no recipe: it needs a function recipe() that returns a uivlm.recipe.Recipe"
        )
    return made


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with `part.field=value` settings applied; values are checked against the field's type."""
    tree = to_dict(recipe)
    for setting in settings:
        name, equals, value = setting.partition("=")
        *parts, last = name.split(".")
        node = tree
        for part in parts:
            node = node.get(part) if isinstance(node, dict) else None  # type: ignore[assignment]
        known = equals and isinstance(node, dict) and last in node
        if not known or (value != "null" and isinstance(node[last], dict)):  # a part can be left out only
            raise RecipeError(
                f"--set {setting!r}: no such setting; write part.field=value with a field of the recipe"
            )
        try:
            node[last] = json.loads(value)
        except json.JSONDecodeError:
            node[last] = value
    return from_dict(tree)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    return dataclasses.asdict(recipe)


def from_dict(tree: dict[str, Any]) -> Recipe:
    try:
        made: Recipe = build(Recipe, tree, "recipe")
    except TreeError as error:
        raise RecipeError(str(error)) from error
    return made

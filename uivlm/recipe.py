"""A run as a value: the model, the prompt format, the data, and how to train.

A recipe file is a Python program with one function, `recipe() -> Recipe`; a variant is `dataclasses.replace`.
A checkpoint carries its recipe as JSON.
"""

import dataclasses
import importlib.util
import json
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, with_config

from uivlm.actions.schema import STRICT, SchemaError, from_json


class RecipeError(ValueError):
    """A recipe that cannot run; the message names the setting and the remedy."""


def _require(condition: object, message: str) -> None:
    if not condition:
        raise RecipeError(message)


def _above_zero(name: str, value: float) -> None:
    _require(value > 0, f"{name} is {value}: it must be above 0")


def _at_least(name: str, value: float | None, minimum: float) -> None:
    _require(value is None or value >= minimum, f"{name} is {value}: it must be at least {minimum}")


VisualTokens = Literal["pooled", "grid", "all", "non_blank"]  # of a bridge
Quantization = Literal["nf4", "int8", None]  # of the frozen language model (bitsandbytes); None: as published


@dataclass(frozen=True, slots=True)
class LoraArgs:
    """Low-rank adapters on the language model's linear layers (Hu et al. 2021)."""

    r: int = 64
    alpha: int = 16
    dropout: float = 0.05

    def __post_init__(self) -> None:
        _at_least("model.lora.r", self.r, 1)
        _at_least("model.lora.alpha", self.alpha, 1)
        _require(0 <= self.dropout < 1, f"model.lora.dropout is {self.dropout}: it must be in [0, 1)")


@dataclass(frozen=True, slots=True)
class LlamaVitArgs:
    """The bridge of `models/bridge/model.py`: Llama, ViT and one linear projection."""

    base_model: str  # folder of a bridge base, or "tiny": the base that comes with this package
    lora: LoraArgs | None = LoraArgs()  # None: train language model and projection in full
    type: Literal["llama_vit"] = "llama_vit"


@dataclass(frozen=True, slots=True)
class LlamaPartsArgs:
    """The same bridge from a published Llama and vision encoder. The projection is new, and trained."""

    base_model: str  # the Llama: folder in the hub's format, or an id on the model hub
    vision_encoder: str  # a ViT, SigLIP, CLIP or DINOv2: folder or id
    lora: LoraArgs | None = LoraArgs()  # None: as in LlamaVitArgs
    quantize: Quantization = None
    visual_tokens: VisualTokens = "grid"  # one mean; means of cells; every patch; patches that show something
    grid_size: int = 8  # rows and columns of visual tokens
    type: Literal["llama_parts"] = "llama_parts"

    def __post_init__(self) -> None:
        _at_least("model.grid_size", self.grid_size, 1)
        _check_quantize(self.quantize, self.lora)


@dataclass(frozen=True, slots=True)
class QwenVLArgs:
    """The original Qwen-VL of `models/qwen_vl`. LoRA by default; Q-LoRA with `quantize`."""

    base_model: str  # folder in the original's format, or an id on the model hub
    lora: LoraArgs | None = LoraArgs()  # None: train language model and resampler in full
    quantize: Quantization = None
    dynamic_ntk: bool = False  # the original's scaling above 2,048 tokens; training and acting then differ
    max_length: int | None = None  # tokens of a sentence; None: what the base was trained with
    type: Literal["qwen_vl"] = "qwen_vl"

    def __post_init__(self) -> None:
        _at_least("model.max_length", self.max_length, 1)
        _check_quantize(self.quantize, self.lora)


@dataclass(frozen=True, slots=True)
class QwenHFArgs:
    """Qwen2-VL, Qwen2.5-VL or Qwen3-VL by transformers' own classes. LoRA by default; Q-LoRA with `quantize`.

    Screens keep their aspect ratio. A visual token is 28 x 28 pixels (Qwen3-VL: 32 x 32).
    """

    base_model: str  # folder in the hub's format, or an id on the model hub
    lora: LoraArgs | None = LoraArgs()  # None: train the language model in full
    quantize: Quantization = None
    max_visual_tokens: int = 512  # of the newest screen
    max_visual_tokens_by_age: tuple[int, ...] = ()  # age 1, 2, ...; the last holds for all older screens
    min_visual_tokens: int = 4  # smaller screens are enlarged
    type: Literal["qwen_hf"] = "qwen_hf"

    def __post_init__(self) -> None:
        _check_quantize(self.quantize, self.lora)
        low, high, ages = self.min_visual_tokens, self.max_visual_tokens, self.max_visual_tokens_by_age
        _at_least("model.min_visual_tokens", low, 1)
        _at_least("model.max_visual_tokens", high, low)
        limits = f"{low} (model.min_visual_tokens) to {high} (model.max_visual_tokens)"
        wrong = [tokens for tokens in ages if not low <= tokens <= high]
        _require(not wrong, f"model.max_visual_tokens_by_age has {wrong}: it must be {limits}")


def _check_quantize(quantize: str | None, lora: LoraArgs | None) -> None:
    message = (
        f"model.quantize is {quantize!r}, but quantized weights cannot be trained: set it to null, or keep "
    )
    _require(lora is not None or quantize is None, f"{message}model.lora")


ModelArgs = LlamaVitArgs | LlamaPartsArgs | QwenVLArgs | QwenHFArgs


@dataclass(frozen=True, slots=True)
class PromptArgs:
    """How episodes become sentences (`episodes.sentence.PromptFormat`)."""

    num_bins: int = 100  # equal bins of each axis
    max_screens: int = 8  # in one sentence
    max_past_actions: int = 8  # older actions given as text


@dataclass(frozen=True, slots=True)
class ExtraDataset:
    """More prepared data, mixed in."""

    path: str
    weight: float = 1.0  # share of its sentences in an epoch: 0.5 takes a half, 2 takes each twice
    split: str = "train"
    max_episodes: int | None = None

    def __post_init__(self) -> None:
        _require(0 < self.weight <= 100, f"data.extra.weight is {self.weight}: it must be in (0, 100]")


@dataclass(frozen=True, slots=True)
class DataArgs:
    path: str  # prepared data: the folder that `python -m data_prep` wrote
    split: str = "train"
    max_episodes: int | None = None
    extra: tuple[ExtraDataset, ...] = ()
    eval_episodes: int = 0  # of the split "validation", evaluated after each tenth of a run; 0: no validation

    def __post_init__(self) -> None:
        _at_least("data.eval_episodes", self.eval_episodes, 0)


@dataclass(frozen=True, slots=True)
class OptimArgs:
    """AdamW and its schedule: linear warmup, then cosine decay to zero."""

    lr: float = 1e-5  # peak learning rate
    weight_decay: float = 0.1
    adam_beta2: float = 0.95
    max_grad_norm: float = 1.0
    warmup_fraction: float = 0.01  # of all optimizer steps

    def __post_init__(self) -> None:
        _above_zero("optim.lr", self.lr)
        _above_zero("optim.max_grad_norm", self.max_grad_norm)


@dataclass(frozen=True, slots=True)
class TrainArgs:
    epochs: float = 1.0
    per_device_batch_size: int = 1  # sentences per forward and device
    gradient_accumulation_steps: int = 1  # forwards per optimizer step
    packing: bool = False  # concatenate a batch into one row without cross-attention; otherwise pad rows
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    num_workers: int | None = None  # data loader processes; None: half of the cores, at most eight
    cache_vision_features: bool = False  # compute frozen vision features once, into DATA/features
    early_stopping_patience: int | None = None  # validations in a row without improvement that end a run
    report_to: tuple[str, ...] = ("tensorboard",)  # what transformers reports to: "wandb", ...
    seed: int = 0

    def __post_init__(self) -> None:
        _above_zero("train.epochs", self.epochs)
        _at_least("train.per_device_batch_size", self.per_device_batch_size, 1)
        _at_least("train.gradient_accumulation_steps", self.gradient_accumulation_steps, 1)
        _at_least("train.num_workers", self.num_workers, 0)
        _at_least("train.early_stopping_patience", self.early_stopping_patience, 1)


@dataclass(frozen=True, slots=True)
class DistributedArgs:
    """How the training state is sharded (DeepSpeed)."""

    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0  # 0: no DeepSpeed
    cpu_offload: bool = False  # keep the optimizer (stage 3: also the weights) in CPU memory

    def __post_init__(self) -> None:
        message = "distributed.cpu_offload needs DeepSpeed: set distributed.zero_stage to 1, 2 or 3"
        _require(self.zero_stage or not self.cpu_offload, message)


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    model: Annotated[ModelArgs, Field(discriminator="type")]
    prompt: PromptArgs
    data: DataArgs
    train: TrainArgs = TrainArgs()
    optim: OptimArgs = OptimArgs()
    distributed: DistributedArgs = DistributedArgs()

    @property
    def quantize(self) -> Quantization:
        """Quantization of the frozen language model; None: as published."""
        return getattr(self.model, "quantize", None)

    def without_quantization(self) -> "Recipe":
        model: Any = self.model
        replace = dataclasses.replace
        return self if self.quantize is None else replace(self, model=replace(model, quantize=None))

    def __post_init__(self) -> None:
        train, zero_stage, eval_episodes = self.train, self.distributed.zero_stage, self.data.eval_episodes
        _require(
            self.quantize is None or zero_stage < 3,
            f"distributed.zero_stage is 3, which cannot shard quantized weights (model.quantize "
            f"{self.quantize!r}): set distributed.zero_stage to 2 or less",
        )
        _require(
            train.early_stopping_patience is None or eval_episodes,
            f"train.early_stopping_patience is {train.early_stopping_patience}, but there is no validation: "
            "set data.eval_episodes to a number of episodes",
        )
        by_age = isinstance(self.model, QwenHFArgs) and self.model.max_visual_tokens_by_age
        _require(
            not (by_age and train.cache_vision_features),
            "train.cache_vision_features caches each screen at one size, but model.max_visual_tokens_by_age "
            "shrinks screens as they age: set train.cache_vision_features to false",
        )
        if self.model.lora is None:
            _check_full(train, zero_stage)


def _check_full(train: TrainArgs, zero_stage: int) -> None:
    """What full fine-tuning requires of the other parts."""
    full = "full fine-tuning (model.lora null)"
    _require(
        zero_stage < 3,
        f"distributed.zero_stage is 3, where no process holds all the weights that {full} must save: "
        "set distributed.zero_stage to 2 or less",
    )
    _require(
        zero_stage or train.precision != "bfloat16",
        f"{full} in bfloat16 would lose its small updates: set train.precision to float32, or "
        "distributed.zero_stage to 1 or 2, which keeps float32 copies",
    )
    _require(
        not train.cache_vision_features,
        f"train.cache_vision_features needs frozen vision parts, but {full} may train them: "
        "set train.cache_vision_features to false",
    )


def recipes_dir() -> Path:
    """The folder of the recipes that come with uivlm: inside the package, or next to it in the repository."""
    package = Path(__file__).parent
    return package / "recipes" if (package / "recipes").is_dir() else package.parent / "recipes"


def load(path: str | Path) -> Recipe:
    """The recipe of a file `*.py`, or a recipe that comes with uivlm, by its name."""
    file = Path(path) if Path(path).suffix == ".py" else recipes_dir() / f"{path}.py"
    names = ", ".join(sorted(path.stem for path in recipes_dir().glob("*.py")))
    _require(file.is_file(), f"no recipe {str(path)!r}: name a file *.py, or one of {names}")
    loader = SourceFileLoader(f"recipe_{file.stem}", str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    loaded = module.recipe() if callable(getattr(module, "recipe", None)) else None
    if not isinstance(loaded, Recipe):
        raise RecipeError(f"{file} is not a recipe: it needs a function recipe() that returns a Recipe")
    return loaded


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
        if not known or (value != "null" and isinstance(node[last], dict)):  # a part can only be set to null
            raise RecipeError(f"--set {setting!r}: no such setting; write part.field=value")
        try:
            node[last] = json.loads(value)
        except json.JSONDecodeError:
            node[last] = value
    return from_dict(tree)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    return dataclasses.asdict(recipe)


def from_dict(tree: dict[str, Any]) -> Recipe:
    """The recipe of a parsed recipe.json. Raises RecipeError that names the field."""
    if isinstance(tree, dict) and "grammar" in tree:
        raise RecipeError(
            "written by uivlm 0.1: grammar is now prompt, and train is split into train, optim "
            "and distributed. Train again, or rewrite recipe.json by the table in CHANGELOG.md (0.2.0)"
        )
    try:
        return from_json(ADAPTER, tree, "recipe")
    except SchemaError as error:
        raise RecipeError(str(error)) from error


ADAPTER: TypeAdapter[Recipe] = TypeAdapter(Recipe)

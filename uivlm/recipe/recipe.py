"""The run as a value: its parts, what they require of each other, and its JSON in a checkpoint."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, with_config

from uivlm.actions.schema import STRICT, SchemaError, from_json
from uivlm.recipe.checks import RecipeError, require
from uivlm.recipe.model_args import LlamaPartsArgs, LlamaVitArgs, ModelArgs, Quantization, QwenHFArgs
from uivlm.recipe.train_args import DataArgs, DistributedArgs, OptimArgs, PromptArgs, TrainArgs


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

    @property
    def freeze_language_model(self) -> bool:
        """Is the projector trained alone?"""
        return getattr(self.model, "freeze_language_model", False)

    def without_pretrained_projector(self) -> "Recipe":
        if not isinstance(self.model, LlamaVitArgs | LlamaPartsArgs):
            return self
        return dataclasses.replace(self, model=dataclasses.replace(self.model, projector=None))

    def without_quantization(self) -> "Recipe":
        model: Any = self.model
        replace = dataclasses.replace
        return self if self.quantize is None else replace(self, model=replace(model, quantize=None))

    def __post_init__(self) -> None:
        train, distributed = self.train, self.distributed
        require(
            self.quantize is None or not distributed.fsdp,
            f"distributed.fsdp cannot shard quantized weights (model.quantize {self.quantize!r}): set "
            "distributed.fsdp to false, or model.quantize to null",
        )
        require(
            not (train.cache_vision_features and distributed.fsdp),
            "train.cache_vision_features needs the whole vision encoder in a process, but distributed.fsdp "
            "shards it: set train.cache_vision_features to false",
        )
        require(
            not train.compile_blocks or not (distributed.sharded or self.quantize),
            "train.compile_blocks needs whole, unquantized weights: set it to false, or "
            "distributed.zero_stage to 0, distributed.fsdp to false and model.quantize to null",
        )
        by_age = isinstance(self.model, QwenHFArgs) and self.model.max_visual_tokens_by_age
        require(
            not (by_age and train.cache_vision_features),
            "train.cache_vision_features caches each screen at one size, but model.max_visual_tokens_by_age "
            "shrinks screens as they age: set train.cache_vision_features to false",
        )
        lora = self.model.lora
        require(
            not (lora is not None and lora.vision and train.cache_vision_features),
            "train.cache_vision_features needs a frozen vision encoder, but model.lora.vision trains it: "
            "set one of them to false",
        )
        require(
            self.optim.projector_lr is None or isinstance(self.model, LlamaVitArgs | LlamaPartsArgs),
            f"optim.projector_lr is {self.optim.projector_lr}, but a {self.model.type} model has no "
            "projection that is trained whole: set it to null",
        )
        require(
            not (distributed.fsdp and self.freeze_language_model),
            "distributed.fsdp shards a model for its gradients, but model.freeze_language_model trains the "
            "projection alone: set distributed.fsdp to false",
        )
        if self.model.lora is None and not self.freeze_language_model:
            _check_full(train, distributed)


def _check_full(train: TrainArgs, distributed: DistributedArgs) -> None:
    """What full fine-tuning requires of the other parts."""
    full = "full fine-tuning (model.lora null)"
    require(
        distributed.sharded or train.precision != "bfloat16",
        f"{full} in bfloat16 would lose its small updates: set train.precision to float32, or "
        "distributed.zero_stage to 1 or 2, or distributed.fsdp to true, which keep float32 copies",
    )
    require(
        not train.cache_vision_features,
        f"train.cache_vision_features needs frozen vision parts, but {full} may train them: "
        "set train.cache_vision_features to false",
    )


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

"""Settings of a recipe: `--set` changes a field; an error names the field, the value and the remedy."""

import json
import re
from dataclasses import replace

import pytest

from uivlm.cli.recipes import RENAMED, load_recipe
from uivlm.recipe import (
    DataArgs,
    DistributedArgs,
    LlamaPartsArgs,
    LlamaVitArgs,
    LoraArgs,
    OptimArgs,
    PromptArgs,
    QwenHFArgs,
    QwenVLArgs,
    Recipe,
    RecipeError,
    TrainArgs,
    from_dict,
    override,
    to_dict,
)

PLAIN = Recipe("plain", LlamaVitArgs("tiny"), PromptArgs(), DataArgs("data"))
QWEN = replace(PLAIN, model=QwenVLArgs("folder"))
HF = replace(PLAIN, model=QwenHFArgs("folder"))
TYPES = "'llama_vit', 'llama_parts', 'qwen_vl', 'qwen_hf'"


def error_of(recipe: Recipe, settings: str) -> str:
    """The message of the RecipeError, which is one line."""
    with pytest.raises(RecipeError) as error:
        override(recipe, settings.split())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_settings_by_hand() -> None:
    settings = [
        "name=other", "model.base_model=folder", "model.lora.r=7", "prompt.max_screens=3",
        "data.max_episodes=5", "data.max_episodes=6", "optim.lr=3e-5", "train.epochs=2",
        "train.cache_vision_features=true", "distributed.zero_stage=2", "train.precision=float32",
    ]  # fmt: skip
    changed = override(PLAIN, settings)
    assert changed == Recipe(
        "other",
        LlamaVitArgs("folder", LoraArgs(r=7)),
        PromptArgs(max_screens=3),
        DataArgs("data", max_episodes=6),
        TrainArgs(epochs=2.0, cache_vision_features=True, precision="float32"),
        OptimArgs(lr=3e-5),
        DistributedArgs(zero_stage=2),
    )
    assert isinstance(changed.train.epochs, float)
    assert override(changed, ["data.max_episodes=null"]).data.max_episodes is None
    assert override(PLAIN, []) == PLAIN
    assert PLAIN.train == TrainArgs()


def test_settings_of_qwenvl() -> None:
    settings = ["model.lora.r=8", "model.quantize=nf4", "model.dynamic_ntk=true", "model.max_length=4096"]
    changed = override(QWEN, settings)
    assert changed.model == QwenVLArgs("folder", LoraArgs(r=8), "nf4", True, 4096)
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    cleared = override(changed, ["model.quantize=null", "model.max_length=null"])
    assert cleared.model == QwenVLArgs("folder", LoraArgs(r=8), dynamic_ntk=True)
    full = override(QWEN, ["model.lora=null", "train.precision=float32"])
    assert full.model == QwenVLArgs("folder", None)
    assert from_dict(json.loads(json.dumps(to_dict(full)))) == full
    assert override(QWEN, ["model.lora=null", "distributed.zero_stage=2"]).model == full.model


def test_settings_of_qwen_hf() -> None:
    settings = [
        "model.max_visual_tokens=256", "model.max_visual_tokens_by_age=[64,16]", "model.min_visual_tokens=9",
        "model.quantize=int8",
    ]  # fmt: skip
    changed = override(HF, settings)
    assert changed.model == QwenHFArgs(
        "folder",
        quantize="int8",
        max_visual_tokens=256,
        max_visual_tokens_by_age=(64, 16),
        min_visual_tokens=9,
    )
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    same_size = override(changed, ["model.max_visual_tokens_by_age=[]"]).model
    assert same_size == replace(changed.model, max_visual_tokens_by_age=())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("model.type=gpt", f"recipe.model.type: expected one of {TYPES}; got 'gpt'"),
        ("model.type=llama_vit", "recipe.model.quantize: unknown field, got None"),
        ("model=null", "recipe.model: expected an object, got None"),
        ("model.quantize=nf3", "recipe.model.quantize: expected 'nf4', 'int8' or None, got 'nf3'"),
        ("model.dynamic_ntk=ntk", "recipe.model.dynamic_ntk: expected a boolean, got 'ntk'"),
        ("model.max_length=long", "recipe.model.max_length: expected an integer, got 'long'"),
        ("model.max_length=0", "model.max_length is 0: it must be at least 1"),
        ("model.lora=8", "no such setting"),
        (
            "model.lora=null model.freeze_language_model=true",
            "^model.freeze_language_model: got true; .*of a qwen_vl model.*Set model.lora.vision=true",
        ),
        ("model.lora=null model.lora.r=8", "no such setting"),
        (
            "model.lora=null model.quantize=int8",
            "model.quantize is 'int8', .* set it to null, or keep model.lora",
        ),
        (
            "model.quantize=nf4 distributed.fsdp=true",
            r"distributed.fsdp cannot shard .*model.quantize 'nf4'.*: set distributed.fsdp to false, or",
        ),
        (
            "model.lora=null",
            "bfloat16 .* set train.precision to float32, or distributed.zero_stage to 1 or 2, or distr.*fsdp",
        ),
        ("distributed.zero_stage=3", "distributed.zero_stage is 3: .* set distributed.fsdp to true"),
        (
            "distributed.zero_stage=1 distributed.fsdp=true",
            "distributed.fsdp .* set distributed.zero_stage to 0",
        ),
        *(
            (f"train.compile_blocks=true {other}", "train.compile_blocks needs whole, unquantized weights")
            for other in ("distributed.fsdp=true", "distributed.zero_stage=1", "model.quantize=nf4")
        ),
        (
            "distributed.fsdp=true train.cache_vision_features=true",
            "distributed.fsdp shards it: set train.cache_vision_features to false",
        ),
        (
            "model.lora=null distributed.zero_stage=1 train.cache_vision_features=true",
            "set train.cache_vision_features to false",
        ),
    ],
)
def test_a_bad_setting_of_qwenvl_says_so(settings: str, message: str) -> None:
    assert re.search(message, error_of(QWEN, settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "model.projector=runs/stage1",
            "^model.projector: got runs/stage1; .*of a qwen_hf model.*Set model.lora.vision=true",
        ),
        ("model.max_visual_tokens_by_age=5", "recipe.model.max_visual_tokens_by_age: expected a list, got 5"),
        (
            "model.max_visual_tokens_by_age=[1.5]",
            r"recipe.model.max_visual_tokens_by_age\[0\]: expected an integer, got 1.5",
        ),
        (
            "model.max_visual_tokens_by_age=[600]",
            r"model.max_visual_tokens_by_age has \[600\]: .* 4 \(model.min_visual_tokens\) to "
            r"512 \(model.max_visual_tokens\)",
        ),
        ("model.max_visual_tokens=3", "model.max_visual_tokens is 3: it must be at least 4"),
        ("model.min_visual_tokens=0", "model.min_visual_tokens is 0: it must be at least 1"),
        (
            "model.max_visual_tokens_by_age=[9] train.cache_vision_features=true",
            "model.max_visual_tokens_by_age .* set train.cache_vision_features to false",
        ),
        ("model.lora=null model.quantize=nf4", "model.quantize is 'nf4', .* keep model.lora"),
        ("model.quantize=nf4 distributed.fsdp=true", "distributed.fsdp cannot shard quantized weights"),
    ],
)
def test_a_bad_setting_of_qwen_hf_says_so(settings: str, message: str) -> None:
    assert re.search(message, error_of(HF, settings))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optim.lr", "--set 'optim.lr': no such setting; write part.field=value"),
        ("train.speed=1", "--set 'train.speed=1': no such setting"),
        ("speed=1", "no such setting"),
        ("train=1", "no such setting"),
        ("optim.lr.x=1", "no such setting"),
        ("=1", "no such setting"),
        *(
            (
                f"train.per_device_batch_size={value}",
                f"recipe.train.per_device_batch_size: expected an integer, got {got}",
            )
            for value, got in (("many", "'many'"), ("1.5", "1.5"), ("true", "True"), ("null", "None"))
        ),
        ("train.cache_vision_features=1", "recipe.train.cache_vision_features: expected a boolean, got 1"),
        (
            "train.precision=float16",
            "recipe.train.precision: expected 'float32' or 'bfloat16', got 'float16'",
        ),
        ("distributed.zero_stage=4", "distributed.zero_stage is 4: it must be 0, 1 or 2"),
        ("distributed.zero_stage=-1", "distributed.zero_stage is -1: it must be 0, 1 or 2"),
        ("distributed.fsdp=1", "recipe.distributed.fsdp: expected a boolean, got 1"),
        ("distributed.zero_stage=true", "recipe.distributed.zero_stage: expected an integer, got True"),
        (
            "distributed.cpu_offload=true",
            "distributed.cpu_offload .* set distributed.zero_stage to 1 or 2, or distributed.fsdp to true",
        ),
        ("model.type=gpt", f"recipe.model.type: expected one of {TYPES}; got 'gpt'"),
        ("data=null", "recipe.data: expected an object, got None"),
        ("train=null", "recipe.train: expected an object, got None"),
        ("name=3", "recipe.name: expected a string, got 3"),
        ("data.max_episodes=few", "recipe.data.max_episodes: expected an integer, got 'few'"),
        ('data.extra=[{"path":"x","weight":0}]', "data.extra.weight is 0.0: it must be in"),
        ("train.per_device_batch_size=0", "train.per_device_batch_size is 0: it must be at least 1"),
        (
            "train.gradient_accumulation_steps=-1",
            "train.gradient_accumulation_steps is -1: it must be at least 1",
        ),
        ("data.early_stopping_patience=3", "data.early_stopping_patience is 3, .* set data.eval_episodes"),
        ("optim.lr=0", "optim.lr is 0.0: it must be above 0"),
        ("train.epochs=-1", "train.epochs is -1.0: it must be above 0"),
        ("train.save_minutes=0", "train.save_minutes is 0.0: it must be above 0"),
        ("optim.lr=NaN", "recipe.optim.lr: expected a finite number, got nan"),
        ("model.lora.r=0", "model.lora.r is 0: it must be at least 1"),
        ("model.lora.dropout=1", r"model.lora.dropout is 1.0: it must be in \[0, 1\)"),
    ],
)
def test_a_bad_setting_says_so(setting: str, message: str) -> None:
    assert re.search(message, error_of(PLAIN, setting))


def test_nan_is_refused_in_python_too() -> None:
    with pytest.raises(RecipeError, match="optim.lr is nan"):
        OptimArgs(lr=float("nan"))


# -- other versions --------------------------------------------------------------------------------


def test_a_recipe_of_another_version() -> None:
    tree = to_dict(PLAIN)
    with pytest.raises(RecipeError, match=r"recipe.train.speed: unknown field, got 1"):
        from_dict(tree | {"train": tree["train"] | {"speed": 1}})
    with pytest.raises(RecipeError, match=r"recipe.data: field required"):
        from_dict({name: value for name, value in tree.items() if name != "data"})
    with pytest.raises(RecipeError, match=r"recipe.data: expected an object, got 3"):
        from_dict(tree | {"data": 3})
    with pytest.raises(RecipeError, match=r"recipe.model.type: field required"):
        from_dict(tree | {"model": {"base_model": "tiny"}})


def test_a_recipe_of_0_1_is_refused() -> None:
    tree = {
        "name": "tiny",
        "model": {"base": "tiny"},
        "grammar": {"bins": 100},
        "data": {},
        "train": {"zero": 0},
    }
    with pytest.raises(RecipeError, match=r"uivlm 0.1: grammar is now prompt.*CHANGELOG"):
        from_dict(tree)


def field_exists(name: str) -> bool:
    models = (LlamaPartsArgs("a", "b"), QwenVLArgs("a"), QwenHFArgs("a"))
    part, _, field = name.partition(".")
    return any(field in to_dict(replace(PLAIN, model=model))[part] for model in models)


@pytest.mark.parametrize("old", RENAMED)
def test_a_setting_of_0_1_gives_the_new_name(old: str) -> None:
    with pytest.raises(RecipeError, match=f"{old} is now {RENAMED[old]}"):
        load_recipe("tiny", [f"{old}=1"])
    assert field_exists(RENAMED[old])

"""A bridge: which weights are trained, and their saving, loading and merging."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from tests.helpers.model_examples import example_of, shaken_by
from tests.helpers.tiny_models import base, bridge, episode, prepare, recipe
from uivlm.episodes.sentence import PromptFormat
from uivlm.models import adapters
from uivlm.models.bridge.model import LlamaVit
from uivlm.models.build import build, prompt_format
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.lora_layers import lora_layers
from uivlm.models.merging import merge_adapters
from uivlm.recipe import LlamaVitArgs, Recipe, from_dict, to_dict
from uivlm.training import checkpoint
from uivlm.training.train import train


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    root = tmp_path_factory.mktemp("small")
    return recipe(base(root / "base"), prepare(root / "data", [episode(0, 3)]))


def test_exactly_adapters_and_projection_are_trained(small: Recipe) -> None:
    model = adapters.attach_adapters(build(small), 0)
    layers = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    layers += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    top = "base_model.model."
    expected = {f"{top}projection.{name}" for name in ("weight", "bias")}
    for layer in (0, 1):
        for name in layers:
            for half in "AB":
                expected.add(f"{top}language.model.layers.{layer}.{name}.lora_{half}.default.weight")
    assert set(adapters.trainable_parameter_names(model)) == expected


def test_the_check_of_what_is_trained_can_fail(small: Recipe) -> None:
    built = build(small)
    model = adapters.attach_adapters(built, 0)
    model.get_submodule("base_model.model.language.lm_head").requires_grad_(True)
    with pytest.raises(AssertionError, match="lm_head"):
        adapters.check_trainable_parameters(model, built)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"nothing\.\d+", "no module matches"),
        (r".*(q_proj|attention\.query|projection|query|dense|fc1)", "vision encoder stays frozen"),
        (r"language\.model\.norm", "not a linear layer"),
    ],
)
def test_targets_are_refused(pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        lora_layers(bridge(), pattern)


def test_seed_decides_the_adapters(small: Recipe) -> None:
    def first(seed: int) -> torch.Tensor:
        torch.rand(3)  # whatever was drawn before
        model = adapters.attach_adapters(build(small), seed)
        return next(value for name, value in model.named_parameters() if "lora_A" in name)

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def shaken(built: LoadedModel) -> "adapters.PeftModel":
    """The model after a random change of its adapters and projection."""
    model = shaken_by(adapters.attach_adapters(built, 0))
    assert isinstance(model, adapters.PeftModel)
    return model


@torch.inference_mode()
def test_fresh_adapters_change_nothing(small: Recipe) -> None:
    built, plain = build(small), build(small)
    ids, _, pixels = example_of(bridge())
    assert torch.equal(
        adapters.attach_adapters(built, 0).eval()(ids, pixels).logits, plain.model(ids, pixels).logits
    )


@torch.inference_mode()
def test_merging_adds_b_a_scale(small: Recipe) -> None:
    built = build(small)
    before = {k: v.clone() for k, v in built.model.state_dict().items()}
    model = shaken(built)
    name = "language.model.layers.1.mlp.up_proj"
    part = model.get_submodule(f"base_model.model.{name}")
    delta = part.lora_B["default"].weight @ part.lora_A["default"].weight * 8 / 4  # type: ignore[index,operator,union-attr]
    module = merge_adapters(model)
    after = module.get_submodule(name).weight
    assert torch.allclose(after, before[f"{name}.weight"] + delta, atol=1e-6)
    assert float(delta.abs().max()) > 1e-3


@torch.inference_mode()
def test_saved_adapters_are_the_same_adapters(small: Recipe, tmp_path: Path) -> None:
    built = build(small)
    model = shaken(built)
    ids, _, pixels = example_of(bridge())
    wanted = model(ids, pixels).logits
    adapters.save_adapters(model, built, "tiny", tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "projector.safetensors",
    ]  # fmt: skip
    again = adapters.load_adapters(build(small), tmp_path).eval()
    assert torch.equal(again(ids, pixels).logits, wanted)
    assert torch.allclose(merge_adapters(again)(ids, pixels).logits, wanted, atol=1e-4)
    assert not torch.allclose(build(small).model(ids, pixels).logits, wanted, atol=1e-2)


def test_the_grammar_is_the_recipes(small: Recipe) -> None:
    assert prompt_format(small) == PromptFormat(num_bins=100, max_screens=4, max_past_actions=3)
    assert from_dict(to_dict(small)) == small


@pytest.mark.slow
def test_full_fine_tuning_of_a_bridge_trains_all_but_the_vision_encoder(
    small: Recipe, tmp_path: Path
) -> None:
    one = replace(
        small, model=LlamaVitArgs(small.model.base_model, lora=None), train=replace(small.train, epochs=3)
    )
    built = build(one)
    before = {name: value.clone() for name, value in built.model.state_dict().items()}
    train(one, tmp_path / "full")
    again, module = adapters.load(one, tmp_path / "full")
    after = module.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved == {name for name in before if not name.startswith("vision.")}
    assert {file.name for file in (tmp_path / "full").iterdir()} == set(checkpoint.checkpoint_files(one))
    assert again.lora is None


@torch.inference_mode()
def test_what_was_trained_in_full_of_a_bridge_is_saved(small: Recipe, tmp_path: Path) -> None:
    one = replace(small, model=LlamaVitArgs(small.model.base_model, lora=None))
    built = build(one)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    ids, _, pixels = example_of(cast(LlamaVit, built.model))
    adapters.save(model, built, one.model.base_model, tmp_path)
    assert torch.equal(adapters.load(one, tmp_path)[1](ids, pixels).logits, model(ids, pixels).logits)

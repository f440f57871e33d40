"""A bridge's projection: its own learning rate, and a first stage that trains it alone."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback

from tests.helpers import tiny_models, two_process
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import prepare, with_settings
from tests.helpers.tiny_models import recipe as small_recipe
from tests.helpers.training_runs import EPISODES, StoppedError, stop_at
from uivlm.inference.load import load_checkpoint, read_recipe
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.export import merge
from uivlm.recipe import LlamaPartsArgs, LlamaVitArgs, LoraArgs, QwenVLArgs, Recipe, RecipeError
from uivlm.training.callbacks import ProgressLogger
from uivlm.training.checkpoint import checkpoint_files
from uivlm.training.train import train
from uivlm.training.trainer import SentenceTrainer, split_projector_groups

pytestmark = pytest.mark.slow

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A bridge of two models, with adapters."""
    root = tmp_path_factory.mktemp("parts")
    prepare(root / "data", EPISODES)
    args = LlamaPartsArgs(
        str(write_llama(root / "llama")),
        str(write_vision(root / "vit", "vit")),
        LoraArgs(2, 4, 0.0),
        grid_size=2,
    )
    return replace(small_recipe(root / "none", root / "data"), model=args)


def with_model(recipe: Recipe, **settings: Any) -> Recipe:
    return replace(recipe, model=replace(recipe.model, **settings))


def first_stage(recipe: Recipe) -> Recipe:
    return with_model(recipe, lora=None, freeze_language_model=True)


@pytest.fixture(scope="module", params=["llama_parts", "llama_vit"])
def bridge(request: pytest.FixtureRequest, parts: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The same run, and that of a bridge from its own folder."""
    if request.param == "llama_parts":
        return parts
    folder = tiny_models.base(tmp_path_factory.mktemp("bridge") / "base")
    return replace(parts, model=LlamaVitArgs(str(folder), LoraArgs(2, 4, 0.0)))


@pytest.fixture(scope="module")
def stage1(bridge: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(first_stage(bridge), tmp_path_factory.mktemp("stage1") / "out")


def test_first_stage_trains_the_projection_alone(bridge: Recipe, stage1: Path) -> None:
    """Its checkpoint has the projection and no other weights; all else is as published."""
    assert {file.name for file in stage1.iterdir()} == set(checkpoint_files(first_stage(bridge)))
    assert not [
        name for name in adapters.ALL_FILES if name.startswith("adapter") and (stage1 / name).exists()
    ]
    before, after = build(bridge).model.state_dict(), load_checkpoint(stage1).model.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"projection.weight", "projection.bias"}


def test_second_stage_starts_from_the_first(bridge: Recipe, stage1: Path, tmp_path: Path) -> None:
    second = with_model(bridge, projector=str(stage1))
    weights = load_file(stage1 / "projector.safetensors")
    for name, value in build(second).model.projection.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(value, weights[name])
    out = train(second, tmp_path / "second")
    assert not torch.equal(load_file(out / "projector.safetensors")["weight"], weights["weight"])
    moved = with_model(second, projector=str(tmp_path / "gone"))
    assert adapters.load(moved, out)[1] is not None, "the checkpoint needs no earlier stage"
    with pytest.raises(
        ValueError, match=r"model\.projector: got .*gone, which has no projector\.safetensors"
    ):
        build(moved)


def test_second_stage_needs_a_projection_of_its_shape(parts: Recipe, tmp_path: Path) -> None:
    (tmp_path / "stage1").mkdir()
    save_file(dict(nn.Linear(24, 32).state_dict()), tmp_path / "stage1" / "projector.safetensors")
    second = with_model(parts, projector=str(tmp_path / "stage1"))
    with pytest.raises(ValueError, match=r"has shape \[32, 24\] where the model has \[32, 16\]"):
        build(with_model(second, vision_encoder=str(narrow_vision(tmp_path))))


def narrow_vision(root: Path) -> Path:
    from transformers import ViTConfig, ViTModel

    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    ViTModel(ViTConfig(**sizes)).save_pretrained(root / "narrow")
    folder = write_vision(root / "names", "vit")
    (root / "narrow" / "preprocessor_config.json").write_bytes(
        (folder / "preprocessor_config.json").read_bytes()
    )
    return root / "narrow"


def test_first_stage_resumes_to_the_same_bytes(
    bridge: Recipe, stage1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its states hold no frozen weights."""
    saving_often = with_settings(first_stage(bridge), save_minutes=1e-9)
    with monkeypatch.context() as patched:
        patched.setattr(ProgressLogger, "on_log", stop_at(3))
        with pytest.raises(StoppedError):
            train(saving_often, tmp_path / "out")
    state = next((tmp_path / "out.state").glob("checkpoint-*/model.safetensors"))
    assert set(load_file(state)) == {"projection.weight", "projection.bias"}
    out = train(saving_often, tmp_path / "out", resume=True)
    assert (out / "projector.safetensors").read_bytes() == (stage1 / "projector.safetensors").read_bytes()


def test_first_stage_merges_into_a_base(bridge: Recipe, stage1: Path, tmp_path: Path) -> None:
    merge(read_recipe(stage1), stage1, tmp_path / "base")
    weights = load_file(tmp_path / "base" / "model.safetensors")
    torch.testing.assert_close(
        weights["projection.weight"], load_file(stage1 / "projector.safetensors")["weight"]
    )


def test_projection_stays_float32(bridge: Recipe, stage1: Path) -> None:
    for recipe in (first_stage(bridge), with_model(bridge, projector=str(stage1))):
        loaded = build(with_settings(recipe, precision="bfloat16"))
        model = adapters.prepare_for_training(loaded, 0)
        assert adapters.projector(model, loaded).weight.dtype == torch.float32
    weights = load_file(stage1 / "projector.safetensors")
    assert torch.equal(adapters.projector(model, loaded).weight, weights["weight"]), "not rounded"


def test_learning_rates_follow_the_schedule(
    parts: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group's rate is its peak times the same factor; biases are not decayed."""
    rates: list[dict[str, float]] = []
    decays: dict[str, float] = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            names = {id(value): name for name, value in parts["model"].named_parameters()}
            groups = parts["optimizer"].param_groups
            rates.append({names[id(v)]: group["lr"] for group in groups for v in group["params"]})
            decays.update({names[id(v)]: group["weight_decay"] for group in groups for v in group["params"]})

    begun = SentenceTrainer.train

    def watched(self: SentenceTrainer, **settings: Any) -> Any:
        self.add_callback(Watch())
        return begun(self, **settings)

    monkeypatch.setattr(SentenceTrainer, "train", watched)
    train(with_settings(parts, projector_lr=0.05, lr=0.01, weight_decay=0.1), tmp_path / "out")
    for step in rates[:-1]:
        of_projector = {rate for name, rate in step.items() if "projection" in name}
        of_adapters = {rate for name, rate in step.items() if "lora_" in name}
        assert len(of_projector) == len(of_adapters) == 1
        assert of_projector.pop() == pytest.approx(5 * of_adapters.pop())
    assert len({next(iter(step.values())) for step in rates}) > 3, "the schedule moves"
    assert {decay for name, decay in decays.items() if name.endswith("projection.bias")} == {0.0}
    assert {decay for name, decay in decays.items() if not name.endswith("bias")} == {0.1}


def test_groups_split_once() -> None:
    """No parameter is lost or doubled, and no group is empty."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(
        [{"params": [model[0].weight, model[1].weight], "weight_decay": 0.1}, {"params": [model[1].bias]}],
        lr=1.0,
    )
    split_projector_groups(optimizer, model[1], 2.0)
    found = [(group["lr"], [tuple(v.shape) for v in group["params"]]) for group in optimizer.param_groups]
    assert found == [(1.0, [(2, 2)]), (2.0, [(2, 2)]), (2.0, [(2,)])]


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.parametrize(("stage", "alone"), [(1, False), (2, False), (2, True)])
def test_two_rates_under_zero(
    parts: Recipe, parent: ProcessPoolExecutor, tmp_path: Path, stage: int, alone: bool
) -> None:
    """Two processes train as one process does: adapters and projection, or the projection alone."""
    one = first_stage(parts) if alone else parts
    plain = with_settings(one, projector_lr=0.005, lr=0.001, per_device_batch_size=4, epochs=0.5)
    expected = load_file(train(plain, tmp_path / "plain") / "projector.safetensors")
    sharded = with_settings(plain, zero_stage=stage, per_device_batch_size=2)
    (tmp_path / "run.py").write_text(f"from uivlm.recipe import *\n\ndef recipe(): return {sharded!r}\n")
    program = ["-m", "uivlm", "train", str(tmp_path / "run.py"), "--out", str(tmp_path / "out")]
    processes = two_process.begin(parent, program, tmp_path / "said", ENVIRONMENT)
    assert two_process.ended(parent, processes) == [0, 0], (tmp_path / "said").read_text()[-4000:]
    for name, value in load_file(tmp_path / "out" / "projector.safetensors").items():
        assert float((value - expected[name]).abs().mean()) < 1e-5


def test_settings_without_effect_are_errors(parts: Recipe) -> None:
    for bridge in (parts, replace(parts, model=LlamaVitArgs("folder"))):
        with pytest.raises(
            RecipeError, match=r"set model\.lora to null, or model\.freeze_language_model to false"
        ):
            with_model(bridge, freeze_language_model=True)
    with pytest.raises(RecipeError, match=r"projector_lr is 0\.1, but a qwen_vl model has no projection"):
        with_settings(replace(parts, model=QwenVLArgs("folder")), projector_lr=0.1)
    with pytest.raises(RecipeError, match=r"distributed\.fsdp .* model\.freeze_language_model"):
        with_settings(first_stage(parts), fsdp=True)
    cached = with_settings(first_stage(parts), cache_vision_features=True, precision="bfloat16")
    assert cached.freeze_language_model, "features of a frozen encoder may be cached, and bfloat16 is enough"

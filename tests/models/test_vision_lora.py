"""Adapters on the vision encoder, and rank-stabilized scaling: training, files, merging, import."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn

from tests.helpers.hf_checkpoints import KINDS, write
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.tiny_models import base, episode, qwen_base, qwen_recipe, recipe
from uivlm import recipe as recipes
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat
from uivlm.inference import vllm_engine
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.export import merge
from uivlm.models.import_adapters import import_adapters
from uivlm.models.lora_layers import lora_layers
from uivlm.models.multimodal import is_vision_parameter
from uivlm.models.qwen_vl.to_qwen2 import to_qwen2
from uivlm.training.collator import LOSS_KEYS, Collator

pytestmark = pytest.mark.slow

VISION = recipes.LoraArgs(2, 4, 0.0, vision=True)
# njucckevin/SeeClick, finetune/finetune.py: names that contain one of these, outside of attn_pool
SEECLICK_NAMES = [
    "visual.conv1", "attn.in_proj", "attn.out_proj", "mlp.c_fc", "mlp.c_proj", "c_attn", "attn.c_proj", "w1",
    "w2",
]  # fmt: skip
MODELS = ("qwen_vl", *KINDS, "bridge", "vit", "siglip", "clip", "dinov2")


def make_recipe(name: str, root: Path, lora: recipes.LoraArgs = VISION) -> recipes.Recipe:
    small = recipe(root / "base", root)
    if name == "qwen_vl":
        return qwen_recipe(qwen_base(root / "base"), root, lora=lora)
    if name == "bridge":
        return replace(small, model=recipes.LlamaVitArgs(str(base(root / "base")), lora))
    if name in KINDS:
        args: Any = recipes.QwenHFArgs(str(write(root / "base", name)), lora, max_visual_tokens=16)
    else:
        parts = write_llama(root / "llama"), write_vision(root / "vision", name)
        args = recipes.LlamaPartsArgs(*map(str, parts), lora, grid_size=2)
    return replace(small, model=args)


def make_batch(processor: Any) -> Any:
    """Sentences with screens."""
    format_ = PromptFormat(100, 2, 3)
    windows = [next(iter(format_.windows(episode(seed, 2)))) for seed in (1, 2)]
    examples = [encode(format_.sentence(window), processor) for window in windows]
    batch = Collator(processor.pad_id, processor.image_token_id)(examples)
    return {name: value for name, value in batch.items() if name not in LOSS_KEYS}


def randomize_adapters(model: nn.Module, seed: int = 1) -> None:
    torch.manual_seed(seed)
    for name, value in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(value, std=0.1)


@torch.inference_mode()
def logits(model: nn.Module, batch: Any) -> Tensor:
    return model.eval()(**batch).logits.clone()


@pytest.mark.parametrize("name", MODELS)
def test_vision_adapters_train_and_come_back(name: str, tmp_path: Path) -> None:
    """Every adapter has a gradient, with and without recomputation; the saved model computes the same."""
    small = make_recipe(name, tmp_path)
    loaded = build(small)
    model = adapters.prepare_for_training(loaded, 0)
    randomize_adapters(model)
    batch = make_batch(loaded.processor)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        model.train().zero_grad()
        # of all tokens: in the small Qwen3-VL a screen's last deepstack level reaches its own tokens only
        every = {name: value for name, value in batch.items() if name != "trained_positions"}
        model(**every).logits.square().mean().backward()
        trained = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}  # type: ignore[union-attr]
        assert not [n for n, value in trained.items() if not value.abs().max() > 0]
        gradients.append(trained)
    assert any(is_vision_parameter(n.split("lora_")[0]) for n in gradients[0])
    for n, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][n], value, rtol=1e-4, atol=1e-6)
    expected = logits(model, batch)
    adapters.save(model, loaded, "base", tmp_path)
    _, merged = adapters.load(small, tmp_path)
    assert not [n for n, _ in merged.named_parameters() if "lora_" in n]
    torch.testing.assert_close(logits(merged, batch), expected, rtol=1e-4, atol=1e-4)
    plain = build(small)
    if name in KINDS or name == "qwen_vl":  # a bridge's projection is in a file of its own
        theirs = PeftModel.from_pretrained(plain.model, str(tmp_path))  # type: ignore[arg-type]
        torch.testing.assert_close(logits(theirs, batch), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen_vl", "Qwen2_5_VL", "bridge"])
def test_checkpoints_of_one_base_keep_their_own_vision_adapters(name: str, tmp_path: Path) -> None:
    small = make_recipe(name, tmp_path)
    batch, folders = make_batch(build(small).processor), []
    for seed in (1, 2):
        loaded = build(small)
        model = adapters.prepare_for_training(loaded, 0)
        randomize_adapters(model, seed)
        folders.append(tmp_path / str(seed))
        folders[-1].mkdir()
        adapters.save(model, loaded, "base", folders[-1])
    shared = [logits(model, batch) for _, model in adapters.load_adapters_shared_base(small, folders)]
    for folder, found in zip(folders, shared, strict=True):
        expected = logits(adapters.load(small, folder)[1], batch)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(*shared, atol=1e-2)


def test_a_frozen_vision_encoder_has_no_adapters(tmp_path: Path) -> None:
    small = make_recipe("Qwen2_5_VL", tmp_path, replace(VISION, vision=False))
    model = adapters.prepare_for_training(build(small), 0)
    assert not [n for n in adapters.trainable_parameter_names(model) if is_vision_parameter(n)]


@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen3VL"])
def test_merger_has_adapters(kind: str, tmp_path: Path) -> None:
    small = make_recipe(kind, tmp_path)
    loaded = build(small)
    names = lora_layers(loaded.model, loaded.all_lora_targets, vision=True)
    parts = {name.split(".")[2] for name in names if name.startswith("model.visual")}
    assert parts == {"blocks", "merger"} | ({"deepstack_merger_list"} if kind == "Qwen3VL" else set())


def seeclick_folder(model: nn.Module, folder: Path) -> Any:
    """As SeeClick's program chooses layers and PEFT saves them. Returns PEFT's model."""
    names = [
        name
        for name, module in model.named_modules()
        if any(part in name for part in SEECLICK_NAMES)
        and "attn_pool" not in name
        and isinstance(module, nn.Linear | nn.Conv2d)
    ]
    config = LoraConfig(r=3, lora_alpha=8, lora_dropout=0.05, target_modules=names)
    theirs = get_peft_model(model, config)  # type: ignore[arg-type]
    randomize_adapters(theirs)
    theirs.save_pretrained(str(folder))
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"task_type": "CAUSAL_LM"}))
    return theirs.eval()


def test_seeclicks_adapters_are_imported(tmp_path: Path) -> None:
    """They are on the patches' convolution and the ViT's blocks, not on the resampler."""
    small = make_recipe("qwen_vl", tmp_path, recipes.LoraArgs())
    theirs = seeclick_folder(build(small).model, tmp_path / "theirs")
    saved = json.loads((tmp_path / "theirs" / "adapter_config.json").read_text())
    assert "transformer.visual.conv1" in saved["target_modules"]
    changed, loaded, model = import_adapters(small, tmp_path / "theirs")
    assert changed.model.lora == recipes.LoraArgs(3, 8, 0.05, vision=True)
    batch = make_batch(loaded.processor)
    expected = logits(theirs, batch)
    torch.testing.assert_close(logits(model, batch), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits(build(small).model, batch), expected, atol=1e-2)
    (tmp_path / "ours").mkdir()
    adapters.save(model, loaded, "base", tmp_path / "ours")
    merge(changed, tmp_path / "ours", tmp_path / "merged")
    alone = replace(small, model=replace(small.model, base_model=str(tmp_path / "merged")))
    torch.testing.assert_close(logits(build(alone).model, batch), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"adapters on the vision encoder .* Merge them"):
        to_qwen2(changed, tmp_path / "ours", tmp_path / "qwen2")


def test_vllm_refuses_vision_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = make_recipe("Qwen2VL", tmp_path)
    loaded = build(small)
    adapters.save(adapters.prepare_for_training(loaded, 0), loaded, "base", tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(recipes.to_dict(small)))
    (tmp_path / "card.json").write_text("{}")
    monkeypatch.setattr(vllm_engine, "find_spec", lambda name: object())
    with pytest.raises(ValueError, match="--backend vllm: got adapters on the vision encoder"):
        vllm_engine.load_vllm_engines([tmp_path])


def test_features_that_change_are_not_cached(tmp_path: Path) -> None:
    small = make_recipe("bridge", tmp_path)
    with pytest.raises(recipes.RecipeError, match=r"model\.lora\.vision trains it: set one of them to false"):
        replace(small, train=replace(small.train, cache_vision_features=True))


def test_rank_stabilized_scale(tmp_path: Path) -> None:
    """The merged weight is W + B A alpha / sqrt(r), and PEFT's own merge gives the same."""
    small = make_recipe("bridge", tmp_path, recipes.LoraArgs(4, 6, 0.0, rslora=True))
    loaded = build(small)
    model = adapters.prepare_for_training(loaded, 0)
    randomize_adapters(model)
    adapters.save(model, loaded, "base", tmp_path)
    values = dict(model.named_parameters())
    name = "language.model.layers.1.mlp.up_proj"
    a, b = (values[f"base_model.model.{name}.lora_{half}.default.weight"].detach() for half in "AB")
    weight = values[f"base_model.model.{name}.base_layer.weight"].detach()
    _, merged = adapters.load(small, tmp_path)
    torch.testing.assert_close(merged.get_submodule(name).weight, weight + b @ a * 6 / 4**0.5)
    theirs = PeftModel.from_pretrained(build(small).model, str(tmp_path)).merge_and_unload()  # type: ignore[arg-type]
    torch.testing.assert_close(merged.get_submodule(name).weight, theirs.get_submodule(name).weight)


def test_rank_stabilized_adapters_are_imported(tmp_path: Path) -> None:
    small = make_recipe("bridge", tmp_path, recipes.LoraArgs(4, 6, 0.0))
    config = LoraConfig(r=4, lora_alpha=6, use_rslora=True, target_modules=r"language.*q_proj")
    theirs = get_peft_model(build(small).model, config)  # type: ignore[arg-type]
    randomize_adapters(theirs)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    changed, loaded, model = import_adapters(small, tmp_path / "theirs")
    assert changed.model.lora == recipes.LoraArgs(4, 6, 0.0, rslora=True)
    batch = make_batch(loaded.processor)
    torch.testing.assert_close(logits(model, batch), logits(theirs, batch), rtol=1e-4, atol=1e-4)

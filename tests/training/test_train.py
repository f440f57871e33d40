"""What a run changes and writes, what it resumes, and what it rejects."""

import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from tests.helpers.tiny_models import (
    base,
    episode,
    prepare,
    recipe,
)
from tests.helpers.training_runs import (
    EPISODES,
    StoppedError,
    small,
    stop_at,
    watch,
    windows,
)
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import load_checkpoint
from uivlm.models.adapters import ADAPTER_WEIGHTS
from uivlm.models.build import prompt_format
from uivlm.recipe import DistributedArgs, LoraArgs, RecipeError
from uivlm.training.callbacks import latest_checkpoint
from uivlm.training.checkpoint import checkpoint_files, save_base_checkpoint
from uivlm.training.deepspeed import deepspeed_config
from uivlm.training.train import print_example, train

EVERY_STEP = 1e-9  # minutes between checkpoints


@pytest.mark.slow
def test_the_file_set_is_exact_and_the_frozen_weights_are_untouched(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watch(monkeypatch)
    out = train(small(root, epochs=1.0), tmp_path / "runs" / "out")
    assert {f.name for f in out.iterdir()} == set(checkpoint_files(small(root))) == {
        "adapter_model.safetensors", "adapter_config.json", "projector.safetensors", "recipe.json",
        "card.json", "log.jsonl", "curves.html",
    }  # fmt: skip
    assert [f.name for f in out.parent.iterdir()] == ["out"], "the run's own state is gone"
    before, model = made
    after = {
        k.replace(".base_layer", ""): v
        for k, v in model.base_model.model.state_dict().items()
        if "lora_" not in k
    }
    assert after.keys() == before.keys()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {"projection.weight", "projection.bias"}
    assert all(float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTER_WEIGHTS).items() if "lora_B" in k)


def test_the_card_tells_the_run(root: Path, tmp_path: Path) -> None:
    out = train(small(root, epochs=1.0, seed=7), tmp_path / "out")
    card = json.loads((out / "card.json").read_text())
    assert card["data"] == [{
        "fingerprint": "of 24 rows", "split": "train", "weight": 1.0,
        "episodes": 8, "damaged_episodes": 0, "steps": 24, "windows": 10, "windows_too_long": 0,
    }]  # fmt: skip
    width = {
        "q": (32, 32),
        "k": (32, 32),
        "v": (32, 32),
        "o": (32, 32),
        "gate": (32, 48),
        "up": (32, 48),
        "down": (48, 32),
    }
    assert card["trainable_parameters"] == {
        "adapters": 2 * sum(4 * (a + b) for a, b in width.values()), "projection": 24 * 32 + 32,
    }  # fmt: skip
    assert card["seed"] == 7
    assert card["prompt"] == {"num_bins": 100, "max_screens": 4, "max_past_actions": 3, "thoughts": "none"}
    assert set(card["versions"]) == {"uivlm", "torch", "transformers", "peft"}
    assert card["command"].split()[0] == shlex.quote(sys.argv[0])
    assert card["num_processes"] == 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(root: Path, tmp_path: Path) -> None:
    runs = [
        train(small(root, epochs=1.0, seed=seed), tmp_path / name)
        for name, seed in zip("abc", (1, 1, 2), strict=True)
    ]
    a, b, c = (load_file(run / ADAPTER_WEIGHTS) for run in runs)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = small(root, epochs=2.0, save_minutes=EVERY_STEP)
    whole = train(one, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_end", stop_at(7), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    state = tmp_path / "cut.state"
    newest = latest_checkpoint(state)
    assert newest is not None
    (newest / "optimizer.pt").write_bytes(b"torn")
    older = latest_checkpoint(state)
    assert older is not None
    assert older != newest, "a damaged state is passed over"
    with pytest.raises(ValueError, match="continue it with --resume"):
        train(one, tmp_path / "cut")
    with pytest.raises(ValueError, match="different recipe"):
        train(replace(one, name="other"), tmp_path / "cut", resume=True)
    cut = train(one, tmp_path / "cut", resume=True)
    for name in ("adapter_model.safetensors", "projector.safetensors"):
        a, b = load_file(whole / name), load_file(cut / name)
        assert all(torch.equal(a[key], b[key]) for key in a), name
    logs = [
        [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in (whole, cut)
    ]
    assert [line["step"] for line in logs[1]] == list(range(1, 11))
    assert [line["loss"] for line in logs[1]] == pytest.approx([line["loss"] for line in logs[0]], rel=1e-6)


@pytest.mark.slow
def test_an_interrupted_run_of_uivlm_0_1_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its recipe; and by its marker, if only the recipe was rewritten."""
    one = small(root, save_minutes=EVERY_STEP)
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_end", stop_at(4), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    state = tmp_path / "cut.state"
    for file in state.glob("checkpoint-*/complete.json"):
        marker = json.loads(file.read_text())
        file.write_text(json.dumps({"processes": marker["num_processes"], "sizes": marker["sizes"]}))
    with pytest.raises(ValueError, match=r"cut\.state was written by uivlm 0\.1: remove that folder"):
        train(one, tmp_path / "cut", resume=True)
    tree = json.loads((state / "recipe.json").read_text())
    for text, message in (
        (
            json.dumps({**tree, "grammar": tree["prompt"]}),
            r"written by uivlm 0\.1.*; remove .*cut\.state and",
        ),
        ("{", "is not a recipe of this version"),
    ):
        (state / "recipe.json").write_text(text)
        with pytest.raises(ValueError, match=f"--resume: .*recipe.json.*{message}") as refused:
            train(one, tmp_path / "cut", resume=True)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "cut").exists()


def test_the_untuned_base_is_a_checkpoint(root: Path, tmp_path: Path) -> None:
    out = save_base_checkpoint(small(root), tmp_path / "base")
    assert {f.name for f in out.iterdir()} == set(checkpoint_files(small(root)))
    assert all(
        not value.any() for name, value in load_file(out / ADAPTER_WEIGHTS).items() if "lora_B" in name
    )
    with pytest.raises(ValueError, match="already exists"):
        save_base_checkpoint(small(root), tmp_path / "base")


def test_other_bins_are_refused_with_both_numbers(root: Path, tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", [episode(0, 2)], bins=50)
    with pytest.raises(ValueError, match=r"prompt.num_bins: got 100; expected 50"):
        train(recipe(root / "base", data), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.state").exists(), "a refused run leaves nothing that has to be removed"


@pytest.mark.parametrize(
    ("split", "says"), [("test", "data.split: got 'test', which is empty"), ("trian", "no split 'trian'")]
)
def test_a_split_without_episodes_is_refused(root: Path, tmp_path: Path, split: str, says: str) -> None:
    one = small(root)
    with pytest.raises(ValueError, match=says):
        train(replace(one, data=replace(one.data, split=split)), tmp_path / "out")


def test_no_data_and_no_base(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder"):
        train(recipe(root / "base", tmp_path / "nothing"), tmp_path / "out")
    with pytest.raises(ValueError, match=r"model.base_model: got .*nothing; .* bridge base"):
        train(recipe(tmp_path / "nothing", root / "data"), tmp_path / "out")


def test_an_existing_folder_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="already exists"):
        train(small(root), root)
    with pytest.raises(ValueError, match="out.state does not exist"):
        train(small(root), tmp_path / "out", resume=True)


def test_the_first_row_is_printed_with_trained_words_green() -> None:
    rows = windows()
    file = io.StringIO()
    print_example(
        rows[3], rows.processor, Console(file=file, force_terminal=True, color_system="standard", width=200)
    )
    text = file.getvalue()
    green = "".join(part.partition("\x1b[0m")[0] for part in text.split("\x1b[32m")[1:])
    said = [
        prompt_format(recipe(Path(), Path())).action_text.format(step.action) for step in EPISODES[2].steps
    ]
    assert [part for part in green.replace("\n", "").split("■") if part] == [
        s.replace("\n", "") for s in said
    ]
    assert text.count("[4 visual tokens]") == 2


def test_zero_stages() -> None:
    assert deepspeed_config(0) is None
    for stage in (1, 2):
        told = deepspeed_config(stage)
        assert told is not None
        assert told["zero_optimization"]["stage"] == stage
    away = deepspeed_config(2, cpu_offload=True)
    assert away is not None
    assert away["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    with pytest.raises(RecipeError, match="distributed.cpu_offload needs sharding"):
        DistributedArgs(cpu_offload=True)


@pytest.mark.slow
def test_one_episode_is_learned_by_heart(tmp_path: Path) -> None:
    """Trained, saved, loaded and asked: the recorded actions' words, step by step, beyond one window too."""
    of = episode(0, 7)
    # The head is frozen: with rows of spread 0.2 no token could get more than half of the probability.
    one = recipe(base(tmp_path / "base", initializer_range=0.5), prepare(tmp_path / "data", [of]))
    one = replace(one, model=replace(one.model, lora=LoraArgs(16, 16, 0.0)))
    one = replace(one, train=replace(one.train, epochs=150.0, cache_vision_features=True))
    loaded = load_checkpoint(train(one, tmp_path / "out"))
    said = [TorchEngine(loaded).predict(of.history(t)) for t in range(7)]
    words = [loaded.prompt_format.action_text.format(step.action) for step in of.steps]
    assert [decision.text for decision in said] == words
    assert min(decision.confidence for decision in said) > 0.5, "sure of every answer"
    assert [decision.action for decision in said] == [
        loaded.prompt_format.action_text.parse(w) for w in words
    ]
    untuned = TorchEngine(load_checkpoint(save_base_checkpoint(one, tmp_path / "untuned")), max_new_tokens=8)
    assert untuned.predict(of.history(0)).text != words[0]

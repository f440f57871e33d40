"""Qwen2-VL and later: the loss of a batch, and a training run whose checkpoint acts."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.engines import next_logits
from tests.helpers.qwen_hf_rows import large_episode
from tests.helpers.tiny_models import episode, prepare
from uivlm import recipe as recipes
from uivlm.episodes.encode import IGNORE
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import load_checkpoint
from uivlm.models.multimodal import token_losses
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor
from uivlm.training.checkpoint import save_base_checkpoint
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import encode_window
from uivlm.training.train import train


@torch.inference_mode()
def test_rows_of_a_batch_and_their_loss(module: QwenHF, reader: QwenHFProcessor) -> None:
    """The path of training, from sentence to loss, against the full logits of each row alone."""
    grammar, rows, wanted = PromptFormat(max_screens=4), [], 0.0
    for seed, steps in ((0, 1), (1, 3)):
        (window,) = grammar.windows(episode(seed, steps))
        made = encode_window(
            window, first_window=True, prompt_format=grammar, processor=reader, episode_id=""
        )
        rows.append(made)
        logits = module(
            torch.from_numpy(made.input_ids)[None], [torch.from_numpy(screen) for screen in made.pixels or ()]
        ).logits[0]
        chances = logits.log_softmax(-1)
        trained = [(i - 1, label) for i, label in enumerate(made.labels.tolist()) if label != IGNORE]
        assert trained
        wanted -= sum(float(chances[i, label]) for i, label in trained)
    batch: dict[str, Any] = Collator(reader.pad_id, reader.image_token_id)(rows)
    inputs = {name: part for name, part in batch.items() if name not in LOSS_KEYS}
    found = token_losses(module(**inputs), batch["labels"]).sum()
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def part(folder: Path, data: Path, **model: Any) -> recipes.Recipe:
    grammar = recipes.PromptArgs(max_screens=3, max_past_actions=3)
    train = recipes.TrainArgs(per_device_batch_size=2, precision="float32", num_workers=0)
    sight = {
        "max_visual_tokens": 40,
        "max_visual_tokens_by_age": (20, 9),
        "lora": recipes.LoraArgs(2, 4, 0.0),
    }
    return recipes.Recipe(
        "small",
        recipes.QwenHFArgs(str(folder), **(sight | model)),
        grammar,
        recipes.DataArgs(str(data)),
        train,
        recipes.OptimArgs(lr=1e-3),
    )


@pytest.mark.slow
@pytest.mark.parametrize("lora", [recipes.LoraArgs(2, 4, 0.0), None], ids=["lora", "full"])
def test_a_trained_checkpoint_acts(
    tmp_path: Path, folder: Callable[[str], Path], kind: str, lora: recipes.LoraArgs | None
) -> None:
    """Screens of several sizes, smaller as they age: train, save, load, decode with and without cache."""
    data = prepare(tmp_path / "data", [large_episode(5), episode(1, 4), episode(2, 2)])
    train(part(folder(kind), data, lora=lora), tmp_path / "out")
    save_base_checkpoint(part(folder(kind), data, lora=lora), tmp_path / "base")
    losses = [json.loads(line)["loss"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    tuned, untuned = load_checkpoint(tmp_path / "out"), load_checkpoint(tmp_path / "base")
    keeping, fresh = (
        TorchEngine(tuned, max_new_tokens=6),
        TorchEngine(tuned, max_new_tokens=6, use_cache=False),
    )
    for t in range(5):
        history = large_episode(5).history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-3)
        assert keeping.predict(history).text == fresh.predict(history).text
        assert not torch.allclose(next_logits(keeping, history), next_logits(TorchEngine(untuned), history))
    ages = [
        piece.age
        for piece in tuned.prompt_format.prompt(large_episode(5).history(4))
        if isinstance(piece, ScreenPiece)
    ]
    assert ages == [2, 1, 0]


@pytest.mark.slow
def test_kept_features_train_alike(
    tmp_path: Path, folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uivlm.training.feature_cache.SCREENS_PER_FORWARD", 4)
    data = prepare(tmp_path / "data", [large_episode(5), episode(1, 4), episode(2, 2)])
    losses = []
    for keep in (False, True):
        wanted = part(folder("Qwen3VL"), data, max_visual_tokens_by_age=())
        out = tmp_path / f"{keep}"
        train(replace(wanted, train=replace(wanted.train, cache_vision_features=keep)), out)
        losses.append([json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)

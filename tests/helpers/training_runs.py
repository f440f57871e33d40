"""Small training runs: their episodes, recipes and rows, and hooks into a run."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.tiny_models import (
    PAD,
    config,
    episode,
    recipe,
    tokenizer,
)
from uivlm.episodes.encode import Processor
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat
from uivlm.episodes.window_index import index_windows
from uivlm.models import cost
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.build import prompt_format
from uivlm.recipe import LoraArgs, Recipe
from uivlm.training.collator import Collator
from uivlm.training.dataset import (
    WindowDataset,
)
from uivlm.training.train import train

FIRST = tokenizer().get_vocab_size()


EPISODES = [episode(seed, num_steps) for seed, num_steps in enumerate((1, 6, 2, 3, 5, 1, 2, 4))]


def small(root: Path, **part: Any) -> Recipe:
    return recipe(root / "base", root / "data", **part)


def dropping(root: Path) -> Recipe:
    """Three epochs with dropout and a worker; a checkpoint at every step."""
    one = small(root, epochs=3.0, save_minutes=1e-9, num_workers=1)
    return replace(one, model=replace(one.model, lora=LoraArgs(4, 8, 0.1)))


def windows(screens: int = 4, context: int = 512) -> WindowDataset:
    spoken = prompt_format(recipe(Path(), Path(), screens=screens))
    return dataset(EPISODES, spoken, BridgeProcessor(tokenizer(), config(context=context)))


def dataset(episodes: Sequence[Episode], spoken: PromptFormat, processor: Processor) -> WindowDataset:
    return WindowDataset(episodes, index_windows(episodes, spoken, processor), spoken, processor)


COLLATE = Collator(FIRST + PAD, config().image_token_id)


def history(root: Path, out: Path, **part: Any) -> list[dict[str, float]]:
    train(small(root, **part), out)
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a run begins with: a copy of the base's weights, and the model that is trained."""
    made: list[Any] = []
    begin = cost.prepare_for_training  # as `prepare_and_measure` calls it

    def watched(built: Any, seed: int) -> Any:
        made.append({k: v.clone() for k, v in built.model.state_dict().items()})
        made.append(begin(built, seed))
        return made[-1]

    monkeypatch.setattr(cost, "prepare_for_training", watched)
    return made


class StoppedError(InterruptedError):  # as if a signal had stopped all processes
    pass


def stop_at(step: int) -> Callable[..., None]:
    def on_log(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            raise StoppedError

    return on_log

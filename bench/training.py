"""The gain of one forward pass for a whole episode, and the cost of padding and of our training loop.

The tiny recipe's model on 8-step episodes of the simulated phone, compared with the usual way: one sample per
step, with its own screen and the last four, each encoded again. Both train the same actions with the same
loss. The runs alternate and the median counts; only the ratios are meaningful. `--count` prints instead what
a step dispatches and reads.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from shared.episodes import episodes_of_length
from shared.step_counts import count_steps
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from torch.utils.flop_counter import FlopCounterMode
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.encode import Example
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat, RenderedStep, Window
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.cost import prepare_and_measure
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import token_losses
from uivlm.recipe import Recipe, load, override
from uivlm.training.batches import Batch
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import BatchDataset, DamageLog, encode_window
from uivlm.training.mixture import MixtureSampler
from uivlm.training.trainer import make_trainer

NUM_STEPS, NUM_EPISODES = 8, 32  # steps of an episode; episodes of an optimizer step
NUM_PAST_SCREENS = 4  # in a sample of the usual way
NUM_RUNS = 7
LOOP_STEPS, LOOP_BATCH = 40, 8
StepFn = Callable[[], Any]


def main() -> None:
    recipe, console = load("tiny"), Console(width=110)
    built = build(recipe)
    model = adapters.prepare_for_training(built, 0).train()
    episodes = episodes_of_length("train", NUM_STEPS, NUM_EPISODES)
    sentence_format = prompt_format(recipe)
    whole = [
        _encode(window, sentence_format, built)
        for episode in episodes
        for window in sentence_format.windows(episode)
    ]
    single = [
        _encode(window, sentence_format, built)
        for episode in episodes
        for window in _single_step_windows(episode, sentence_format)
    ]
    assert _num_trained_tokens(whole) == _num_trained_tokens(single), "both train the same tokens"
    actions = NUM_STEPS * NUM_EPISODES
    steps = {
        "whole episodes": partial(_step, model, built, _batches(whole, 8)),
        "one sample a step": partial(_step, model, built, _batches(single, 32)),
    }
    console.print(_compare_sampling(steps, {"whole episodes": whole, "one sample a step": single}, actions))
    mixed = [
        _encode(window, sentence_format, built)
        for episode in _simulated_episodes(NUM_EPISODES)
        for window in sentence_format.windows(episode)
    ]
    console.print(_compare_packing(model, built, mixed))
    console.print(_compare_loops(recipe))


def _simulated_episodes(num_episodes: int) -> list[Episode]:
    """Simulated episodes of any length."""
    return [record_demonstration(make_task(seed, "train")) for seed in range(num_episodes)]


def _encode(window: Window, prompt_format: PromptFormat, loaded: LoadedModel) -> Example:
    return encode_window(window, True, prompt_format, loaded.processor, "")


def _single_step_windows(episode: Episode, prompt_format: PromptFormat) -> list[Window]:
    """A window for each step: its screen, the last few screens, and all earlier actions as text."""
    text = prompt_format.action_text
    steps = tuple(RenderedStep(step.screen, step.action, text.format(step.action)) for step in episode.steps)
    windows = []
    for t in range(len(steps)):
        start = max(0, t - NUM_PAST_SCREENS)
        past_actions = tuple(step.text for step in steps[:start])
        windows.append(Window(episode.goal, past_actions, steps[start : t + 1], t - start))
    return windows


def _num_trained_tokens(rows: Sequence[Example]) -> int:
    return sum(len(row.action_types) for row in rows)


def _batches(rows: Sequence[Example], size: int) -> list[list[Example]]:
    """Batches of rows of similar length."""
    ordered = sorted(rows, key=lambda row: len(row.input_ids))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _step(
    model: nn.Module, loaded: LoadedModel, batches: Sequence[list[Example]], packing: bool = False
) -> None:
    """Forward and backward of all rows, without an optimizer."""
    collate = Collator(loaded.processor.pad_id, loaded.processor.image_token_id, packing)
    num_tokens = sum(_num_trained_tokens(rows) for rows in batches)
    for rows in batches:
        batch = collate(rows)
        inputs = {name: part for name, part in batch.items() if name not in LOSS_KEYS}
        (token_losses(model(**inputs), batch["labels"]).sum() / num_tokens).backward()
    model.zero_grad()


def _median_seconds(steps: dict[str, StepFn]) -> dict[str, float]:
    """Median seconds of each step. The steps alternate; the first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for run in range(NUM_RUNS + 1):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            if run:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _count_flops(step: StepFn) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def _compare_sampling(steps: dict[str, StepFn], rows: dict[str, list[Example]], actions: int) -> Table:
    seconds = _median_seconds(steps)
    table = Table(title=f"forward and backward of {actions} actions, {torch.get_num_threads()} threads")
    for head in ("", "sentences", "screens encoded", "tokens", "GFLOP", "ms per action"):
        table.add_column(head, justify="right" if head else "left")
    figures = {}
    for name, step in steps.items():
        screens = sum(len(row.num_visual_tokens) for row in rows[name])
        tokens = sum(len(row.input_ids) for row in rows[name])
        figures[name] = (screens, tokens, _count_flops(step) / 1e9, 1000 * seconds[name] / actions)
        cells = (f"{screens}", f"{tokens}", f"{figures[name][2]:.1f}", f"{figures[name][3]:.2f}")
        table.add_row(name, str(len(rows[name])), *cells)
    ours, theirs = figures.values()
    table.add_row("ratio", "", *(f"{b / a:.2f}" for a, b in zip(ours, theirs, strict=True)))
    return table


def _compare_packing(model: nn.Module, loaded: LoadedModel, rows: list[Example]) -> Table:
    """Rows in random order, and rows of similar length, as in training."""
    orders = {
        "any order": [rows[i : i + 8] for i in range(0, len(rows), 8)],
        "similar length": _batches(rows, 8),
    }
    table = Table(title=f"{len(rows)} sentences, 8 per forward pass")
    for head in ("rows", "padding", "padded, ms", "packed, ms", "ratio"):
        table.add_column(head, justify="right" if head != "rows" else "left")
    for name, batches in orders.items():
        seconds = _median_seconds(
            {
                "padded": partial(_step, model, loaded, batches),
                "packed": partial(_step, model, loaded, batches, packing=True),
            }
        )
        tokens = sum(len(row.input_ids) for row in rows)
        padded_tokens = sum(len(part) * max(len(row.input_ids) for row in part) for part in batches)
        padded, packed = 1000 * seconds["padded"], 1000 * seconds["packed"]
        table.add_row(
            name,
            f"{1 - tokens / padded_tokens:.1%}",
            f"{padded:.0f}",
            f"{packed:.0f}",
            f"{padded / packed:.2f}",
        )
    return table


class _LossModel(nn.Module):
    """A model for transformers' Trainer: its forward returns the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, labels: Tensor, num_items_in_batch: Tensor | None = None, **inputs: Any
    ) -> dict[str, Tensor]:
        return {"loss": token_losses(self.model(**inputs), labels).sum() / num_items_in_batch}


class _SequentialTrainer(Trainer):
    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]


def _compare_loops(recipe: Recipe) -> Table:
    """Seconds of whole runs on the same rows in the same order.

    Neither saves checkpoints; ours logs all metrics.
    """
    run_recipe = override(
        recipe, ["train.epochs=1", f"train.per_device_batch_size={LOOP_BATCH}", "train.num_workers=0"]
    )
    built = build(run_recipe)
    sentence_format = prompt_format(run_recipe)
    episodes = _simulated_episodes(LOOP_STEPS * LOOP_BATCH)
    rows: Any = [
        _encode(window, sentence_format, built)
        for episode in episodes
        for window in sentence_format.windows(episode)
    ]
    rows = rows[: LOOP_STEPS * LOOP_BATCH]

    def ours(folder: Path) -> float:
        model, shape = prepare_and_measure(build(run_recipe), 0)
        trainer = make_trainer(
            run_recipe,
            built,
            model,
            shape,
            BatchDataset(_WindowList(rows), DamageLog.open(folder, len(rows))),
            MixtureSampler((len(rows),), (1.0,)),
            None,
            folder,
        )
        trainer.sampler = _SequentialOrder(rows)  # type: ignore[assignment]
        trainer.args.save_strategy = SaveStrategy.NO
        return _time_training(trainer)

    def plain(folder: Path) -> float:
        collate = Collator(built.processor.pad_id, built.processor.image_token_id)
        arguments = TrainingArguments(
            output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=LOOP_BATCH, use_cpu=True,
            learning_rate=recipe.optim.lr, optim="adamw_torch_fused", remove_unused_columns=False,
            save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=1,
        )  # fmt: skip
        model = _LossModel(adapters.prepare_for_training(build(run_recipe), 0))
        return _time_training(
            _SequentialTrainer(
                model=model,
                args=arguments,
                train_dataset=rows,
                data_collator=partial(_collate_for_model, collate),
            )
        )

    seconds: dict[str, list[float]] = {"a plain Trainer": [], "ours": []}
    for _ in range(3):
        for name, run in zip(seconds, (plain, ours), strict=True):
            with tempfile.TemporaryDirectory() as folder:
                seconds[name].append(run(Path(folder)))
    fastest = {name: min(values) for name, values in seconds.items()}
    table = Table(title=f"{LOOP_STEPS} optimizer steps of {LOOP_BATCH} sentences, the fastest of 3 runs")
    table.add_column("loop")
    table.add_column("seconds", justify="right")
    for name, value in fastest.items():
        table.add_row(name, f"{value:.2f}")
    table.add_row("overhead", f"{fastest['ours'] / fastest['a plain Trainer'] - 1:.1%}")
    return table


class _WindowList(list[Example]):
    """Encoded rows in memory, with the interface of WindowDataset."""

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return np.array([len(row.input_ids) for row in self], np.int32)


class _SequentialOrder(SequentialSampler):
    """Batches of successive rows."""

    def set_epoch(self, epoch: int) -> None: ...

    def __len__(self) -> int:
        return LOOP_STEPS

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return (tuple(range(step * LOOP_BATCH, (step + 1) * LOOP_BATCH)) for step in range(LOOP_STEPS))


def _collate_for_model(collate: Collator, rows: list[Example]) -> dict[str, Any]:
    return {name: part for name, part in collate(rows).items() if name == "labels" or name not in LOSS_KEYS}


def _time_training(trainer: Trainer) -> float:
    started = time.perf_counter()
    trainer.train()
    return time.perf_counter() - started


if __name__ == "__main__":
    if sys.argv[1:] == ["--count"]:
        Console(width=110).print(count_steps())
    else:
        main()

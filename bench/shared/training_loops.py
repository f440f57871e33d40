"""Our training loop beside a plain Trainer of transformers: whole runs on the same rows in the same order.

Neither saves checkpoints; ours logs all metrics.
"""

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from uivlm.episodes.encode import Example
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import build
from uivlm.models.cost import prepare_and_measure
from uivlm.models.multimodal import token_losses
from uivlm.recipe import Recipe, override
from uivlm.training.batches import Batch
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import BatchDataset, DamageLog
from uivlm.training.mixture import MixtureSampler
from uivlm.training.trainer import make_trainer

STEPS, BATCH_SIZE, RUNS = 40, 8, 3
NUM_ROWS = STEPS * BATCH_SIZE


def compare_loops(recipe: Recipe, rows: list[Example]) -> Table:
    """Seconds of runs of both loops on the first NUM_ROWS rows."""
    recipe = override(
        recipe, ["train.epochs=1", f"train.per_device_batch_size={BATCH_SIZE}", "train.num_workers=0"]
    )
    loops = {"a plain Trainer": _plain_trainer, "ours": _our_trainer}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(RUNS):
        for name, make in loops.items():
            with tempfile.TemporaryDirectory() as folder:
                trainer = make(recipe, rows[:NUM_ROWS], Path(folder))
                started = time.perf_counter()
                trainer.train()
                seconds[name].append(time.perf_counter() - started)
    fastest = {name: min(values) for name, values in seconds.items()}
    table = Table(title=f"{STEPS} optimizer steps of {BATCH_SIZE} sentences, the fastest of {RUNS} runs")
    table.add_column("loop")
    table.add_column("seconds", justify="right")
    for name, value in fastest.items():
        table.add_row(name, f"{value:.2f}")
    table.add_row("overhead", f"{fastest['ours'] / fastest['a plain Trainer'] - 1:.1%}")
    return table


def _our_trainer(recipe: Recipe, rows: list[Example], folder: Path) -> Trainer:
    loaded = build(recipe)
    model, shape = prepare_and_measure(loaded, 0)
    dataset = BatchDataset(_WindowList(rows), DamageLog.open(folder, len(rows)))  # type: ignore[arg-type]
    sampler = MixtureSampler((len(rows),), (1.0,))
    trainer = make_trainer(recipe, loaded, model, shape, dataset, sampler, None, folder)
    trainer.sampler = _SequentialBatches(rows)  # type: ignore[assignment]
    trainer.args.save_strategy = SaveStrategy.NO
    return trainer


def _plain_trainer(recipe: Recipe, rows: list[Example], folder: Path) -> Trainer:
    loaded = build(recipe)
    collate = Collator(loaded.processor.pad_id, loaded.processor.image_token_id)
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=BATCH_SIZE, use_cpu=True,
        learning_rate=recipe.optim.lr, optim="adamw_torch_fused", remove_unused_columns=False,
        save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    return _SequentialTrainer(
        model=_LossModel(prepare_for_training(loaded, 0)),
        args=arguments,
        train_dataset=rows,  # type: ignore[arg-type]
        data_collator=partial(_collate_for_model, collate),
    )


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


class _WindowList(list[Example]):
    """Encoded rows in memory, with the interface of WindowDataset."""

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return np.array([len(row.input_ids) for row in self], np.int32)


class _SequentialBatches(SequentialSampler):
    """Batches of successive rows."""

    def set_epoch(self, epoch: int) -> None: ...

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return (tuple(range(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)) for step in range(STEPS))


def _collate_for_model(collate: Collator, rows: list[Example]) -> dict[str, Any]:
    return {name: part for name, part in collate(rows).items() if name == "labels" or name not in LOSS_KEYS}

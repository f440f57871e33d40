"""What one forward of a whole episode is worth, and what padding and our loop cost.

The tiny recipe's model on 8-step episodes of the simulated phone. Against the field's way: one sample a step, with its own screen
and the last four before it, each encoded again. Both train the same actions by the same loss. Everything in turns, the median of
each; the ratios are what counts.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import of_length
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from torch.utils.flop_counter import FlopCounterMode
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import task
from uivlm.episode import Episode
from uivlm.models import tune
from uivlm.models.cost import begun
from uivlm.models.model import Built, build, grammar, nll
from uivlm.recipe import Recipe, load, override
from uivlm.sentences.sentence import Grammar, Window
from uivlm.training.collator import ASIDE, Collator, Row, encoded
from uivlm.training.mixture import Shares
from uivlm.training.sentence_trainer import trainer_of

STEPS, EPISODES, BEFORE = 8, 32, 4  # of an episode; episodes a step; older screens of the field's samples
RUNS = 7
LOOP_STEPS, LOOP_BATCH = 40, 8
Step = Callable[[], Any]


def main() -> None:
    recipe, console = load("tiny"), Console(width=110)
    built = build(recipe)
    model = tune.begin(built, 0).train()
    episodes = of_length("train", STEPS, EPISODES)
    spoken = grammar(recipe)
    whole = [_row(window, spoken, built) for one in episodes for window in spoken.windows(one)]
    single = [_row(window, spoken, built) for one in episodes for window in _by_step(one, spoken)]
    assert _trained(whole) == _trained(single), "both train the same tokens"
    actions = STEPS * EPISODES
    ways = {
        "whole episodes": partial(_step, model, built, _batches(whole, 8)),
        "one sample a step": partial(_step, model, built, _batches(single, 32)),
    }
    console.print(_against_the_field(ways, {"whole episodes": whole, "one sample a step": single}, actions))
    mixed = [_row(window, spoken, built) for one in _mixed(EPISODES) for window in spoken.windows(one)]
    console.print(_packing(model, built, mixed))
    console.print(_loop(recipe))


def _mixed(number: int) -> list[Episode]:
    """Simulated episodes as they come."""
    return [record(task(seed, "train")) for seed in range(number)]


def _row(window: Window, spoken: Grammar, built: Built) -> Row:
    return encoded(window, True, spoken, built.reader, "")


def _by_step(one: Episode, spoken: Grammar) -> list[Window]:
    """A window for each step: its screen, the last few before it, all older actions as words."""
    said = tuple(spoken.language.say(step.action) for step in one.steps)
    return [
        Window(one.goal, said[: max(0, t - BEFORE)], one.steps[max(0, t - BEFORE) : t + 1], min(t, BEFORE))
        for t in range(len(one.steps))
    ]


def _trained(rows: Sequence[Row]) -> int:
    return sum(len(row.kinds) for row in rows)


def _batches(rows: Sequence[Row], size: int) -> list[list[Row]]:
    """Rows of like length together."""
    ordered = sorted(rows, key=lambda row: len(row.input_ids))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _step(model: nn.Module, built: Built, batches: Sequence[list[Row]], pack: bool = False) -> None:
    """Forward and backward of all rows: an optimizer step without its optimizer."""
    collate = Collator(built.reader.pad, built.reader.placeholder, pack)
    number = sum(_trained(rows) for rows in batches)
    for rows in batches:
        inputs = {name: part for name, part in collate(rows).items() if name not in ASIDE}
        (nll(model(**inputs), inputs["labels"]).sum() / number).backward()
    model.zero_grad()


def _timed(ways: dict[str, Step]) -> dict[str, float]:
    """Median seconds of each, in turns, after one turn that does not count."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(RUNS + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if run:
                took[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in took.items()}


def _flops(way: Step) -> int:
    with FlopCounterMode(display=False) as counter:
        way()
    return counter.get_total_flops()


def _against_the_field(ways: dict[str, Step], rows: dict[str, list[Row]], actions: int) -> Table:
    seconds = _timed(ways)
    table = Table(title=f"forward and backward of {actions} actions, {torch.get_num_threads()} threads")
    for head in ("", "sentences", "screens encoded", "tokens", "GFLOP", "ms an action"):
        table.add_column(head, justify="right" if head else "left")
    figures = {}
    for name, way in ways.items():
        screens = sum(len(row.tokens) for row in rows[name])
        tokens = sum(len(row.input_ids) for row in rows[name])
        figures[name] = (screens, tokens, _flops(way) / 1e9, 1000 * seconds[name] / actions)
        cells = (f"{screens}", f"{tokens}", f"{figures[name][2]:.1f}", f"{figures[name][3]:.2f}")
        table.add_row(name, str(len(rows[name])), *cells)
    ours, theirs = figures.values()
    table.add_row("ratio", "", *(f"{b / a:.2f}" for a, b in zip(ours, theirs, strict=True)))
    return table


def _packing(model: nn.Module, built: Built, rows: list[Row]) -> Table:
    """Rows as they come, and rows of like length, as training takes them."""
    orders = {
        "as they come": [rows[i : i + 8] for i in range(0, len(rows), 8)],
        "of like length": _batches(rows, 8),
    }
    table = Table(title=f"{len(rows)} sentences of episodes as they come, 8 a forward")
    for head in ("rows", "padding", "padded, ms", "packed, ms", "ratio"):
        table.add_column(head, justify="right" if head != "rows" else "left")
    for name, batches in orders.items():
        seconds = _timed(
            {
                "padded": partial(_step, model, built, batches),
                "packed": partial(_step, model, built, batches, pack=True),
            }
        )
        tokens = sum(len(row.input_ids) for row in rows)
        places = sum(len(part) * max(len(row.input_ids) for row in part) for part in batches)
        padded, packed = 1000 * seconds["padded"], 1000 * seconds["packed"]
        table.add_row(
            name, f"{1 - tokens / places:.1%}", f"{padded:.0f}", f"{packed:.0f}", f"{padded / packed:.2f}"
        )
    return table


class _Plain(nn.Module):
    """A model as transformers' Trainer expects one: its forward gives the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, labels: Tensor, num_items_in_batch: Tensor | None = None, **inputs: Any
    ) -> dict[str, Tensor]:
        return {"loss": nll(self.model(labels=labels, **inputs), labels).sum() / num_items_in_batch}


class _PlainTrainer(Trainer):
    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]


def _loop(recipe: Recipe) -> Table:
    """Seconds of whole runs on the same rows in the same order; neither saves its state, ours tells all that it tells."""
    one = override(recipe, ["train.epochs=1", f"train.batch={LOOP_BATCH}", "train.readers=0"])
    built = build(one)
    spoken = grammar(one)
    many = _mixed(LOOP_STEPS * LOOP_BATCH)
    rows: Any = [_row(window, spoken, built) for each in many for window in spoken.windows(each)]
    rows = rows[: LOOP_STEPS * LOOP_BATCH]

    def ours(folder: Path) -> float:
        model, shape = begun(build(one), 0)
        trainer = trainer_of(
            one, built, model, shape, _Listed(rows), Shares((len(rows),), (1.0,)), None, folder
        )
        trainer.order = _InOrder(rows)  # type: ignore[assignment]
        trainer.args.save_strategy = SaveStrategy.NO
        return _run(trainer)

    def plain(folder: Path) -> float:
        collate = Collator(built.reader.pad, built.reader.placeholder)
        arguments = TrainingArguments(
            output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=LOOP_BATCH, use_cpu=True,
            learning_rate=recipe.train.lr, optim="adamw_torch_fused", remove_unused_columns=False, save_strategy="no",
            report_to="none", disable_tqdm=True, logging_steps=1,
        )  # fmt: skip
        model = _Plain(tune.begin(build(one), 0))
        return _run(
            _PlainTrainer(
                model=model, args=arguments, train_dataset=rows, data_collator=partial(_bare, collate)
            )
        )

    took: dict[str, list[float]] = {"a plain Trainer": [], "ours": []}
    for _ in range(3):
        for name, way in zip(took, (plain, ours), strict=True):
            with tempfile.TemporaryDirectory() as folder:
                took[name].append(way(Path(folder)))
    fastest = {name: min(each) for name, each in took.items()}
    table = Table(title=f"{LOOP_STEPS} optimizer steps of {LOOP_BATCH} sentences, the fastest of 3 runs")
    table.add_column("loop")
    table.add_column("seconds", justify="right")
    for name, seconds in fastest.items():
        table.add_row(name, f"{seconds:.2f}")
    table.add_row("overhead", f"{fastest['ours'] / fastest['a plain Trainer'] - 1:.1%}")
    return table


class _Listed(list[Row]):
    """Rows that are there already, as the trainer takes windows."""

    @property
    def screens(self) -> list[int]:
        return [len(row.tokens) for row in self]


class _InOrder(SequentialSampler):
    def set_epoch(self, epoch: int) -> None: ...


def _bare(collate: Collator, rows: list[Row]) -> dict[str, Any]:
    return {name: part for name, part in collate(rows).items() if name not in ASIDE}


def _run(trainer: Trainer) -> float:
    began = time.perf_counter()
    trainer.train()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

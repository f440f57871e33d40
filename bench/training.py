"""The gain of one forward pass for a whole episode, and the cost of padding and of our training loop.

The tiny recipe's model on 8-step episodes of the simulated phone, compared with the usual way: one sample per
step, with its own screen and the last four, each encoded again. Both train the same actions with the same
loss. The runs alternate and the median counts; only the ratios are meaningful. `--count` prints instead what
a step dispatches and reads.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import episodes_of_length, simulated_episodes
from shared.step_counts import count_steps
from shared.training_loops import NUM_ROWS, compare_loops
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from uivlm.episodes.encode import Example
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat, RenderedStep, Window
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import token_losses
from uivlm.recipe import load
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import encode_window

NUM_STEPS, NUM_EPISODES = 8, 32  # steps of an episode; episodes of an optimizer step
NUM_PAST_SCREENS = 4  # in a sample of the usual way
NUM_RUNS = 7
StepFn = Callable[[], Any]


def main() -> None:
    recipe, console = load("tiny"), Console(width=110)
    built = build(recipe)
    model = adapters.prepare_for_training(built, 0).train()
    episodes = episodes_of_length("train", NUM_STEPS, NUM_EPISODES)
    sentence_format = prompt_format(recipe)
    encode = partial(_encode, sentence_format, built)
    whole = encode(sentence_format.windows, episodes)
    single = encode(partial(_single_step_windows, sentence_format), episodes)
    assert _num_trained_tokens(whole) == _num_trained_tokens(single), "both train the same tokens"
    actions = NUM_STEPS * NUM_EPISODES
    steps = {
        "whole episodes": partial(_step, model, built, _batches(whole, 8)),
        "one sample a step": partial(_step, model, built, _batches(single, 32)),
    }
    console.print(_compare_sampling(steps, {"whole episodes": whole, "one sample a step": single}, actions))
    mixed = simulated_episodes("train", NUM_ROWS)
    console.print(_compare_packing(model, built, encode(sentence_format.windows, mixed[:NUM_EPISODES])))
    console.print(compare_loops(recipe, encode(sentence_format.windows, mixed)))


def _encode(
    prompt_format: PromptFormat,
    loaded: LoadedModel,
    windows: Callable[[Episode], Iterable[Window]],
    episodes: Sequence[Episode],
) -> list[Example]:
    """The sentences of these windows of each episode."""
    return [
        encode_window(window, True, prompt_format, loaded.processor, "")
        for episode in episodes
        for window in windows(episode)
    ]


def _single_step_windows(prompt_format: PromptFormat, episode: Episode) -> list[Window]:
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


if __name__ == "__main__":
    if sys.argv[1:] == ["--count"]:
        Console(width=110).print(count_steps())
    else:
        main()

"""What a recipe will cost, as tables: in a recipe, GPUs and perhaps data, out tables in the terminal.

Nothing is loaded but configurations and a tokenizer. A configuration that cannot run is refused with the setting to
change.
"""

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm.models.cost import (
    AITW,
    EPISODES,
    STEPS,
    TRAINED_SHARE,
    Memory,
    Shape,
    Size,
    begun,
    lengths,
    memory,
    operations,
    sizes,
    usual_episode,
)
from uivlm.models.model import build
from uivlm.recipe import Recipe
from uivlm.sentences.store import Prepared

BUSY = 0.4  # share of a GPU's peak that training reaches: an assumption
GB = 1e9


def plan(
    recipe: Recipe, gpus: int, memory_of_one: str | None, tflops: float, data: Path | None, console: Console
) -> None:
    """Prints tables; ValueError where a sentence is too long for the model or the GPU too small."""
    limit = None if memory_of_one is None else gigabytes(memory_of_one)
    built = build(recipe, "meta")
    episodes = [usual_episode()] if data is None else Prepared.open(data).episodes("train", limit=EPISODES)
    found = sizes(recipe, built, episodes)
    _, model = begun(built, recipe.train.seed)
    rows = sorted((row for each in found for row in each), key=lambda row: row.tokens)
    batch = rows[-1:] * recipe.train.batch  # the longest sentence decides
    console.print(_model_table(recipe, model, found, data))
    stages = {zero: memory(recipe, model, batch, gpus, zero) for zero in (0, 1, 2, 3)}
    console.print(_memory_table(recipe, stages, gpus))
    console.print(_hours_table(recipe, model, found, gpus, tflops))
    needed = stages[recipe.train.zero].total / GB
    if limit is not None and needed > limit:
        raise ValueError(
            f"about {needed:.1f} GB are needed on each GPU, --memory says {memory_of_one}: try --set model.quantise=nf4, a "
            "smaller train.batch, fewer grammar.screens, or a higher train.zero on more GPUs"
        )


def gigabytes(text: str) -> float:
    """`80`, `80GB` and `80 GiB` in units of 10^9 bytes; ValueError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB)?", text.strip(), re.IGNORECASE)
    if not found or not float(found[1]):
        raise ValueError(f"--memory is {text!r}: say what one GPU has, such as 80GB")
    return float(found[1]) * (2**30 / GB if (found[2] or "").lower() == "gib" else 1)


def _model_table(recipe: Recipe, model: Shape, found: list[list[Size]], data: Path | None) -> Table:
    source = f"a usual episode of {STEPS} steps" if data is None else f"{len(found)} episodes of {data}"
    table = Table(title=f"{recipe.name}: {recipe.model.base}", show_header=False)
    table.add_row("parameters", f"{model.parameters:,}")
    table.add_row("trained", f"{model.trained:,}")
    told = lengths(found)
    table.add_row(f"visual tokens a screen ({source})", f"{told.a_screen:.0f}")
    table.add_row("tokens a step, with its words", f"{told.a_step:.0f}")
    table.add_row(
        "tokens an episode: median, 95 %, most", f"{told.median:,}, {told.high:,}, {told.longest:,}"
    )
    table.add_row("longest sentence", f"{told.longest_sentence:,} tokens")
    return table


def _memory_table(recipe: Recipe, stages: dict[int, Memory], gpus: int) -> Table:
    table = Table(
        title=f"GB on each of {gpus} GPUs, {recipe.train.batch} a forward, {recipe.quantise or recipe.train.precision}"
    )
    for name in ("train.zero", "weights", "gradients", "optimizer", "activations", "all, with CUDA itself"):
        table.add_column(name, justify="right")
    for zero, part in stages.items():
        mark = " (the recipe)" if zero == recipe.train.zero else ""
        values = (part.weights, part.gradients, part.optimizer, part.activations, part.total)
        table.add_row(f"{zero}{mark}", *(f"{value / GB:.1f}" for value in values))
    return table


def _hours_table(recipe: Recipe, model: Shape, found: list[list[Size]], gpus: int, tflops: float) -> Table:
    """AITW's train splits, by their numbers of steps and the operations of a step here."""
    spent = sum(operations(model, row) for each in found for row in each)
    steps = sum(row.screens for each in found for row in each)
    table = Table(
        title=f"{recipe.train.epochs:g} epochs of AITW: GPU hours at {100 * BUSY:.0f} % of {tflops:g} TFLOPS"
    )
    for name in ("train split", "steps", "PFLOP", "GPU hours", f"hours on {gpus}"):
        table.add_column(name, justify="right")
    for subset, recorded in {**AITW, "all": sum(AITW.values())}.items():
        trained = recorded * TRAINED_SHARE
        flop = spent / steps * trained * recipe.train.epochs
        hours = flop / (tflops * 1e12 * BUSY) / 3600
        table.add_row(
            subset, f"{trained:,.0f}", f"{flop / 1e15:,.0f}", f"{hours:,.0f}", f"{hours / gpus:,.0f}"
        )
    return table

"""What a recipe costs: a recipe, GPUs and optionally data in; tables in the terminal out.

Only configurations and a tokenizer are loaded. If a run does not fit, the error names the setting to change.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.encode import Processor
from uivlm.episodes.window_index import WindowIndex, index_windows
from uivlm.models.build import build, check_length, prompt_format
from uivlm.models.cost import (
    AITW_STEPS,
    TRAINED_SHARE,
    TYPICAL_STEPS,
    MemoryEstimate,
    ModelShape,
    SentenceSize,
    estimate_memory,
    forward_sizes,
    hardware_flops,
    prepare_and_measure,
    sentence_sizes,
    typical_episode,
)
from uivlm.models.sentence_lengths import summarize_lengths, trainable_windows
from uivlm.recipe import DistributedArgs, Recipe

ASSUMED_MFU = 0.4  # share of a GPU's peak that training reaches: an assumption
GB = 1e9


def print_estimate(
    recipe: Recipe, gpus: int, gpu_memory: str | None, tflops: float, data: Path | None, console: Console
) -> None:
    """Print tables. ValueError if a sentence is too long for the model or the GPU is too small."""
    limit_gb = None if gpu_memory is None else parse_gigabytes(gpu_memory)
    loaded = build(recipe, "meta")
    sizes = sentence_sizes(_windows(recipe, loaded.processor, data), loaded.model)
    _, model = prepare_and_measure(loaded, recipe.train.seed)
    batch = forward_sizes(recipe, sizes)
    console.print(_model_table(recipe, model, sizes, data))
    away = recipe.distributed.cpu_offload
    shardings = [DistributedArgs(), *(DistributedArgs(stage, cpu_offload=away) for stage in (1, 2))]
    shardings += [] if recipe.quantize else [DistributedArgs(fsdp=True, cpu_offload=away)]
    estimates = {how: estimate_memory(recipe, model, batch, gpus, how) for how in shardings}
    console.print(_memory_table(recipe, estimates, gpus))
    recomputed, kept = (
        estimate_memory(_with_checkpointing(recipe, on), model, batch, gpus, recipe.distributed)
        for on in (True, False)
    )
    console.print(_checkpointing_summary(recipe, recomputed, kept, limit_gb), soft_wrap=True)
    console.print(_hours_table(recipe, model, sizes, gpus, tflops))
    needed_gb = estimates[recipe.distributed].total / GB
    if limit_gb is not None and needed_gb > limit_gb:
        raise ValueError(
            f"--memory: got {gpu_memory}; about {needed_gb:.1f} GB are needed on each GPU. Try --set "
            "model.quantize=nf4, train.activation_checkpointing=true, a smaller "
            "train.per_device_batch_size, train.max_packed_tokens or prompt.max_screens, or "
            "distributed.fsdp=true on more GPUs"
        )


def _windows(recipe: Recipe, processor: Processor, data: Path | None) -> WindowIndex:
    """All windows that the recipe trains of the data's split "train"; without data, of a typical episode."""
    if data is None:
        index = index_windows([typical_episode()], prompt_format(recipe), processor)
        check_length(range(int(index.num_tokens.max())), processor, "a typical episode")
        return index
    prepared = PreparedData.open(data)
    num_workers = max(1, (os.cpu_count() or 1) // 2)
    fingerprint = str(prepared.meta["fingerprint"])
    return trainable_windows(recipe, processor, prepared.episodes("train"), fingerprint, num_workers).index


def _with_checkpointing(recipe: Recipe, on: bool) -> Recipe:
    return replace(recipe, train=replace(recipe.train, activation_checkpointing=on))


def _checkpointing_summary(
    recipe: Recipe, recomputed: MemoryEstimate, kept: MemoryEstimate, limit_gb: float | None
) -> str:
    """Activations with and without checkpointing, and whether the GPU has room for all of them."""
    activations = (
        f"activations: {recomputed.activations / GB:.1f} GB with activation checkpointing, "
        f"{kept.activations / GB:.1f} GB without (in total {kept.total / GB:.1f} GB)"
    )
    if limit_gb is None or not recipe.train.activation_checkpointing:
        return activations
    if kept.total / GB > limit_gb:
        return f"{activations}. The run does not fit without"
    return f"{activations}. The run fits without: --set train.activation_checkpointing=false is faster"


def parse_gigabytes(text: str) -> float:
    """`80`, `80GB` and `80 GiB` in units of 10^9 bytes; ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB)?", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise ValueError(f"--memory: got {text!r}; expected the memory of one GPU, such as 80GB")
    return float(match[1]) * (2**30 / GB if (match[2] or "").lower() == "gib" else 1)


def _model_table(
    recipe: Recipe, model: ModelShape, sizes: list[list[SentenceSize]], data: Path | None
) -> Table:
    source = (
        f"a typical episode of {TYPICAL_STEPS} steps" if data is None else f"{len(sizes)} episodes of {data}"
    )
    table = Table(title=f"{recipe.name}: {recipe.model.base_model}", show_header=False)
    table.add_row("parameters", f"{model.num_parameters:,}")
    table.add_row("trained", f"{model.num_trainable:,}")
    lengths = summarize_lengths(sizes)
    table.add_row(f"visual tokens per screen ({source})", f"{lengths.visual_tokens_per_screen:.0f}")
    table.add_row("tokens per step, with its action", f"{lengths.tokens_per_step:.0f}")
    table.add_row(
        "tokens per episode: median, 95 %, maximum",
        f"{lengths.median:,}, {lengths.p95:,}, {lengths.longest:,}",
    )
    table.add_row("longest sentence", f"{lengths.longest_sentence:,} tokens")
    compiled = "compiled" if recipe.train.compile_blocks else "not compiled: see train.compile_blocks"
    table.add_row("decoder blocks", compiled)
    return table


def _memory_table(recipe: Recipe, estimates: dict[DistributedArgs, MemoryEstimate], gpus: int) -> Table:
    train, precision = recipe.train, recipe.quantize or recipe.train.precision
    batch = (
        f"batch size {train.per_device_batch_size}"
        if train.max_packed_tokens is None
        else f"{train.max_packed_tokens:,} packed tokens"
    )
    table = Table(title=f"GB on each of {gpus} GPUs, {batch}, {precision}")
    for name in (
        "distributed",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "total, with CUDA",
        "machine's memory",
    ):
        table.add_column(name, justify="right")
    for how, part in estimates.items():
        setting = "fsdp" if how.fsdp else f"zero_stage {how.zero_stage}"
        mark = " (the recipe)" if how == recipe.distributed else ""
        values = (part.weights, part.gradients, part.optimizer, part.activations, part.total, part.host)
        table.add_row(f"{setting}{mark}", *(f"{value / GB:.1f}" for value in values))
    return table


def _hours_table(
    recipe: Recipe, model: ModelShape, sizes: list[list[SentenceSize]], gpus: int, tflops: float
) -> Table:
    """GPU hours for AITW's train splits: their number of steps times the FLOPs of a step here."""
    recomputes = recipe.train.activation_checkpointing
    flops = sum(hardware_flops(model, size, recomputes) for episode in sizes for size in episode)
    steps = sum(size.num_screens for episode in sizes for size in episode)
    peak = f"{100 * ASSUMED_MFU:.0f} % of {tflops:g} TFLOPS"
    table = Table(title=f"{recipe.train.epochs:g} epochs of AITW: GPU hours at {peak}")
    for name in ("train split", "steps", "PFLOP", "GPU hours", f"hours on {gpus}"):
        table.add_column(name, justify="right")
    for subset, recorded in {**AITW_STEPS, "all": sum(AITW_STEPS.values())}.items():
        trained = recorded * TRAINED_SHARE
        flop = flops / steps * trained * recipe.train.epochs
        hours = flop / (tflops * 1e12 * ASSUMED_MFU) / 3600
        table.add_row(
            subset, f"{trained:,.0f}", f"{flop / 1e15:,.0f}", f"{hours:,.0f}", f"{hours / gpus:,.0f}"
        )
    return table

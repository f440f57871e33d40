"""Training at the published size, with random weights: seconds of a step, MFU and memory.

    python bench/gpu/training.py OUT MODEL [--small]

Each row is a run with other settings, from the recipe as it is: without activation checkpointing, with twice
as many packed tokens, with padded batches. MFU counts the operations that a step needs, without
recomputation, as a share of a measured matrix product and of the GPU's data sheet. `estimated_gb` is what
`uivlm estimate` says of the same sentences.
"""

import gc
import statistics

import torch
from part import Part, Value, machine, parse_arguments
from steps import make_episodes, run_steps

from uivlm.models.build import build
from uivlm.models.cost import estimate_memory, forward_sizes, sentence_sizes
from uivlm.recipe import Recipe
from uivlm.training.metrics import datasheet_flops

NUM_WARM_UP, NUM_TIMED = 2, 5  # steps; the first ones select kernels
SMALL_NUM_TIMED = 1
PADDED_BATCH_SIZE = 4  # sentences


def ladder(recipe: Recipe) -> dict[str, list[str]]:
    """The settings of each row by its name."""
    packed = recipe.train.max_packed_tokens
    assert packed is not None
    return {
        "the recipe": [],
        "no activation checkpointing": ["train.activation_checkpointing=false"],
        "twice the tokens": [f"train.max_packed_tokens={2 * packed}"],
        "padded": ["train.max_packed_tokens=null", f"train.per_device_batch_size={PADDED_BATCH_SIZE}"],
    }


def main() -> None:
    part = parse_arguments("training", __doc__)
    rows: list[dict[str, Value]] = []
    for name, settings in ladder(part.recipe()).items():
        recipe = part.recipe("train.epochs=8", *settings)
        try:
            row = measure_rung(part, recipe)
        except torch.cuda.OutOfMemoryError:
            row = {"error": "out of memory"}
        rows.append({"settings": name, **row})
        part.write({}, rows)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure_rung(part: Part, recipe: Recipe) -> dict[str, Value]:
    """One row of the table."""
    torch.manual_seed(recipe.train.seed)
    loaded = build(recipe, str(part.device))
    num_timed = SMALL_NUM_TIMED if part.small else NUM_TIMED
    measured = run_steps(recipe, loaded, make_episodes(part), NUM_WARM_UP + num_timed)
    timed = measured.steps[NUM_WARM_UP:]
    seconds = [step["seconds"] for step in timed]
    flops_per_second = 1e12 * statistics.median(step["tflops"] for step in timed)
    data_sheet = datasheet_flops(machine()["device"], torch.bfloat16)
    rows = forward_sizes(recipe, sentence_sizes(measured.index, loaded.model))
    estimated = estimate_memory(recipe, measured.shape, rows, 1, recipe.distributed)
    return {
        "packed_tokens": recipe.train.max_packed_tokens,
        "seconds_per_step": statistics.median(seconds),
        "slowest_step": max(seconds),
        "tokens_per_second": statistics.median(step["tokens_per_second"] for step in timed),
        "tflops": flops_per_second / 1e12,
        "mfu": flops_per_second / measured.peak_flops,
        "mfu_data_sheet": None if data_sheet is None else flops_per_second / data_sheet,
        "data_loading_fraction": statistics.median(step["data_loading_fraction"] for step in timed),
        "peak_gb": measured.peak_bytes / 1e9,
        "estimated_gb": estimated.total / 1e9,
    }


if __name__ == "__main__":
    main()

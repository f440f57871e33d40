"""A recipe's model at full size with random weights on a GPU: one training step, next to `uivlm estimate`.

    python bench/gpu/full_size.py RECIPE [PART.FIELD=VALUE ...]

Only configuration and tokenizer are read. Memory is the peak of torch's allocator plus the estimate for CUDA
itself. Inference: bench/inference.py.
"""

import sys
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from uivlm.episodes.encode import encode
from uivlm.episodes.window_index import index_windows
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.cost import (
    CUDA_RUNTIME_BYTES,
    estimate_memory,
    hardware_flops,
    prepare_and_measure,
    sentence_sizes,
    typical_episode,
)
from uivlm.models.multimodal import token_losses
from uivlm.recipe import DistributedArgs, Recipe, load, override

NUM_STEPS = 3  # the last one is timed: the first ones select kernels


def main(name: str, settings: list[str]) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("bench/gpu/full_size.py needs a CUDA GPU")
    recipe = override(load(name), settings)
    _, predicted = prepare_and_measure(build(recipe, "meta"), 0)
    torch.cuda.reset_peak_memory_stats()
    built = build(recipe, "cuda")
    index = index_windows([typical_episode()], prompt_format(recipe), built.processor)
    (rows,) = sentence_sizes(index, built.model)
    longest = max(rows, key=lambda row: row.num_tokens)
    model = adapters.prepare_for_training(built, 0).cuda().train()
    if recipe.train.activation_checkpointing:
        built.model.activation_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    step_s = _train(recipe, built, model)
    peak_bytes = torch.cuda.max_memory_allocated()
    estimated_bytes = estimate_memory(recipe, predicted, [longest], 1, DistributedArgs()).total
    flops = hardware_flops(predicted, longest, recipe.train.activation_checkpointing)
    table = Table(title=f"{recipe.name}, {torch.cuda.get_device_name()}", show_header=False)
    table.add_row("longest sentence, tokens", f"{longest.num_tokens:,}")
    table.add_row("peak GB, with CUDA's own", f"{(peak_bytes + CUDA_RUNTIME_BYTES) / 1e9:.1f}")
    error = estimated_bytes / (peak_bytes + CUDA_RUNTIME_BYTES) - 1
    table.add_row("estimated GB", f"{estimated_bytes / 1e9:.1f}, off by {100 * error:+.0f} %")
    table.add_row("seconds per step, TFLOP/s", f"{step_s:.2f}, {flops / step_s / 1e12:.0f}")
    Console().print(table)


def _train(recipe: Recipe, loaded, model) -> float:  # type: ignore[no-untyped-def]
    """Seconds of the last step on the longest sentence of a typical episode."""
    sentence_format = prompt_format(recipe)
    window = max(sentence_format.windows(typical_episode()), key=lambda window: len(window.steps))
    example = encode(sentence_format.sentence(window), loaded.processor)
    ids, labels = (torch.from_numpy(part)[None].cuda() for part in (example.input_ids, example.labels))
    pixels = torch.from_numpy(np.stack(example.pixels)).cuda()
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, recipe.optim.lr, fused=True)
    seconds = 0.0
    for _ in range(NUM_STEPS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        token_losses(model(ids, pixels=pixels, labels=labels), labels).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    return seconds


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("name a recipe: python bench/gpu/full_size.py qwenvl")
    main(sys.argv[1], sys.argv[2:])

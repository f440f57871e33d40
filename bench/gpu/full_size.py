"""A recipe's model at full size with random weights on a GPU: one training step, beside what `uivlm plan` says it needs.
(An action: bench/inference.py.)

    python bench/gpu/full_size.py RECIPE [PART.FIELD=VALUE ...]

Only configuration and tokenizer are read. Memory is what torch's allocator held at most, and CUDA's own estimate beside it.
"""

import sys
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from uivlm.models import tune
from uivlm.models.cost import RUNTIME, begun, memory, operations, sizes, usual_episode
from uivlm.models.model import build, grammar, nll
from uivlm.recipe import Recipe, load, override
from uivlm.sentences.encode import encode

STEPS = 3  # the last one is timed: the first ones choose kernels


def main(name: str, settings: list[str]) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("bench/gpu/full_size.py needs a GPU: there is none here")
    recipe = override(load(name), settings)
    _, predicted = begun(build(recipe, "meta"), 0)
    torch.cuda.reset_peak_memory_stats()
    built = build(recipe, "cuda")
    (rows,) = sizes(recipe, built, [usual_episode()])
    longest = max(rows, key=lambda row: row.tokens)
    model = tune.begin(built, 0).cuda().train()
    if built.recompute:
        built.module.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    step_s = _train(recipe, built, model)
    held = torch.cuda.max_memory_allocated()
    told = memory(recipe, predicted, [longest], 1, 0).total
    flops = operations(predicted, longest)
    table = Table(title=f"{recipe.name}, {torch.cuda.get_device_name()}", show_header=False)
    table.add_row("longest sentence, tokens", f"{longest.tokens:,}")
    table.add_row("GB: torch held at most, with CUDA's own", f"{(held + RUNTIME) / 1e9:.1f}")
    table.add_row("GB: plan", f"{told / 1e9:.1f}, off by {100 * (told / (held + RUNTIME) - 1):+.0f} %")
    table.add_row("seconds a step, TFLOP/s", f"{step_s:.2f}, {flops / step_s / 1e12:.0f}")
    Console().print(table)


def _train(recipe: Recipe, built, model) -> float:  # type: ignore[no-untyped-def]
    """Seconds of the last of some steps on the longest sentence of a usual episode."""
    spoken, of = grammar(recipe), usual_episode()
    window = max(spoken.windows(of), key=lambda one: len(one.steps))
    example = encode(spoken.sentence(window), built.reader)
    ids, labels = (torch.from_numpy(part)[None].cuda() for part in (example.input_ids, example.labels))
    pixels = torch.from_numpy(np.stack(example.pixels)).cuda()
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, recipe.train.lr, fused=True)
    took = 0.0
    for _ in range(STEPS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        nll(model(ids, pixels=pixels, labels=labels), labels).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        took = time.perf_counter() - began
    return took


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("name a recipe: python bench/gpu/full_size.py qwenvl")
    main(sys.argv[1], sys.argv[2:])

"""Latency of one action against the length of the history: with and without cache, constrained and not.

    python bench/inference.py                                 the tiny base, and a flat Qwen-VL
    python bench/inference.py RECIPE [PART.FIELD=VALUE ...]   a recipe's model at full size, on a GPU if any

Greedy decoding on simulated screens. The flat Qwen-VL has the published numbers of pixels, patches and tokens
of a screen, but one layer in each tower, at half the width, and the first part of the vocabulary. (The
narrower a layer, the larger the share of attention to the past.) Its weights and a recipe's are random: only
configuration and tokenizer are read. In their tables one window holds all steps, so that only the past grows.
The line after each table is of 24 steps with the recipe's own window: the median and the maximum. The modes
take turns in one run. Compare the ratios: to each other, and to a floor (bench/shared/roofline.py).
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.actions import random_checkpoint, time_actions, without_capture
from shared.episodes import episodes_of_length
from shared.roofline import count_weight_bytes, latency_floors, measure_device

from uivlm.episodes.episode import Episode
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models.build import prompt_format
from uivlm.models.qwen_vl.config import DEFAULT_VISUAL, QwenVLConfig, to_original
from uivlm.recipe import Recipe, override
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import save_base_checkpoint

EPISODES = 12
LONGEST = 8  # steps of a recorded episode; longer pasts are two of them
HISTORY_LENGTHS = (0, 1, 4, 7, 15)  # screens before
LONG_HISTORY = [f"prompt.max_screens={2 * LONGEST}", f"prompt.max_past_actions={2 * LONGEST - 1}"]
TINY_LANGUAGE_MODEL = {
    "num_hidden_layers": 1,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "intermediate_size": 11008,
}
TINY_VISION_ENCODER = {"layers": 1, "width": 832, "heads": 8, "output_dim": 2048}
NUM_BPE_RANKS = 4096  # of the vocabulary
OWN_WINDOW_PARTS = 3  # recorded episodes of an episode of 24 steps
SHORT_MAX_NEW_TOKENS, NUM_EPISODES_SHORT = 8, 4  # of a model with random weights
CACHED, UNCACHED = "cached, constrained", "uncached, constrained"
MODES = {
    CACHED: {"use_cache": True, "constrained": True},
    "cached, unconstrained": {"use_cache": True, "constrained": False},
    UNCACHED: {"use_cache": False, "constrained": True},
    "uncached, unconstrained": {"use_cache": False, "constrained": False},
}


StepLatencies = dict[int, list[float]]  # ms by the number of screens before


def main(recipe: str | None, settings: Sequence[str]) -> None:
    console, episodes = Console(width=120), _joined_episodes(EPISODES, 2)
    with tempfile.TemporaryDirectory() as folder:
        if recipe is not None:
            full_size = override(load_recipe(recipe), [*LONG_HISTORY, *settings])
            loaded = random_checkpoint(full_size, "cuda" if torch.cuda.is_available() else "cpu")
            own = override(load_recipe(recipe), settings)
            _measure(recipe, loaded, own, episodes[:NUM_EPISODES_SHORT], SHORT_MAX_NEW_TOKENS, console)
        else:
            tiny = load_recipe("tiny")
            save_base_checkpoint(tiny, Path(folder) / "base")
            _measure("the tiny base", load_checkpoint(Path(folder) / "base"), tiny, episodes, None, console)
            _measure(
                "a flat Qwen-VL",
                _tiny_qwen_vl(Path(folder) / "qwen"),
                load_recipe("qwenvl"),
                episodes[:NUM_EPISODES_SHORT],
                SHORT_MAX_NEW_TOKENS,
                console,
            )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    held = f", of a GPU {torch.cuda.max_memory_allocated() / 1e6:.0f}" if torch.cuda.is_available() else ""
    console.print(f"peak memory: {memory:.0f} MB{held}")


def _joined_episodes(num_episodes: int, num_parts: int) -> list[Episode]:
    """Each is several recorded ones after each other: a long past."""
    parts = episodes_of_length("test", LONGEST, num_episodes * num_parts)
    groups = [parts[i : i + num_parts] for i in range(0, len(parts), num_parts)]
    return [replace(group[0], steps=sum((part.steps for part in group), ())) for group in groups]


def _tiny_qwen_vl(folder: Path) -> LoadedCheckpoint:
    """Qwen-VL's own folder without weights, a layer of each kind in its configuration."""
    spec = find_spec("qwen_agent")
    if spec is None or spec.origin is None:
        raise SystemExit("bench/inference.py needs Qwen-VL's vocabulary, which `make setup` installs")
    ranks = (Path(spec.origin).parent / "utils" / "qwen.tiktoken").read_bytes().splitlines(keepends=True)
    less = len(ranks) - NUM_BPE_RANKS  # the ids of control tokens follow
    seeing = (
        DEFAULT_VISUAL | TINY_VISION_ENCODER | {"image_start_id": DEFAULT_VISUAL["image_start_id"] - less}
    )
    vocabulary = QwenVLConfig().vocab_size - less
    config = QwenVLConfig(vocabulary, **TINY_LANGUAGE_MODEL, seq_length=8192, visual=seeing)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_original(config)), "utf-8")
    (folder / "qwen.tiktoken").write_bytes(b"".join(ranks[:NUM_BPE_RANKS]))
    settings = [f"model.base_model={folder}", "train.precision=float32", *LONG_HISTORY]
    return random_checkpoint(override(load_recipe("qwenvl"), settings), "cpu")


def _measure(
    title: str,
    checkpoint: LoadedCheckpoint,
    own: Recipe,
    episodes: list[Episode],
    max_new_tokens: int | None,
    console: Console,
) -> None:
    options = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
    began = time.perf_counter()
    TorchEngine(checkpoint, constrained=True, **options).predict(episodes[0].history(0))
    first = 1000 * (time.perf_counter() - began)
    predictors = {name: TorchEngine(checkpoint, **way, **options) for name, way in MODES.items()}
    timed: dict[str, StepLatencies] = {name: {} for name in MODES}
    for episode, name in product(episodes, MODES):
        # without cache, only at the steps of the table
        steps = range(2 * LONGEST) if MODES[name]["use_cache"] else HISTORY_LENGTHS
        for t, ms in time_actions(predictors[name], episode, steps).items():
            timed[name].setdefault(t, []).append(ms)
    device, weights = measure_device(checkpoint.model), count_weight_bytes(checkpoint.model)
    fresh = TorchEngine(without_capture(checkpoint), **MODES[CACHED], **options)
    least = latency_floors(fresh, episodes[0], range(2 * LONGEST), device, weights)
    console.print(_table(f"{title}, {len(episodes)} episodes", timed, least))
    console.print(
        f"its first action: {first:.0f} ms; MB of weights: {weights.language / 1e6:.0f} of the language "
        "model, "
        f"{weights.vision / 1e6:.0f} of the vision encoder; this device reads "
        f"{device.bytes_per_second / 1e9:.1f} GB/s and does "
        f"{device.flops_per_second / 1e12:.2f} TFLOP/s"
    )
    console.print(_own_window(checkpoint, own, options))


def _table(title: str, latencies: dict[str, StepLatencies], floors_s: dict[int, float]) -> Table:
    table = Table(title=f"{title}: ms an action, median (95 %), {torch.get_num_threads()} threads")
    for head in ("screens before", *latencies, "uncached / cached", "cached / floor"):
        table.add_column(head, justify="right")
    for t in HISTORY_LENGTHS:
        cells = [f"{statistics.median(by[t]):.1f} ({_p95(by[t]):.1f})" for by in latencies.values()]
        cached_ms, uncached_ms = (statistics.median(latencies[name][t]) for name in (CACHED, UNCACHED))
        table.add_row(
            str(t), *cells, f"{uncached_ms / cached_ms:.2f}", f"{cached_ms / 1000 / floors_s[t]:.1f}"
        )
    return table


def _p95(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=20, method="inclusive")[-1]


def _own_window(checkpoint: LoadedCheckpoint, own: Recipe, options: dict[str, int]) -> str:
    """The actions of long episodes with the recipe's own window, which advances, in one sentence."""
    engine = TorchEngine(replace(checkpoint, prompt_format=prompt_format(own)), **MODES[CACHED], **options)
    episodes = _joined_episodes(NUM_EPISODES_SHORT, OWN_WINDOW_PARTS)
    num_steps = OWN_WINDOW_PARTS * LONGEST
    runs = [time_actions(engine, episode, range(num_steps)) for episode in episodes]
    medians = {t: statistics.median(run[t] for run in runs) for t in range(num_steps)}
    slowest = max(medians, key=medians.__getitem__)
    return (
        f"{num_steps} steps with the recipe's own window of {own.prompt.max_screens} screens, {CACHED}: "
        f"median {statistics.median(medians.values()):.1f} ms, maximum {medians[slowest]:.1f} ms "
        f"at step {slowest + 1}"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else None, sys.argv[2:])
    except ValueError as error:  # no such recipe or setting, too short a context
        raise SystemExit(f"bench/inference.py: {error}") from None

"""Throughput of offline evaluation: without the prefix cache, with it, and with batches.

    python bench/evaluation.py

The tiny base on 8-step episodes of the simulated phone. The modes take turns, and must give the same texts.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import episodes_of_length

from uivlm.agents.vlm import VlmAgent
from uivlm.episodes.episode import Episode
from uivlm.evaluation.offline import EvalMode, Group, score_group
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import save_base_checkpoint

STEPS, EPISODES, BATCH_SIZE, RUNS = 8, 16, 16, 5


def main() -> None:
    episodes = episodes_of_length("test", STEPS, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        save_base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
        loaded = load_checkpoint(Path(folder) / "base")
    modes = {
        "no cache": (False, 1),
        "prefix cache": (True, 1),
        f"prefix cache, batches of {BATCH_SIZE}": (True, BATCH_SIZE),
    }
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    texts = {}
    for run in range(RUNS + 1):  # the first run is a warm-up
        for name, (use_cache, batch_size) in modes.items():
            run_seconds, texts[name] = _run(loaded, use_cache, batch_size, episodes)
            if run:
                seconds[name].append(run_seconds)
    first, *others = texts.values()
    assert all(other == first for other in others), "the modes give different texts"
    baseline = statistics.median(seconds["no cache"])
    table = Table(
        title=f"{EPISODES} episodes of {STEPS} steps, {torch.get_num_threads()} threads, median of {RUNS}"
    )
    for heading in ("", "episodes/s", "ms per step", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, runs in seconds.items():
        median = statistics.median(runs)
        step_ms = 1000 * median / EPISODES / STEPS
        table.add_row(name, f"{EPISODES / median:.2f}", f"{step_ms:.1f}", f"{baseline / median:.2f}")
    Console().print(table)


def _run(
    checkpoint: LoadedCheckpoint, use_cache: bool, batch_size: int, episodes: list[Episode]
) -> tuple[float, list[str]]:
    """Seconds and texts. Screens are new objects, so that nothing of the previous run is cached."""
    fresh = [
        replace(episode, steps=tuple(replace(step, screen=replace(step.screen)) for step in episode.steps))
        for episode in episodes
    ]
    agent = VlmAgent(TorchEngine(checkpoint, use_cache=use_cache, max_cached_prefixes=batch_size))
    groups = [Group(i, fresh[i : i + batch_size]) for i in range(0, len(fresh), batch_size)]
    start = time.perf_counter()
    verdicts = [
        verdict for group in groups for verdict in score_group(agent, EvalMode(batch_size=batch_size), group)
    ]
    return time.perf_counter() - start, [verdict.text for verdict in verdicts]


if __name__ == "__main__":
    main()

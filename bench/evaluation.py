"""How fast recorded episodes are judged: each prompt read anew, the prefix of an episode kept, and episodes side by side.

    python bench/evaluation.py

The tiny base on 8-step episodes of the simulated phone, the same episodes in turns; all ways must give the same words.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import of_length

from uivlm.agents.vlm import VlmAgent
from uivlm.episode import Episode
from uivlm.evaluation.benchmark import Group, Way, judged
from uivlm.inference.load import Loaded, load
from uivlm.inference.predict import Predictor
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import base_checkpoint

STEPS, EPISODES, TOGETHER, RUNS = 8, 16, 16, 5


def main() -> None:
    episodes = of_length("test", STEPS, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
        loaded = load(Path(folder) / "base")
    ways = {
        "each prompt anew": (False, 1),
        "prefix kept": (True, 1),
        f"and {TOGETHER} side by side": (True, TOGETHER),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    words = {}
    for run in range(RUNS + 1):  # the first turn does not count
        for name, (reuse, together) in ways.items():
            seconds, words[name] = _run(loaded, reuse, together, episodes)
            if run:
                took[name].append(seconds)
    first, *others = words.values()
    assert all(other == first for other in others), "the ways differ in what is said"
    base = statistics.median(took["each prompt anew"])
    table = Table(
        title=f"{EPISODES} episodes of {STEPS} steps, {torch.get_num_threads()} threads, median of {RUNS}"
    )
    for head in ("", "episodes/s", "ms a step", "ratio"):
        table.add_column(head, justify="right" if head else "left")
    for name, each in took.items():
        seconds = statistics.median(each)
        a_step = 1000 * seconds / EPISODES / STEPS
        table.add_row(name, f"{EPISODES / seconds:.2f}", f"{a_step:.1f}", f"{base / seconds:.2f}")
    Console().print(table)


def _run(loaded: Loaded, reuse: bool, together: int, episodes: list[Episode]) -> tuple[float, list[str]]:
    """Seconds, and all words. Screens are new objects: nothing is known of them from the run before."""
    fresh = [
        replace(one, steps=tuple(replace(step, screen=replace(step.screen)) for step in one.steps))
        for one in episodes
    ]
    agent = VlmAgent(Predictor(loaded, reuse=reuse, kept=together))
    groups = [Group(i, fresh[i : i + together]) for i in range(0, len(fresh), together)]
    began = time.perf_counter()
    verdicts = [verdict for group in groups for verdict in judged(agent, Way(together=together), group)]
    return time.perf_counter() - began, [verdict.said for verdict in verdicts]


if __name__ == "__main__":
    main()

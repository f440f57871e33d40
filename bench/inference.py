"""Time of one action against the length of the history: with the prefix kept and without, bound to the grammar and free.

The tiny base, greedy answers, simulated screens. All figures come from the same run, in turns; the ratios are what counts.
"""

import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import of_length

from uivlm.episode import Episode
from uivlm.inference.load import load
from uivlm.inference.predict import Predictor
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import base_checkpoint

EPISODES = 12
LONGEST = 8  # steps of a recorded episode; longer pasts are two of them
PASTS = (0, 1, 4, 7, 15)  # screens before
WAYS = {
    "prefix kept, bound": {"reuse": True, "bound": True},
    "prefix kept, free": {"reuse": True, "bound": False},
    "computed anew, bound": {"reuse": False, "bound": True},
    "computed anew, free": {"reuse": False, "bound": False},
}


def main() -> None:
    episodes = of_length("test", LONGEST, 2 * EPISODES)
    pairs = [
        replace(one, steps=one.steps + two.steps)
        for one, two in zip(episodes[::2], episodes[1::2], strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
        loaded = load(Path(folder) / "base")
    began = time.perf_counter()
    Predictor(loaded, bound=True).predict(pairs[0].history(0))
    first = 1000 * (time.perf_counter() - began)
    timed = {name: _timed(Predictor(loaded, **way), pairs) for name, way in WAYS.items()}
    title = f"ms an action, median (95 %) of {EPISODES} episodes, {torch.get_num_threads()} threads"
    table = Table(title=title)
    for head in ("screens before", *WAYS, "anew / kept, bound"):
        table.add_column(head, justify="right")
    for t in PASTS:
        cells = [f"{statistics.median(by[t]):.1f} ({_high(by[t]):.1f})" for by in timed.values()]
        kept, anew = (
            statistics.median(timed[f"{name}, bound"][t]) for name in ("prefix kept", "computed anew")
        )
        table.add_row(str(t), *cells, f"{anew / kept:.2f}")
    console = Console(width=120)
    console.print(table)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    console.print(f"the first action of a new process: {first:.0f} ms; most memory: {memory:.0f} MB")


def _high(took: list[float]) -> float:
    return statistics.quantiles(took, n=20, method="inclusive")[-1]


def _timed(predictor: Predictor, episodes: list[Episode]) -> dict[int, list[float]]:
    """ms of the action at each step, on the recorded past."""
    took: dict[int, list[float]] = {t: [] for t in range(2 * LONGEST)}
    for episode in episodes:
        for t in took:
            history = episode.history(t)
            began = time.perf_counter()
            predictor.predict(history)
            took[t].append(1000 * (time.perf_counter() - began))
    return took


if __name__ == "__main__":
    main()

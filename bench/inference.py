"""Time of one action against the length of the history, with the prefix kept and without.

The tiny base, greedy answers, simulated screens. Both figures of a row come from the same run; the ratio is what counts.
"""

import statistics
import tempfile
import time
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
LONGEST = 8  # steps


def main() -> None:
    episodes = of_length("test", LONGEST, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
        loaded = load(Path(folder) / "base")
    timed = {reuse: _timed(Predictor(loaded, reuse=reuse), episodes) for reuse in (True, False)}
    table = Table(title=f"ms an action, median of {EPISODES} episodes, {torch.get_num_threads()} threads")
    for head in ("screens before", "prefix kept", "computed anew", "ratio"):
        table.add_column(head, justify="right")
    for t in range(LONGEST):
        kept, anew = timed[True][t], timed[False][t]
        table.add_row(str(t), f"{kept:.1f}", f"{anew:.1f}", f"{anew / kept:.2f}")
    Console().print(table)


def _timed(predictor: Predictor, episodes: list[Episode]) -> list[float]:
    """Median ms of the action at each step, on the recorded past."""
    took: list[list[float]] = [[] for _ in range(LONGEST)]
    for episode in episodes:
        for t in range(LONGEST):
            history = episode.history(t)
            began = time.perf_counter()
            predictor.predict(history)
            took[t].append(1000 * (time.perf_counter() - began))
    return [statistics.median(each) for each in took]


if __name__ == "__main__":
    main()

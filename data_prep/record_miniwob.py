"""An expert's demonstrations on MiniWoB++ as traces: counts and a seed in, a source folder out.

    python -m data_prep OUT DATA --format trace --split OUT/split.json

OUT/train and OUT/test hold one trace per episode, and OUT/split.json their ids. No page seed is in both.
"""

import json
import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import track

from data_prep.formats.trace import find
from uivlm.atomic import new_dir
from uivlm.evaluation.miniwob.expert import demonstrate
from uivlm.evaluation.miniwob.tasks import (
    TASK_NAMES,
    MiniWobBrowser,
    TaskSplit,
    iter_tasks,
    open_miniwob_browser,
)

MAX_EPISODES = 100_000
SPARE_TASKS = 10  # unsolved tasks beyond one per episode before it is an error


def record_miniwob(out: Path, num_train: int, num_test: int, seed: int, names: tuple[str, ...]) -> int:
    """Write the folder `out`. Returns the number of tasks left out because the expert did not solve them."""
    for name, value, minimum in (("episodes", num_train, 1), ("test", num_test, 0), ("seed", seed, 0)):
        if not minimum <= value <= MAX_EPISODES:
            raise ValueError(f"{name}: got {value}; expected {minimum} to {MAX_EPISODES}")
    if unknown := [name for name in names if name not in TASK_NAMES]:
        raise ValueError(f"task: got {unknown[0]!r}; expected some of {', '.join(TASK_NAMES)}")
    counts: tuple[tuple[TaskSplit, int], ...] = (("train", num_train), ("test", num_test))
    with new_dir(out) as folder, open_miniwob_browser() as browser:
        num_unsolved = sum(
            _record_split(browser, folder / split, split, count, seed, names) for split, count in counts
        )
        ids = {split: _episode_ids(folder / split) for split, count in counts if count}
        (folder / "split.json").write_text(json.dumps(ids, indent=1) + "\n", "utf-8")
    return num_unsolved


def _record_split(
    browser: MiniWobBrowser,
    folder: Path,
    split: TaskSplit,
    num_episodes: int,
    seed: int,
    names: tuple[str, ...],
) -> int:
    """Record `num_episodes` solved tasks. Returns the number of unsolved ones."""
    num_unsolved, tasks = 0, iter_tasks(split, seed, names)
    for i in track(range(num_episodes), f"Demonstrating, {split}", console=Console(stderr=True)):
        while not demonstrate(browser, next(tasks), folder / f"{i:05d}"):
            shutil.rmtree(folder / f"{i:05d}")
            num_unsolved += 1
            if num_unsolved > i + SPARE_TASKS:
                raise ValueError(
                    f"the expert did not solve {num_unsolved} of {i + num_unsolved} tasks: check that the "
                    "installed MiniWoB++ is version 1.1"
                )
    return num_unsolved


def _episode_ids(folder: Path) -> list[str]:
    return [trace["id"] for part in find(str(folder)) for trace in part.items]

"""The tiny model on MiniWoB++, three seeds: what it can do before and after an expert has shown it a few tasks.

For each seed: other pages, another LoRA start. Success on pages of unseen seeds, by the page's own reward, and only where the
agent itself said that it was done. About twenty minutes on two CPU cores; what is there already is not made again.

    python bench/slow/web_tasks.py [OUT] [EPISODES] [TRIALS]
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm import wiring
from uivlm.live import run_live, wilson
from uivlm.miniwob.trials import trials

SEEDS = (0, 1, 2)
NAMES = (
    "click-test",
    "click-test-2",
    "click-dialog",
    "click-tab",
    "focus-text",
    "focus-text-2",
    "enter-text",
    "scroll-text-2",
)
EPISODES, TRIALS = 15 * len(NAMES), 10 * len(NAMES)  # of each seed
EPOCHS, LIMIT = 10, 12
AGENTS = ("base", "fine-tuned")
Wins = dict[str, list[bool]]  # task -> success of each trial


def main(out: Path, episodes: int, number: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # small matrices gain little from a second core
    with ProcessPoolExecutor(len(SEEDS), get_context("spawn")) as pool:
        measured = list(
            pool.map(
                _measured, *zip(*((out / str(seed), seed, episodes, number) for seed in SEEDS), strict=True)
            )
        )
    console, table = Console(), Table(title=f"MiniWoB++, {episodes} episodes shown, seeds {SEEDS}: success")
    for head in ("task", *AGENTS):
        table.add_column(head)
    for name in (*NAMES, "all"):
        table.add_row(name, *(_rate([wins[agent] for wins in measured], name) for agent in AGENTS))
    console.print(table)


def _rate(seeds: list[Wins], name: str) -> str:
    """Of all seeds together, its 95 % interval, and what each seed had."""
    each = [wins[name] if name in wins else [one for task in wins.values() for one in task] for wins in seeds]
    won, number = sum(map(sum, each)), sum(map(len, each))
    low, high = wilson(won, number)
    apart = ", ".join(f"{100 * sum(one) / len(one):.0f}" for one in each)
    return f"{100 * won / number:.1f} % ({100 * low:.1f} to {100 * high:.1f}; seeds {apart})"


def _measured(folder: Path, seed: int, episodes: int, number: int) -> dict[str, Wins]:
    """Agent -> its successes on this seed's unseen pages."""
    shown, data = folder / "shown", folder / "data"
    tasks = [word for name in NAMES for word in ("--task", name)]
    if not shown.exists():
        numbers = ("--episodes", str(episodes), "--test", str(len(NAMES)), "--seed", str(seed))
        _run("-m", "data_prep.miniwob", str(shown), *numbers, *tasks)
    if not data.exists():
        split = ("--split", str(shown / "split.json"), "--codec", "png", "--workers", "1")
        _run("-m", "data_prep", str(shown), str(data), "--format", "trace", *split)
    base, tuned = folder / "base", folder / "fine-tuned"
    if not base.exists():
        _run("-m", "uivlm", "base", "tiny", "--out", str(base))
    if not tuned.exists():
        settings = {"data.folder": json.dumps(str(data)), "train.seed": seed, "train.epochs": EPOCHS}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        again = ("--resume",) if tuned.with_name(f"{tuned.name}.state").exists() else ()
        _run("-m", "uivlm", "train", "tiny", *words, "--out", str(tuned), *again)
    return {name: _wins(folder / name, seed, number) for name in AGENTS}


def _wins(checkpoint: Path, seed: int, number: int) -> Wins:
    """From its file where it was measured before."""
    file = checkpoint.with_name(f"{checkpoint.name}-{number}.json")
    if not file.is_file():
        agent = wiring.load_agent(checkpoint)
        results = run_live(agent, trials(seed, number, NAMES), LIMIT, number)
        wins: Wins = defaultdict(list)
        for i, result in enumerate(results):
            wins[NAMES[i % len(NAMES)]].append(result.success)
        file.write_text(json.dumps(wins), "utf-8")
    return dict(json.loads(file.read_text("utf-8")))


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0]) if given else Path("build/miniwob"),
        int(given[1]) if len(given) > 1 else EPISODES,
        int(given[2]) if len(given) > 2 else TRIALS,
    )

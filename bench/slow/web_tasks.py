"""The tiny model on MiniWoB++ before and after training on an expert's demonstrations, three seeds.

Each seed has its own pages and LoRA initialization. Success on pages of unseen seeds needs the page's own
reward and the agent's own finish. About twenty minutes on two CPU cores. Existing results are reused.

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

from uivlm.cli import agents
from uivlm.evaluation.intervals import wilson_interval
from uivlm.evaluation.miniwob.tasks import miniwob_trials
from uivlm.evaluation.online import run_trials

SEEDS = (0, 1, 2)
TASK_NAMES = (
    "click-test",
    "click-test-2",
    "click-dialog",
    "click-tab",
    "focus-text",
    "focus-text-2",
    "enter-text",
    "scroll-text-2",
)
EPISODES, TRIALS = 15 * len(TASK_NAMES), 10 * len(TASK_NAMES)  # per seed
EPOCHS, MAX_STEPS = 10, 12
AGENTS = ("base", "fine-tuned")
Successes = dict[str, list[bool]]  # task -> success of each trial


def main(out: Path, num_episodes: int, num_trials: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # small matrices gain little from a second core
    with ProcessPoolExecutor(len(SEEDS), get_context("spawn")) as pool:
        jobs = [(out / str(seed), seed, num_episodes, num_trials) for seed in SEEDS]
        measured = list(pool.map(_measure, *zip(*jobs, strict=True)))
    table = Table(title=f"MiniWoB++, {num_episodes} demonstrations, seeds {SEEDS}: success")
    for heading in ("task", *AGENTS):
        table.add_column(heading)
    for name in (*TASK_NAMES, "all"):
        table.add_row(
            name, *(_success_rate([by_agent[agent] for by_agent in measured], name) for agent in AGENTS)
        )
    Console().print(table)


def _success_rate(successes_by_seed: list[Successes], name: str) -> str:
    """The rate over all seeds, its 95 % interval, and the rate of each seed; `name` may be "all"."""
    trials = [
        successes[name] if name in successes else [success for task in successes.values() for success in task]
        for successes in successes_by_seed
    ]
    num_successes, num_trials = sum(map(sum, trials)), sum(map(len, trials))
    low, high = wilson_interval(num_successes, num_trials)
    by_seed = ", ".join(f"{100 * sum(seed_trials) / len(seed_trials):.0f}" for seed_trials in trials)
    rate = num_successes / num_trials
    return f"{100 * rate:.1f} % ({100 * low:.1f} to {100 * high:.1f}; seeds {by_seed})"


def _measure(folder: Path, seed: int, num_episodes: int, num_trials: int) -> dict[str, Successes]:
    """Agent -> its successes on this seed's unseen pages."""
    traces, data = folder / "traces", folder / "data"
    tasks = [argument for name in TASK_NAMES for argument in ("--task", name)]
    if not traces.exists():
        counts = ("--episodes", str(num_episodes), "--test", str(len(TASK_NAMES)), "--seed", str(seed))
        _run("-m", "uivlm", "record-miniwob", str(traces), *counts, *tasks)
    if not data.exists():
        options = ("--split", str(traces / "split.json"), "--image-format", "png", "--workers", "1")
        _run("-m", "data_prep", str(traces), str(data), "--format", "trace", *options)
    base, tuned = folder / "base", folder / "fine-tuned"
    if not base.exists():
        _run("-m", "uivlm", "init", "tiny", "--out", str(base))
    if not tuned.exists():
        settings = {"data.path": json.dumps(str(data)), "train.seed": seed, "train.epochs": EPOCHS}
        overrides = [arg for name, value in settings.items() for arg in ("--set", f"{name}={value}")]
        resume = ("--resume",) if tuned.with_name(f"{tuned.name}.state").exists() else ()
        _run("-m", "uivlm", "train", "tiny", *overrides, "--out", str(tuned), *resume)
    return {name: _measure_successes(folder / name, seed, num_trials) for name in AGENTS}


def _measure_successes(checkpoint: Path, seed: int, num_trials: int) -> Successes:
    """From its file if it was measured before."""
    file = checkpoint.with_name(f"{checkpoint.name}-{num_trials}.json")
    if not file.is_file():
        agent = agents.load_agent(checkpoint)
        results = run_trials(agent, miniwob_trials(seed, num_trials, TASK_NAMES), MAX_STEPS, num_trials)
        successes: Successes = defaultdict(list)
        for i, result in enumerate(results):
            successes[TASK_NAMES[i % len(TASK_NAMES)]].append(result.success)
        file.write_text(json.dumps(successes), "utf-8")
    return dict(json.loads(file.read_text("utf-8")))


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    args = sys.argv[1:]
    main(
        Path(args[0]) if args else Path("build/miniwob"),
        int(args[1]) if len(args) > 1 else EPISODES,
        int(args[2]) if len(args) > 2 else TRIALS,
    )

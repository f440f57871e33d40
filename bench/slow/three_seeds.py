"""The effect of history and fine-tuning: the tiny model on the simulated phone, three seeds.

Each seed has its own episodes and LoRA initialization. Three agents: the untuned base, fine-tuned on whole
histories, and fine-tuned without past screens (past actions as text). Metrics: partial match on recorded test
steps, and online success on unseen goals through real adb. Simulated: not AITW scores. About two hours on two
CPU cores, one agent per core. Existing results are reused.

    python bench/slow/three_seeds.py [OUT]
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm.cli import agents, devices, scoring
from uivlm.devices.sim.tasks import TASKS_PER_SEED, make_task
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.offline import EvalMode
from uivlm.evaluation.online import run_trials, summarize_trials

SEEDS = (0, 1, 2)
EPISODES, TEST_EPISODES, GOALS, MAX_STEPS = 3000, 200, 100, 20
AGENTS = {"fine-tuned": "tiny", "base": "", "without past screens": "tiny_blind"}


def main(out: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # one core per agent: small matrices gain little from a second one
    jobs = [(out / str(seed), seed, name) for name in AGENTS for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        list(pool.map(_prepare, [out / str(seed) for seed in SEEDS], SEEDS))
        measured = list(pool.map(_measure, *zip(*jobs, strict=True)))
    metrics = {(name, seed): values for (_, seed, name), values in zip(jobs, measured, strict=True)}
    table = Table(title=f"Simulated phone, seeds {SEEDS}: mean (min to max); not AITW scores")
    for heading in ("agent", "partial match", "memory goals", "online success"):
        table.add_column(heading)
    for name in AGENTS:
        table.add_row(
            name,
            *(
                _mean_range([metrics[name, seed][metric] for seed in SEEDS])
                for metric in ("partial_match", "memory_partial_match", "success_rate")
            ),
        )
    Console().print(table)


def _mean_range(values: list[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f} % ({100 * min(values):.1f} to {100 * max(values):.1f})"


def _prepare(folder: Path, seed: int) -> None:
    """Make the episodes of the seed."""
    shards, data = folder / "shards", folder / "data"
    if not shards.exists():
        counts = ("--episodes", str(EPISODES), "--test", str(TEST_EPISODES))
        _run("-m", "uivlm", "simulate", str(shards), *counts, "--seed", str(seed), "--workers", "1")
    if not data.exists():
        split = ("--split", str(shards / "split.json"), "--workers", "1")
        _run("-m", "data_prep", str(shards), str(data), *split)


def _measure(folder: Path, seed: int, name: str) -> dict[str, float]:
    """The metrics of one agent, from its file if it was measured before."""
    file = folder / f"{name}.json"
    if file.is_file():
        return dict(json.loads(file.read_text("utf-8")))
    data = folder / "data"
    checkpoint = folder / (AGENTS[name] or "base")
    settings = ("--set", f"data.path={json.dumps(str(data))}", "--set", f"train.seed={seed}")
    if AGENTS[name] and not checkpoint.exists():
        resume = ("--resume",) if checkpoint.with_name(f"{checkpoint.name}.state").exists() else ()
        _run("-m", "uivlm", "train", AGENTS[name], *settings, "--out", str(checkpoint), *resume)
    elif not checkpoint.exists():
        _run("-m", "uivlm", "init", "tiny", "--out", str(checkpoint))
    agent, recorded = agents.load_agent(checkpoint), scoring.load_recorded(data, "test")
    out = folder / "eval" / checkpoint.name
    verdicts = scoring.evaluate_checkpoint(
        checkpoint,
        recorded.episodes,
        out,
        scoring.make_run_info(checkpoint, recorded),
        EvalMode(batch_size=16),
    )
    goals = {
        task.goal
        for i in range(TEST_EPISODES)
        if (task := make_task(seed * TASKS_PER_SEED + i, "test")).needs_memory
    }
    ids = {episode.id for episode in recorded.episodes if episode.goal in goals}
    memory_summary = summarize([verdict for verdict in verdicts if verdict.episode in ids])
    online = summarize_trials(run_trials(agent, devices.trials(seed, GOALS), MAX_STEPS, GOALS))
    metrics = {
        "partial_match": summarize(verdicts).overall.partial_match,
        "memory_partial_match": memory_summary.overall.partial_match,
        "success_rate": online.success_rate,
    }
    file.write_text(json.dumps(metrics), "utf-8")
    return metrics


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/three_seeds"))

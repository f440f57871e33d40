"""The tiny model on the simulated phone, three seeds: what history and fine-tuning are worth.

For each seed: other episodes, another LoRA start. Three agents: the untuned base, fine-tuned on whole histories, and
fine-tuned without past screens (older actions in words). Partial match on recorded test steps, live success on unseen
goals through real adb. Simulated, no AITW scores. About two hours on two CPU cores, an agent on each; what is there
already is not made again.

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

from uivlm import wiring
from uivlm.devices.sim.tasks import task
from uivlm.evaluation.benchmark import Way
from uivlm.evaluation.metrics import summarise
from uivlm.live import run_live
from uivlm.live import summarise as summarise_live

SEEDS = (0, 1, 2)
EPISODES, TEST, GOALS, LIMIT = 3000, 200, 100, 20
AGENTS = {"fine-tuned": "tiny", "base": "", "without past screens": "tiny_blind"}


def main(out: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # one core an agent: small matrices gain little from a second one
    todo = [(out / str(seed), seed, name) for name in AGENTS for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        list(pool.map(_prepare, [out / str(seed) for seed in SEEDS], SEEDS))
        measured = list(pool.map(_measured, *zip(*todo, strict=True)))
    rows = {(name, seed): figures for (_, seed, name), figures in zip(todo, measured, strict=True)}
    table = Table(title=f"Simulated phone, seeds {SEEDS}: mean (lowest to highest); no AITW scores")
    for head in ("agent", "partial match", "memory goals", "live success"):
        table.add_column(head)
    for name in AGENTS:
        table.add_row(
            name,
            *(_spread([rows[name, seed][what] for seed in SEEDS]) for what in ("match", "memory", "live")),
        )
    Console().print(table)


def _spread(values: list[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f} % ({100 * min(values):.1f} to {100 * max(values):.1f})"


def _prepare(folder: Path, seed: int) -> None:
    """The seed's episodes."""
    shards, data = folder / "shards", folder / "data"
    if not shards.exists():
        numbers = ("--episodes", str(EPISODES), "--test", str(TEST), "--seed", str(seed), "--workers", "1")
        _run("-m", "data_prep.simulate", str(shards), *numbers)
    if not data.exists():
        split = ("--split", str(shards / "split.json"), "--workers", "1")
        _run("-m", "data_prep", str(shards), str(data), *split)


def _measured(folder: Path, seed: int, name: str) -> dict[str, float]:
    """One agent's figures, from its file where it was measured before."""
    file = folder / f"{name}.json"
    if file.is_file():
        return dict(json.loads(file.read_text("utf-8")))
    data = folder / "data"
    checkpoint = folder / (AGENTS[name] or "base")
    setting = ("--set", f"data.folder={json.dumps(str(data))}", "--set", f"train.seed={seed}")
    if AGENTS[name] and not checkpoint.exists():
        again = ("--resume",) if checkpoint.with_name(f"{checkpoint.name}.state").exists() else ()
        _run("-m", "uivlm", "train", AGENTS[name], *setting, "--out", str(checkpoint), *again)
    elif not checkpoint.exists():
        _run("-m", "uivlm", "base", "tiny", "--out", str(checkpoint))
    agent, given = wiring.load_agent(checkpoint), wiring.recorded(data, "test")
    out = folder / "eval" / checkpoint.name
    verdicts = wiring.judge(
        checkpoint, given.episodes, out, wiring.about_run(checkpoint, given), Way(together=16)
    )
    goals = {one.goal for i in range(TEST) if (one := task(seed * wiring.SEEDS + i, "test")).needs_memory}
    ids = {episode.id for episode in given.episodes if episode.goal in goals}
    remembered = summarise([verdict for verdict in verdicts if verdict.episode in ids])
    live = summarise_live(run_live(agent, wiring.trials(seed, GOALS), LIMIT, GOALS))
    figures = {
        "match": summarise(verdicts).overall.partial,
        "memory": remembered.overall.partial,
        "live": live.rate,
    }
    file.write_text(json.dumps(figures), "utf-8")
    return figures


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/three_seeds"))

"""The whole path on simulated episodes, stage by stage: counts and a seed in, a folder with a page out.

shards -> data -> checkpoint -> base and fine-tuned evaluated -> served -> unseen goals on a phone through adb
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uivlm.atomic import check_new_dir, write_file
from uivlm.cli import agents, devices, scoring
from uivlm.cli.recipes import load_recipe
from uivlm.reports.html import render

if TYPE_CHECKING:
    from uivlm.evaluation.metrics import Summary
    from uivlm.evaluation.online import OnlineSummary, TrialResult

RECIPE = "tiny"
MAX_STEPS = 20  # of a run
BATCH_SIZE = 16  # episodes evaluated at once
BASE, TUNED = "base", "fine-tuned"


@dataclass(frozen=True, slots=True)
class StageTimer:
    """Prints when each stage starts and how long it took; keeps the seconds by stage."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, description: str) -> Iterator[None]:
        self.console.print(Text(f"[{len(self.seconds) + 1}] {name}: {description}", "bold"), soft_wrap=True)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        self.console.print(f"    {self.seconds[name]:.1f} s", highlight=False)


def demo(
    out: Path, seed: int, num_episodes: int, num_test_episodes: int, num_goals: int, console: Console
) -> Path:
    """Run every stage into the new folder `out`; returns the page."""
    check_new_dir(out)
    data = out / "data"
    recipe = load_recipe(RECIPE, [f"data.path={json.dumps(str(data))}", f"train.seed={seed}"])
    from uivlm.evaluation.online import run_trials, summarize_trials
    from uivlm.serving.server import serve_in_thread
    from uivlm.training.checkpoint import save_base_checkpoint
    from uivlm.training.train import train

    out.mkdir(parents=True, exist_ok=True)
    shards, base, tuned = out / "shards", out / "base", out / "checkpoint"
    timer = StageTimer(console)
    with timer.stage(
        "simulate",
        f"{num_episodes} episodes to train on, {num_test_episodes} of other goals and phones to test",
    ):
        counts = ("--episodes", str(num_episodes), "--test", str(num_test_episodes))
        _run_module("uivlm", "simulate", str(shards), *counts, "--seed", str(seed))
    with timer.stage("prepare", "shards in AITW's format to Parquet"):
        _run_module("data_prep", str(shards), str(data), "--split", str(shards / "split.json"))
    with timer.stage("fine-tune", f"LoRA by the recipe {recipe.name}"):
        train(recipe, tuned, False)
    save_base_checkpoint(recipe, base)
    with timer.stage("evaluate", f"{BASE} and {TUNED} on every step of {num_test_episodes} test episodes"):
        summaries = _evaluate({BASE: base, TUNED: tuned}, data, out / "eval")
    with timer.stage("run", f"{num_goals} unseen goals on a simulated phone: agent over HTTP, real adb"):
        agent = agents.load_agent(tuned)
        with serve_in_thread({recipe.name: agent}) as url, agents.open_agent(url) as remote:
            results = run_trials(
                remote, devices.trials(seed, num_goals), MAX_STEPS, num_goals, out / "traces"
            )
    rows = _result_rows(summaries, summarize_trials(results), timer.seconds)
    console.print(_table(rows))
    page = _write_page(out, rows, results)
    console.print(Text(f"page: {page}"), soft_wrap=True)
    return page


def _run_module(module: str, *arguments: str) -> None:
    """Run a program of the project in its own process, which may fork: this one has torch's threads."""
    status = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
    if status:
        raise ValueError(f"python -m {module} failed with exit status {status}: its message is above")


def _evaluate(checkpoints: dict[str, Path], data: Path, out: Path) -> "dict[str, Summary]":
    """The summary of each checkpoint; the page draws the errors of the fine-tuned one."""
    from uivlm.evaluation.metrics import summarize
    from uivlm.evaluation.offline import EvalMode
    from uivlm.evaluation.report_html import write_eval_report

    recorded, mode = scoring.load_recorded(data, "test"), EvalMode(batch_size=BATCH_SIZE)
    episodes = recorded.episodes
    verdicts = {
        name: scoring.evaluate_checkpoint(
            folder, episodes, out / folder.name, scoring.make_run_info(folder, recorded), mode
        )
        for name, folder in checkpoints.items()
    }
    summaries = {name: summarize(rows) for name, rows in verdicts.items()}
    page = out / scoring.REPORT_FILE
    write_eval_report(page, summaries, verdicts[TUNED], episodes, "simulated", "Simulated test episodes")
    return summaries


def _result_rows(
    summaries: "dict[str, Summary]", online: "OnlineSummary", seconds: dict[str, float]
) -> list[tuple[str, str]]:
    """The results as pairs of a name and a value."""
    rows = []
    for name, summary in summaries.items():
        score = summary.overall
        interval = f"{100 * score.partial_match_low:.1f} to {100 * score.partial_match_high:.1f}"
        rows.append((f"partial match, {name} (95 %)", f"{100 * score.partial_match:.1f} % ({interval})"))
    successes = f"{online.num_successes} of {online.num_trials} goals, {100 * online.success_rate:.1f} %"
    interval = f"{100 * online.success_rate_low:.1f} to {100 * online.success_rate_high:.1f}"
    rows.append((f"online success, {TUNED} (95 %)", f"{successes} ({interval})"))
    rows += [(f"seconds: {stage}", f"{taken:.1f}") for stage, taken in seconds.items()]
    return [*rows, ("seconds: total", f"{sum(seconds.values()):.1f}")]


def _table(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table("", "", title="Simulated phone, not AITW scores", show_header=False)
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _write_page(out: Path, rows: Sequence[tuple[str, str]], results: "Sequence[TrialResult]") -> Path:
    runs = [
        {
            "page": f"traces/{i:04d}/index.html",
            "goal": result.goal,
            "result": f"{'success' if result.success else 'no success'}: {result.message}",
        }
        for i, result in enumerate(results)
    ]
    return write_file(out / "index.html", render("demo", title="uivlm demo", rows=rows, runs=runs))

"""The whole path on simulated episodes, stage after stage: numbers in, a folder with a page to look at out.

shards -> data -> checkpoint -> base and fine-tuned judged -> served -> unseen goals on a phone behind adb
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

from uivlm import wiring
from uivlm.page import page, safe

if TYPE_CHECKING:
    from uivlm.evaluation.metrics import Summary
    from uivlm.live import LiveResult, LiveSummary
    from uivlm.recipe import Recipe

RECIPE = "tiny"
LIMIT = 20  # actions a goal
TOGETHER = 16  # episodes asked side by side
BASE, TUNED = "base", "fine-tuned"


@dataclass(frozen=True, slots=True)
class Clock:
    """Says when each stage starts and how long it took; keeps the seconds by stage."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        self.console.print(Text(f"[{len(self.seconds) + 1}] {name}: {what}", "bold"), soft_wrap=True)
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began
        self.console.print(f"    {self.seconds[name]:.1f} s", highlight=False)


def demo(out: Path, seed: int, episodes: int, test: int, goals: int, console: Console) -> Path:
    """Run every stage into the new folder `out`; returns the page."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} already holds something: remove it, or name another folder with --out")
    data = out / "data"
    recipe = _recipe(data, seed)
    from uivlm.live import run_live
    from uivlm.live import summarise as summarise_live
    from uivlm.serving.server import serving
    from uivlm.training.checkpoint import base_checkpoint
    from uivlm.training.trainer import train

    out.mkdir(parents=True, exist_ok=True)
    shards, base, tuned = out / "shards", out / "base", out / "checkpoint"
    clock = Clock(console)
    with clock.stage(
        "simulate", f"{episodes} episodes to train on, {test} of other goals and phones to test"
    ):
        numbers = ("--episodes", str(episodes), "--test", str(test), "--seed", str(seed))
        _python("data_prep.simulate", str(shards), *numbers)
    with clock.stage("prepare", "shards of AITW's format to sentences"):
        _python("data_prep", str(shards), str(data), "--split", str(shards / "split.json"))
    with clock.stage("fine-tune", f"LoRA by the recipe {recipe.name}"):
        train(recipe, tuned, False)
    base_checkpoint(recipe, base)
    with clock.stage("evaluate", f"{BASE} and {TUNED}, on every step of {test} test episodes"):
        summaries = _evaluate({BASE: base, TUNED: tuned}, data, out / "eval")
    with clock.stage("run", f"{goals} unseen goals on a simulated phone: served agent, real adb"):
        agent = wiring.load_agent(tuned)
        with serving({recipe.name: agent}) as url, wiring.open_agent(url) as remote:
            results = run_live(remote, wiring.trials(seed, goals), LIMIT, goals, out / "traces")
    rows = _rows(summaries, summarise_live(results), clock.seconds)
    console.print(_table(rows))
    written = _write_page(out, rows, results)
    console.print(Text(f"page: {written}"), soft_wrap=True)
    return written


def _recipe(data: Path, seed: int) -> "Recipe":
    from uivlm.recipe import load, override

    return override(load(RECIPE), [f"data.folder={json.dumps(str(data))}", f"train.seed={seed}"])


def _python(module: str, *arguments: str) -> None:
    """Another program of the project, in its own process."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=False)
    if done.returncode:
        raise ValueError(
            f"python -m {module} ended with exit status {done.returncode}: its message stands above"
        )


def _evaluate(checkpoints: dict[str, Path], data: Path, out: Path) -> "dict[str, Summary]":
    """Each checkpoint's summary; the page draws the errors of the last one."""
    from uivlm.evaluation.benchmark import Way
    from uivlm.evaluation.metrics import summarise
    from uivlm.evaluation.report_page import write_page

    given, way = wiring.recorded(data, "test"), Way(together=TOGETHER)
    verdicts = {
        name: wiring.judge(folder, given.episodes, out / folder.name, wiring.about_run(folder, given), way)
        for name, folder in checkpoints.items()
    }
    summaries = {name: summarise(each) for name, each in verdicts.items()}
    write_page(out / wiring.PAGE, summaries, verdicts[TUNED], given.episodes, True, "Simulated test episodes")
    return summaries


def _rows(
    summaries: "dict[str, Summary]", live: "LiveSummary", seconds: dict[str, float]
) -> list[tuple[str, str]]:
    """What came out, as pairs of words."""
    rows = [
        (
            f"partial match, {name} (95 %)",
            f"{100 * s.partial:.1f} % ({100 * s.low:.1f} to {100 * s.high:.1f})",
        )
        for name, s in ((name, summary.overall) for name, summary in summaries.items())
    ]
    rows.append(
        (
            f"live success, {TUNED} (95 %)",
            f"{live.num_successes} of {live.num_trials} goals, {100 * live.rate:.1f} % "
            f"({100 * live.low:.1f} to {100 * live.high:.1f})",
        )
    )
    rows += [(f"seconds: {stage}", f"{taken:.1f}") for stage, taken in seconds.items()]
    return [*rows, ("seconds: all", f"{sum(seconds.values()):.1f}")]


def _table(rows: Sequence[tuple[str, str]]) -> Table:
    shown = Table("", "", title="Simulated phone, no AITW scores", show_header=False)
    for name, value in rows:
        shown.add_row(Text(name), Text(value))
    return shown


def _write_page(out: Path, rows: Sequence[tuple[str, str]], results: "Sequence[LiveResult]") -> Path:
    cells = "".join(f"<tr><td>{safe(name)}<td>{safe(value)}" for name, value in rows)
    runs = "".join(
        f'<li><a href="traces/{i:04d}/index.html">{safe(result.goal)}</a> '
        f"({'success' if result.success else 'no success'}: {safe(result.message)})"
        for i, result in enumerate(results)
    )
    body = f"""
<h1>uivlm demo</h1>
<p>Everything here is of a simulated phone. These are no AITW scores.</p>
<table>{cells}</table>
<h2>Offline, step by step</h2>
<p><a href="eval/report.html">Scores of the test episodes, and errors drawn on their screens</a></p>
<h2>On the phone</h2>
<ol>{runs}</ol>"""
    path = out / "index.html"
    path.write_text(page("uivlm demo", STYLE, body), encoding="utf-8")
    return path


STYLE = """
body { max-width: 50rem }
td { padding: .1rem 1rem .1rem 0; border-bottom: 1px solid #ddd }
"""

"""The verbs of the `uivlm` command that say how good an agent is.

Exit status: 0 done, 2 bad input (one sentence on stderr).
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uivlm.engine import Engine
from uivlm.evaluation.names import PROTOCOLS, SOUND, Baseline, Dialect, Protocol
from uivlm.options import (
    AgentName,
    Checkpoint,
    DataFolder,
    Episodes,
    Free,
    Limit,
    Seed,
    Split,
    Subset,
    say,
    screen,
)

if TYPE_CHECKING:
    from uivlm.evaluation.verdict import Verdict
    from uivlm.wiring import Recorded

Suite = Literal["sim", "miniwob"]
SUITES: dict[Suite, str] = {"sim": "the simulated phone", "miniwob": "MiniWoB++ pages"}

app = typer.Typer()


@app.command("eval")
def evaluate(
    ckpt: Checkpoint,
    data: DataFolder,
    split: Split = "test",
    limit: Episodes = None,
    subset: Subset = None,
    free: Free = False,
    bound: Annotated[
        bool, typer.Option("--bound", help="It can say nothing but actions, as when it serves.")
    ] = False,
    protocol: Annotated[
        Protocol, typer.Option(help="Whose rules; AITW's always stand in the first table.")
    ] = "aitw",
    with_defects: Annotated[
        bool, typer.Option("--with-defects", help="And by the rules with what their code does wrong.")
    ] = False,
    together: Annotated[int, typer.Option(min=1, help="Episodes that are asked side by side.")] = 16,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: as many as there are GPUs, or 1.")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Processes of this machine, or a Ray cluster.")] = "pool",
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/eval/CKPT.")] = None,
) -> None:
    """Partial match: at each recorded step, does the agent do what was done? Writes verdicts.jsonl, report.html. Stopped, the
    same command goes on where it was."""
    from uivlm import wiring
    from uivlm.evaluation.benchmark import Way

    name = ckpt.resolve().name
    given = wiring.recorded(data, split, subset, limit)
    folder = out or Path("runs") / "eval" / name
    way = Way(free, together)
    processes = workers or wiring.gpus()
    about = wiring.about_run(ckpt, given, bound)
    verdicts = wiring.judge(ckpt, given.episodes, folder, about, way, processes, engine, bound)
    about |= {"free": free, "together": together}
    _report(f"{name} on {split}{', free-running' if free else ''}", name, folder, verdicts, given, about)
    if protocol != "aitw" or with_defects:
        _by_protocols(folder / wiring.VERDICTS, given, [protocol], with_defects)


@app.command()
def baseline(
    name: Annotated[Baseline, typer.Argument(help="What it says at each step.")],
    data: DataFolder,
    split: Split = "test",
    limit: Episodes = None,
    subset: Subset = None,
    free: Free = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/eval/NAME.")] = None,
) -> None:
    """Anchors for scores: an agent without a model, in the same harness. It learns from the split train."""
    from uivlm import wiring
    from uivlm.evaluation.baselines import baseline as make
    from uivlm.evaluation.benchmark import Way, evaluate

    given = wiring.recorded(data, split, subset, limit)
    train = wiring.recorded(data, "train", subset).episodes
    agent = make(name, train, given.episodes, given.bins)
    folder = out or Path("runs") / "eval" / name
    verdicts = evaluate(agent, given.episodes, folder / wiring.VERDICTS, way=Way(free))
    _report(f"baseline {name} on {split}", name, folder, verdicts, given, {"baseline": name, **given.about})


@app.command()
def score(
    answers: Annotated[Path, typer.Argument(help="verdicts.jsonl, or a file of another tool's answers.")],
    data: DataFolder,
    split: Split = "test",
    limit: Episodes = None,
    subset: Subset = None,
    dialect: Annotated[Dialect, typer.Option(help="How the other tool's model answers.")] = "ours",
    size: Annotated[
        str, typer.Option(metavar="HEIGHTxWIDTH", help="What the other tool's coordinates count.")
    ] = "1000x1000",
    history: Annotated[
        int, typer.Option(min=1, help="ShowUI's: its defect makes boxes as wide as its history.")
    ] = 4,
) -> None:
    """The same answers by the rules of every peer, with their defects and without."""
    from uivlm import wiring

    given = wiring.recorded(data, split, subset, limit)
    _by_protocols(answers, given, PROTOCOLS, True, dialect, _size(size), history)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="verdicts.jsonl of one run, or its folder.")],
    b: Annotated[Path, typer.Argument(help="Of another, on the same steps.")],
) -> None:
    """Is B better than A, or is it chance? Paired bootstrap by episode, McNemar's test by step."""
    from uivlm import wiring
    from uivlm.evaluation.compare import compare as run_compare
    from uivlm.evaluation.compare import comparison_table
    from uivlm.evaluation.verdict import read_verdicts

    files = [path / wiring.VERDICTS if path.is_dir() else path for path in (a, b)]
    one, other = (read_verdicts(file) for file in files)
    told = run_compare(one, other)
    screen.print(comparison_table(str(a), str(b), told))


@app.command()
def live(
    agent: AgentName,
    suite: Annotated[
        Suite, typer.Option(help="The simulated phone behind adb, or MiniWoB++ pages in Chromium.")
    ] = "sim",
    goals: Annotated[int, typer.Option(min=1, help="How many unseen goals of each seed.")] = 100,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds, from --seed on.")] = 1,
    limit: Limit = 20,
    trace: Annotated[Path | None, typer.Option(help="A new folder for one trace a goal.")] = None,
) -> None:
    """Live success on unseen goals; the phone's or the page's own check decides."""
    from uivlm import wiring
    from uivlm.live import live_table, run_live, summarise
    from uivlm.trace_page import write_index

    with wiring.open_agent(agent) as mind:
        results = {
            one: run_live(
                mind,
                wiring.trials(one, goals, suite),
                limit,
                goals,
                None if trace is None else trace / str(one),
            )
            for one in range(seed, seed + seeds)
        }
    if trace is not None:
        write_index(trace)
        say(f"traces: {trace / wiring.INDEX}")
    rows = {f"seed {one}": summarise(each) for one, each in results.items()} if seeds > 1 else {}
    whole = summarise([result for each in results.values() for result in each])
    screen.print(live_table(f"Live success: {SUITES[suite]}", rows | {"all": whole}))
    say(
        f"live success on {SUITES[suite]}: {100 * whole.rate:.1f} % "
        f"({whole.num_successes} of {whole.num_trials} goals; 95 %: {100 * whole.low:.1f} to {100 * whole.high:.1f})"
    )


def _report(
    title: str, name: str, folder: Path, verdicts: "list[Verdict]", given: "Recorded", about: dict[str, Any]
) -> None:
    """Tables in the terminal, the page and the card of the run."""
    from uivlm import wiring
    from uivlm.evaluation.metrics import summarise
    from uivlm.evaluation.report import kind_table, table
    from uivlm.evaluation.report_page import write_page

    summaries = {name: summarise(verdicts)}
    screen.print(table(summaries, given.simulated))
    screen.print(kind_table(summaries))
    about = wiring.card(folder, about)
    page = write_page(
        folder / wiring.PAGE, summaries, verdicts, given.episodes, given.simulated, title, about
    )
    say(f"page: {page}")


def _by_protocols(
    path: Path,
    given: "Recorded",
    protocols: "tuple[Protocol, ...] | list[Protocol]",
    with_defects: bool,
    dialect: Dialect = "ours",
    size: tuple[int, int] = (1, 1),
    history: int = 4,
) -> None:
    from uivlm.evaluation.predictions import is_verdicts, of_another, of_verdicts
    from uivlm.evaluation.protocols.score import score as run_score
    from uivlm.evaluation.report import protocol_table

    rows = (
        of_verdicts(path, given.episodes)
        if is_verdicts(path)
        else of_another(path, given.episodes, dialect, size, given.bins)
    )
    plain: list[Protocol] = ["aitw", *(one for one in protocols if one != "aitw")]
    results = [run_score(rows, one) for one in plain]
    if with_defects:
        results += [run_score(rows, one, True, history) for one in protocols if one not in SOUND]
    screen.print(protocol_table(results))


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if not found or "0" in found.groups():
        raise ValueError(f"--size is {text!r}: say height and width, such as 2400x1080")
    return int(found[1]), int(found[2])

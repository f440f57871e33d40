"""The verbs that score agents.

Exit status: 0 done, 2 bad input (one sentence on stderr).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uivlm.cli.options import (
    AgentArgument,
    CheckpointArgument,
    DataArgument,
    FetchOption,
    FreeRunningOption,
    MaxEpisodesOption,
    MaxStepsOption,
    SeedOption,
    SplitOption,
    SubsetOption,
    print_line,
    stdout_console,
)
from uivlm.evaluation.names import (
    PROTOCOLS,
    PROTOCOLS_WITHOUT_DEFECTS,
    AnswerFormat,
    BaselineName,
    ProtocolName,
)
from uivlm.parallel import ExecutorName

if TYPE_CHECKING:
    from uivlm.cli.scoring import RecordedData
    from uivlm.evaluation.protocols.prediction import StepPrediction
    from uivlm.evaluation.verdict import Verdict

Suite = Literal["sim", "miniwob"]
SUITE_TITLES: dict[Suite, str] = {"sim": "the simulated phone", "miniwob": "MiniWoB++ pages"}

app = typer.Typer()


@app.command("eval")
def evaluate(
    ckpt: CheckpointArgument,
    data: DataArgument,
    split: SplitOption = "test",
    max_episodes: MaxEpisodesOption = None,
    subset: SubsetOption = None,
    free_running: FreeRunningOption = False,
    constrained: Annotated[
        bool, typer.Option("--constrained", help="Constrain decoding to valid actions, as the server does.")
    ] = False,
    protocol: Annotated[
        ProtocolName, typer.Option(help="Matching rules to report in addition to AITW's.")
    ] = "aitw",
    as_released: Annotated[
        bool,
        typer.Option("--as-released", help="Also score with the defects of the protocol's released code."),
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of episodes in a batch.")] = 16,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; default: the number of GPUs, or 1.")
    ] = None,
    executor: Annotated[ExecutorName, typer.Option(help="Local processes, or a Ray cluster.")] = "local",
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/eval/CKPT.")] = None,
    fetch: FetchOption = False,
) -> None:
    """Partial match: compare the predicted with the recorded action at every step. Writes verdicts.jsonl and
    report.html; rerun to resume."""
    from uivlm.cli import agents, scoring
    from uivlm.evaluation.offline import EvalMode
    from uivlm.evaluation.predictions import load_verdicts

    agents.fetch_bases([ckpt], fetch)
    name = ckpt.resolve().name
    recorded = scoring.load_recorded(data, split, subset, max_episodes)
    folder = out or Path("runs") / "eval" / name
    mode = EvalMode(free_running, batch_size)
    num_workers = workers or agents.count_gpus()
    run_info = scoring.make_run_info(ckpt, recorded, constrained)
    verdicts = scoring.evaluate_checkpoint(
        ckpt, recorded.episodes, folder, run_info, mode, num_workers, executor, constrained
    )
    run_info |= {"free_running": free_running, "batch_size": batch_size}
    title = f"{name} on {split}{', free-running' if free_running else ''}"
    _write_report(title, name, folder, verdicts, recorded, run_info)
    if protocol != "aitw" or as_released:
        predictions = load_verdicts(folder / scoring.VERDICTS_FILE, recorded.episodes)
        _print_protocol_scores(predictions, recorded.note, [protocol], as_released)


@app.command()
def baseline(
    name: Annotated[BaselineName, typer.Argument(help="The baseline's rule.")],
    data: DataArgument,
    split: SplitOption = "test",
    max_episodes: MaxEpisodesOption = None,
    subset: SubsetOption = None,
    free_running: FreeRunningOption = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/eval/NAME.")] = None,
) -> None:
    """Score an agent without a model, as a reference. It learns from the split train."""
    from uivlm.cli import scoring
    from uivlm.evaluation.baselines import make_baseline
    from uivlm.evaluation.offline import EvalMode
    from uivlm.evaluation.offline import evaluate as run_evaluation

    recorded = scoring.load_recorded(data, split, subset, max_episodes)
    train = scoring.load_recorded(data, "train", subset).episodes
    agent = make_baseline(name, train, recorded.episodes, recorded.num_bins)
    folder, mode = out or Path("runs") / "eval" / name, EvalMode(free_running)
    verdicts = run_evaluation(agent, recorded.episodes, folder / scoring.VERDICTS_FILE, mode=mode)
    run_info = {"baseline": name, **recorded.selection, "free_running": free_running}
    _write_report(f"baseline {name} on {split}", name, folder, verdicts, recorded, run_info)


@app.command()
def score(
    answers: Annotated[Path, typer.Argument(help="A verdicts.jsonl, or a file of another tool's answers.")],
    data: DataArgument,
    split: SplitOption = "test",
    max_episodes: MaxEpisodesOption = None,
    subset: SubsetOption = None,
    answer_format: Annotated[AnswerFormat, typer.Option(help="Format of the other tool's answers.")] = "ours",
    coordinate_range: Annotated[
        str, typer.Option(metavar="HEIGHTxWIDTH", help="Range of the other tool's coordinates.")
    ] = "1000x1000",
    history: Annotated[
        int, typer.Option(min=1, help="Past screens of ShowUI, whose defect regroups boxes by this number.")
    ] = 4,
) -> None:
    """Score the same predictions by the rules of every protocol, with and without the defects of its code."""
    from uivlm.cli import scoring
    from uivlm.evaluation.predictions import (
        describe_unusable_boxes,
        is_verdicts_file,
        load_foreign,
        load_verdicts,
    )

    height_and_width = _parse_coordinate_range(coordinate_range)
    recorded = scoring.load_recorded(data, split, subset, max_episodes)
    if is_verdicts_file(answers):
        predictions, num_surplus = load_verdicts(answers, recorded.episodes), 0
    else:
        foreign = load_foreign(answers, recorded.episodes, answer_format, height_and_width, recorded.num_bins)
        predictions, num_surplus = foreign.predictions, foreign.num_surplus
    _print_protocol_scores(predictions, recorded.note, PROTOCOLS, True, history, num_surplus)
    if note := describe_unusable_boxes(predictions, recorded.episodes):
        print_line(note)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A verdicts.jsonl, or the folder that holds it.")],
    b: Annotated[Path, typer.Argument(help="The same of another run on the same steps.")],
) -> None:
    """Test whether B is better than A: paired bootstrap by episode, McNemar's test by step."""
    from uivlm.cli import scoring
    from uivlm.evaluation.compare import compare_runs, comparison_table
    from uivlm.evaluation.verdict import read_verdicts

    files = [path / scoring.VERDICTS_FILE if path.is_dir() else path for path in (a, b)]
    verdicts_a, verdicts_b = map(read_verdicts, files)
    stdout_console.print(comparison_table(str(a), str(b), compare_runs(verdicts_a, verdicts_b)))


@app.command()
def eval_online(
    agent: AgentArgument,
    suite: Annotated[
        Suite, typer.Option(help="The simulated phone through adb, or MiniWoB++ pages in Chromium.")
    ] = "sim",
    num_goals: Annotated[int, typer.Option(min=1, help="Number of unseen goals per seed.")] = 100,
    seed: SeedOption = 0,
    num_seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, starting with --seed.")] = 1,
    max_steps: MaxStepsOption = 20,
    trace_dir: Annotated[Path | None, typer.Option(help="New folder for one trace per goal.")] = None,
    fetch: FetchOption = False,
) -> None:
    """Online success rate on unseen goals, by the device's own check."""
    from uivlm.cli import agents, devices, scoring
    from uivlm.evaluation.online import online_table, run_trials, summarize_trials
    from uivlm.rollout.trace_html import write_index

    seeds = range(seed, seed + num_seeds)
    with agents.open_agent(agent, fetch) as opened:
        results = {
            i: run_trials(
                opened,
                devices.trials(i, num_goals, suite),
                max_steps,
                num_goals,
                None if trace_dir is None else trace_dir / str(i),
            )
            for i in seeds
        }
    if trace_dir is not None:
        write_index(trace_dir)
        print_line(f"traces: {trace_dir / scoring.INDEX_FILE}")
    rows = {f"seed {i}": summarize_trials(results[i]) for i in seeds} if num_seeds > 1 else {}
    overall = summarize_trials([result for i in seeds for result in results[i]])
    stdout_console.print(online_table(f"Online success: {SUITE_TITLES[suite]}", rows | {"all": overall}))
    print_line(
        f"online success on {SUITE_TITLES[suite]}: {100 * overall.success_rate:.1f} % "
        f"({overall.num_successes} of {overall.num_trials} goals; "
        f"95 %: {100 * overall.success_rate_low:.1f} to {100 * overall.success_rate_high:.1f})"
    )


def _write_report(
    title: str,
    name: str,
    folder: Path,
    verdicts: "list[Verdict]",
    recorded: "RecordedData",
    run_info: dict[str, Any],
) -> None:
    """Print the tables; write the card and the page."""
    from uivlm.cli import scoring
    from uivlm.evaluation.metrics import summarize
    from uivlm.evaluation.report import action_type_table, score_table
    from uivlm.evaluation.report_html import write_eval_report

    summaries = {name: summarize(verdicts)}
    stdout_console.print(score_table(summaries, recorded.kind, recorded.note))
    stdout_console.print(action_type_table(summaries))
    card = scoring.write_card(folder, run_info, summaries[name])
    page = write_eval_report(
        folder / scoring.REPORT_FILE,
        summaries,
        verdicts,
        recorded.episodes,
        recorded.kind,
        title,
        card,
        recorded.note,
    )
    print_line(f"page: {page}")


def _print_protocol_scores(
    predictions: "Sequence[StepPrediction]",
    note: str,
    protocols: Sequence[ProtocolName],
    as_released: bool,
    history: int = 4,
    num_surplus: int = 0,
) -> None:
    """AITW's score first, then the other protocols' and those with the defects of released code."""
    from uivlm.evaluation.protocols.score import score_protocol
    from uivlm.evaluation.report import protocol_table

    first: list[ProtocolName] = ["aitw", *(protocol for protocol in protocols if protocol != "aitw")]
    results = [score_protocol(predictions, protocol) for protocol in first]
    if as_released:
        results += [
            score_protocol(predictions, protocol, True, history)
            for protocol in protocols
            if protocol not in PROTOCOLS_WITHOUT_DEFECTS
        ]
    stdout_console.print(protocol_table(results, num_surplus, note))


def _parse_coordinate_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if not match:
        raise ValueError(
            f"--coordinate-range: got {text!r}; expected HEIGHTxWIDTH in whole numbers, such as 2400x1080"
        )
    return int(match[1]), int(match[2])

"""Data preparation in reading order: recorded episodes in, a folder of prepared data out.

find parts -> read, check and encode every step -> group into episodes -> split -> write -> report

An interrupted run resumes with the same command and ends with the same bytes.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.progress import Progress

from data_prep.card import CARD_FILE, render_card
from data_prep.index import RecordIndex, read_index, reject_messages
from data_prep.pass1_read import SpillJob, spill_part
from data_prep.pass2_write import WritePlan, data_fingerprint, plan_files, write_file
from data_prep.plan import EpisodeLimit, PrepPlan, by_turns, plan_episodes
from data_prep.report import make_report, nothing_left_message, print_report
from data_prep.report_html import REPORT_HTML, render_report
from data_prep.settings import ImageSettings, MissingStepsPolicy, PrepSettings
from data_prep.source import FormatName, SourcePart, get_reader
from data_prep.source_files import is_url
from data_prep.split import (
    MAX_EXAMPLES,
    SPLITS,
    DuplicateIdsPolicy,
    EpisodeSelection,
    check_subsets,
    parse_subsample,
    read_split,
)
from data_prep.token_counts import TokenCounter, count_tokens, make_token_counters
from data_prep.work_dir import WorkDir, discard, move_to_out, open_work_dir, read_json, write_json, write_text
from uivlm.actions.text import ActionText
from uivlm.episodes.dataset import META
from uivlm.episodes.rows import FORMAT, VERSION, ImageFormat
from uivlm.parallel import Executor, ExecutorName, make_executor
from uivlm.terminal import Terminal

REPORT_FILE = "report.json"
Result = TypeVar("Result")
EXIT_INCOMPLETE = 3  # exit status: written, but without the parts that could not be read

app = typer.Typer(add_completion=False)
stdout_console = Terminal()
stderr_console = Terminal(stderr=True)


@app.command()
def main(
    source: Annotated[
        str, typer.Argument(help="A file, a folder with data at any depth, or a URL such as gs://...")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to create.")],
    format: Annotated[FormatName, typer.Option(help="Format of the source; see docs/formats.md.")] = "aitw",
    split: Annotated[
        list[Path] | None,
        typer.Option(help="JSON file {train|validation|val|test: [episode ids]}; repeatable."),
    ] = None,
    duplicate_ids: Annotated[
        DuplicateIdsPolicy, typer.Option(help="Policy for ids under two labels of the split files.")
    ] = "refuse",
    subset: Annotated[list[str] | None, typer.Option(help="Prepare only this subset; repeatable.")] = None,
    subsample: Annotated[
        list[str] | None,
        typer.Option(help="SUBSET=FRACTION of its train episodes, such as google_apps=0.1; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the subsample.")] = 0,
    num_bins: Annotated[
        int, typer.Option(min=2, help="Number of coordinate bins in the text of actions.")
    ] = 100,
    missing_steps: Annotated[
        MissingStepsPolicy, typer.Option(help="Policy for episodes with missing steps.")
    ] = "keep-prefix",
    image_format: Annotated[
        ImageFormat, typer.Option(help="Image format of the screens; png is lossless.")
    ] = "jpeg",
    jpeg_quality: Annotated[int, typer.Option(min=1, max=100, help="JPEG quality.")] = 90,
    max_height: Annotated[
        int | None, typer.Option(min=1, help="Maximum height of screens, in pixels; taller ones are resized.")
    ] = None,
    max_episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of episodes of each subset; complete first."),
    ] = None,
    keep_failed_runs: Annotated[
        bool, typer.Option("--keep-failed-runs", help="Keep traces that did not reach their goal.")
    ] = False,
    count_tokens: Annotated[
        list[str] | None, typer.Option(help="Recipe whose tokens the report counts; repeatable.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of worker processes; default: the CPU cores.")
    ] = None,
    executor: Annotated[
        ExecutorName, typer.Option(help="local processes, or ray: machines that share the disk of OUT.")
    ] = "local",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace prepared data in OUT.")] = False,
) -> None:
    """Turn recorded episodes into prepared data: Parquet shards, a dataset card, meta.json and a report.

    Exit status: 0 everything was read, 2 nothing was written, 3 written without the unreadable parts.
    """
    with _user_errors(out):
        rule, fractions = read_split(split or (), duplicate_ids), parse_subsample(subsample or ())
        settings = PrepSettings(
            format=format,
            selection=EpisodeSelection(rule, frozenset(subset or ()), fractions, seed),
            images=ImageSettings(num_bins, image_format, jpeg_quality, max_height),
            missing_steps=missing_steps,
            max_episodes=max_episodes,
            keep_failed_runs=keep_failed_runs,
            count_tokens=tuple(count_tokens or ()),
        )
        report = prepare(source, out, settings, workers or os.cpu_count() or 1, executor, overwrite)
        print_report(report, stdout_console)
        stdout_console.print(f"Written to {out}; see {out / REPORT_HTML}", markup=False, soft_wrap=True)
    if report["damaged"]:
        raise typer.Exit(EXIT_INCOMPLETE)


def prepare(
    source: str | Path,
    out: Path,
    settings: PrepSettings = PrepSettings(),  # noqa: B008  # frozen
    workers: int = 1,
    executor_type: ExecutorName = "local",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Prepare `source` and return the report.

    Raises ValueError with one sentence and leaves nothing behind. Raises OSError if the disk, network or a
    worker failed; the work folder stays, and the same call resumes.
    """
    ActionText(settings.images.num_bins)
    token_counters = make_token_counters(settings.count_tokens)
    found, subsets = get_reader(settings.format).find(str(source)), settings.selection.subsets
    check_subsets(settings.selection, (subset for part in found for subset in part.subsets))
    parts = [part for part in found if not subsets or not subsets.isdisjoint(part.subsets)]
    if not is_url(str(source)) and Path(source).resolve().is_relative_to(out.resolve()):
        raise ValueError(f"the source {source} is inside the output folder {out}: choose another folder")
    if settings.max_episodes is not None:
        parts = by_turns(parts)
    with open_work_dir(out, settings, parts, overwrite) as work:
        if not work.complete_marker.exists():
            with Progress(console=stderr_console, transient=True, refresh_per_second=2) as progress:
                try:
                    with make_executor(workers, executor_type) as executor:
                        pipeline = _Pipeline(work, progress, executor)
                        _run_passes(pipeline, parts, str(source), settings, token_counters)
                except ValueError:
                    discard(work)
                    raise
        move_to_out(out, work)
    return read_json(out / REPORT_FILE)


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The context of a run: its work folder, progress bars and executor."""

    work_dir: WorkDir
    progress: Progress
    executor: Executor

    def map_jobs(
        self, name: str, function: Callable[[Any], Result], jobs: Iterable[Any], num_jobs: int
    ) -> Generator[Result]:
        """Yield `function(job)` for each job, in order, with a progress bar."""
        bar = self.progress.add_task(name, total=num_jobs)
        executor = self.executor if num_jobs > 1 else Executor()  # no worker process for one job
        with closing(executor.map_ordered(function, jobs)) as results:
            for result in results:
                self.progress.advance(bar)
                yield result


def _run_passes(
    pipeline: _Pipeline,
    parts: Sequence[SourcePart],
    source: str,
    settings: PrepSettings,
    token_counters: Sequence[TokenCounter],
) -> None:
    """Write all of OUT in the work folder."""
    work, jobs = pipeline.work_dir, [SpillJob(i, part, pipeline.work_dir) for i, part in enumerate(parts)]
    part_infos = _read_parts(pipeline, jobs, EpisodeLimit(settings, parts))
    damaged = [part_info for part_info in part_infos if "error" in part_info]
    if damaged and len(damaged) == len(part_infos):
        raise ValueError(f"no part of {source} can be read: {damaged[0]['error']}")
    index = read_index(work, range(len(part_infos)))
    plan = plan_episodes(index, settings)
    examples = reject_messages(work, range(len(part_infos)) if plan.num_unusable else (), MAX_EXAMPLES)
    examples = [*plan.examples, *examples][:MAX_EXAMPLES]
    if not plan.episodes:
        raise ValueError(nothing_left_message(source, plan, examples))
    shards = _write_files(pipeline, plan_files(plan.episodes, index, work))
    report = make_report(plan, index, settings, part_infos, len(parts), examples)
    meta = _meta(plan, index, report, shards, part_infos, settings)
    write_json(work, work.data_dir / META, meta)
    write_text(work, work.data_dir / CARD_FILE, render_card(meta))
    report["tokens"] = count_tokens(token_counters, work.data_dir)
    write_text(work, work.data_dir / REPORT_HTML, render_report(work.data_dir, report))
    write_json(work, work.data_dir / REPORT_FILE, report)


def _read_parts(
    pipeline: _Pipeline, jobs: list[SpillJob], episode_limit: EpisodeLimit
) -> list[dict[str, Any]]:
    """Pass 1: read each part that no earlier run read. Returns summaries, up to the last part needed."""
    done = [pipeline.work_dir.done_marker(job.part_index).exists() for job in jobs]
    new = [job for job, is_done in zip(jobs, done, strict=True) if not is_done]
    part_infos: list[dict[str, Any]] = []
    with closing(pipeline.map_jobs("reading parts", spill_part, new, len(new))) as results:
        for job, is_done in zip(jobs, done, strict=True):
            if not is_done:
                next(results)
            part_infos.append(read_json(pipeline.work_dir.done_marker(job.part_index)))
            if episode_limit.is_set:
                records = read_index(pipeline.work_dir, [job.part_index])
                if episode_limit.reached_after(job.part, records):
                    break
    return part_infos


def _write_files(pipeline: _Pipeline, write_plan: WritePlan) -> list[dict[str, Any]]:
    """Pass 2: write the shards. Returns their entries for meta.json."""
    shards = []
    num_shards = len(write_plan.spent_screens)
    results = pipeline.map_jobs("writing episodes", write_file, write_plan.shards, num_shards)
    for shard, spent in zip(results, write_plan.spent_screens, strict=True):
        shards.append(shard)
        for screens in spent:  # results come in order, so all earlier shards are complete
            screens.unlink(missing_ok=True)
    return shards


def _meta(
    plan: PrepPlan,
    index: RecordIndex,
    report: dict[str, Any],
    shards: list[dict[str, Any]],
    part_infos: list[dict[str, Any]],
    settings: PrepSettings,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "source_format": settings.format,
        **asdict(settings.images),
        "episodes": report["episodes"],
        "steps": report["steps"],
        "splits": {s: report["by_split"][s]["episodes"] for s in SPLITS},
        "subsets": {name: count["episodes"] for name, count in report["by_subset"].items()},
        "split_rule": settings.selection.rule.name,
        "fingerprint": data_fingerprint(plan.episodes, index),
        "shards": shards,
        "sources": part_infos,
    }


@contextmanager
def _user_errors(out: Path) -> Iterator[None]:
    """Report a user's mistake in one sentence, with exit status 2."""
    try:
        yield
    except ValueError as error:
        _exit_with_error(str(error))
    except OSError as error:
        disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        problem = f"no space left to write {out} ({error})" if disk_full else str(error)
        work_dir = out.with_name(f"{out.name}.part")
        remedy = f"; rerun the same command to resume in {work_dir}" if work_dir.is_dir() else ""
        _exit_with_error(f"{problem}{remedy}")


def _exit_with_error(message: str) -> NoReturn:
    stderr_console.print(f"error: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()

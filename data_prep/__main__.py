"""The whole stage in reading order: recorded episodes in, a folder of prepared data out.

find parts -> read, check and encode every step -> group into episodes -> split -> write -> report

Stopped at any moment, the same command goes on where it stopped and ends with the same bytes.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress

from data_prep.episodes import Plan, Stop, plan_episodes
from data_prep.files import is_url
from data_prep.index import Index, read_index, sentences
from data_prep.reader import Format, reader
from data_prep.record import Part
from data_prep.report import make_report, print_report
from data_prep.report_page import PAGE, write_page
from data_prep.settings import Codec, Gaps, Kept, Settings
from data_prep.spill import Job, spill_part
from data_prep.split import EXAMPLES, SPLITS, Choice, read_shares, read_split
from data_prep.tokens import Counter, count, counters
from data_prep.work import Work, discard, opened, publish, read_json, write_json
from data_prep.write import Files, fingerprint, plan_files, write_file
from uivlm.actions.language import Language
from uivlm.engine import Crew, Engine, crew
from uivlm.sentences.store import FORMAT, META, VERSION

REPORT = "report.json"
Result = TypeVar("Result")
INCOMPLETE = 3  # exit status: data is written, but without what could not be read

app = typer.Typer(add_completion=False)
screen = Console()
errors = Console(stderr=True)


@app.command()
def main(
    source: Annotated[
        str, typer.Argument(help="A file, or a folder with data anywhere below it; or a URL, gs://...")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    format: Annotated[Format, typer.Option(help="How the episodes were recorded: docs/formats.md.")] = "aitw",
    split: Annotated[
        Path | None, typer.Option(help="JSON: {train|validation|val|test: [episode ids]}.")
    ] = None,
    subset: Annotated[list[str] | None, typer.Option(help="Only this subset; may be said again.")] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(help="SUBSET=SHARE of its train episodes, such as google_apps=0.1; may be said again."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed, other episodes in a share.")] = 0,
    bins: Annotated[int, typer.Option(min=2, help="Coordinates in the words: 0..bins-1.")] = 100,
    gaps: Annotated[Gaps, typer.Option(help="What becomes of episodes with missing steps.")] = "keep-prefix",
    codec: Annotated[Codec, typer.Option(help="How screens are kept; png is lossless.")] = "jpeg",
    quality: Annotated[int, typer.Option(min=1, max=100, help="Of jpeg.")] = 90,
    height: Annotated[
        int | None, typer.Option(min=1, help="Taller screens are made so high (pixels).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many episodes, whole ones first.")
    ] = None,
    tokens: Annotated[
        list[str] | None, typer.Option(help="A recipe whose tokens the report counts; may be said again.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a core.")] = None,
    engine: Annotated[
        Engine, typer.Option(help="ray: many machines, with OUT on a disk they share.")
    ] = "pool",
    force: Annotated[bool, typer.Option("--force", help="Replace prepared data in OUT.")] = False,
) -> None:
    """Turn recorded episodes into prepared data: Parquet shards, meta.json, report.json and report.html.

    Exit status: 0 all was read, 2 nothing was written, 3 written, but a part of the source could not be read.
    """
    with _one_sentence(out):
        choice = Choice(read_split(split), frozenset(subset or ()), read_shares(share or ()), seed)
        kept = Kept(bins, codec, quality, height)
        settings = Settings(format, choice, kept, gaps, limit, tuple(tokens or ()))
        report = prepare(source, out, settings, workers or os.cpu_count() or 1, engine, force)
        print_report(report, screen)
        screen.print(f"Written to {out}; to look at: {out / PAGE}", markup=False, soft_wrap=True)
    if report["damaged"]:
        raise typer.Exit(INCOMPLETE)


def prepare(
    source: str | Path,
    out: Path,
    settings: Settings = Settings(),  # noqa: B008  # frozen
    workers: int = 1,
    engine: Engine = "pool",
    force: bool = False,
) -> dict[str, Any]:
    """The stage itself; returns its report. ValueError: one sentence, and nothing is left behind. OSError: the disk, a
    network or a worker failed; what is done is kept beside OUT, and the same call goes on there.
    """
    Language(settings.kept.bins)
    models = counters(settings.tokens)
    parts = reader(settings.format).find(str(source))
    if not is_url(str(source)) and Path(source).resolve().is_relative_to(out.resolve()):
        raise ValueError(f"the source {source} lies inside the output folder {out}: name another folder")
    with opened(out, settings, parts, force) as work:
        if not work.whole.exists():
            with Progress(console=errors, transient=True, refresh_per_second=2) as progress:
                try:
                    with crew(workers, engine) as hands:
                        _make(_Run(work, progress, hands), parts, str(source), settings, models)
                except ValueError:
                    discard(work)
                    raise
        publish(out, work)
    return read_json(out / REPORT)


@dataclass(frozen=True, slots=True)
class _Run:
    """Where and by whom the work is done."""

    work: Work
    progress: Progress
    hands: Crew

    def each(
        self, name: str, do: Callable[[Any], Result], jobs: Iterable[Any], count: int
    ) -> Generator[Result]:
        """`do(job)` for each job, in order, under a progress bar."""
        bar = self.progress.add_task(name, total=count)
        hands = self.hands if count > 1 else Crew()  # nobody is started for one job
        with closing(hands.in_order(do, jobs)) as results:
            for result in results:
                self.progress.advance(bar)
                yield result


def _make(
    run: _Run,
    parts: Sequence[Part],
    source: str,
    settings: Settings,
    models: Sequence[Counter],
) -> None:
    """All that OUT will hold, in the work folder."""
    work = run.work
    told = _read(run, [Job(i, part, work) for i, part in enumerate(parts)], Stop(settings))
    damaged = [each for each in told if "error" in each]
    if damaged and len(damaged) == len(told):
        raise ValueError(f"nothing of {source} can be read: {damaged[0]['error']}")
    index = read_index(work, range(len(told)))
    plan = plan_episodes(index, settings)
    if not plan.episodes:
        raise ValueError(_nothing_left(source, plan))
    written = _write(run, plan_files(plan.episodes, index, work))
    report = make_report(plan, index, settings, told, len(parts), _unusable(work, told, plan))
    write_json(work, work.data / META, _meta(plan, index, report, written, told, settings))
    report["tokens"] = count(models, work.data)
    write_page(work.data, report)
    write_json(work, work.data / REPORT, report)


def _read(run: _Run, jobs: list[Job], stop: Stop) -> list[dict[str, Any]]:
    """Pass 1: every part once, unless an earlier run did. What was read of each, up to the last one needed."""
    done = [run.work.told(job.number).exists() for job in jobs]
    new = [job for job, is_done in zip(jobs, done, strict=True) if not is_done]
    told: list[dict[str, Any]] = []
    with closing(run.each("reading parts", spill_part, new, len(new))) as results:
        for job, is_done in zip(jobs, done, strict=True):
            if not is_done:
                next(results)
            told.append(read_json(run.work.told(job.number)))
            if stop.limited and stop.after(read_index(run.work, [job.number])):
                break
    return told


def _write(run: _Run, planned: Files) -> list[dict[str, Any]]:
    """Pass 2: what meta.json says of each file."""
    written = []
    results = run.each("writing episodes", write_file, planned.files, len(planned.spent))
    for told, spent in zip(results, planned.spent, strict=True):
        written.append(told)
        for screens in spent:  # results come in order, so all files before are whole, too
            screens.unlink(missing_ok=True)
    return written


def _unusable(work: Work, told: Sequence[dict[str, Any]], plan: Plan) -> list[str]:
    """Of the steps that could not be used, what a person is told of the first."""
    if not plan.unusable:
        return []
    found = (sentence for number in range(len(told)) for sentence in sentences(work, number, EXAMPLES))
    return list(islice(found, EXAMPLES))


def _meta(
    plan: Plan,
    index: Index,
    report: dict[str, Any],
    files: list[dict[str, Any]],
    told: list[dict[str, Any]],
    settings: Settings,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        **asdict(settings.kept),
        "episodes": report["episodes"],
        "steps": report["steps"],
        "splits": {s: report["by_split"][s]["episodes"] for s in SPLITS},
        "subsets": {name: count["episodes"] for name, count in report["by_subset"].items()},
        "split_rule": settings.choice.rule.name,
        "fingerprint": fingerprint(plan.episodes, index),
        "shards": files,
        "sources": told,
    }


def _nothing_left(source: str, plan: Plan) -> str:
    dropped = plan.dropped_episodes or plan.dropped_steps
    why = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "no records"
    return f"no episode of {source} is left to write: {why}"


@contextmanager
def _one_sentence(out: Path) -> Iterator[None]:
    """A user's mistake is one sentence and exit status 2."""
    try:
        yield
    except ValueError as error:
        _say(str(error))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = f"there is no room left to write {out} ({error})" if full else str(error)
        kept = out.with_name(f"{out.name}.part")
        rest = f"; what is done is kept in {kept}, the same command goes on there" if kept.is_dir() else ""
        _say(f"{what}{rest}")


def _say(sentence: str) -> NoReturn:
    errors.print(f"error: {' '.join(sentence.split())}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()

"""The whole stage in reading order: recorded episodes in, a folder of prepared data out.

find shards -> read, check and encode every step -> group into episodes -> split -> write -> report
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from data_prep.episodes import Gaps, Plan, Stop, plan_episodes
from data_prep.pool import in_order
from data_prep.report import make_report, print_report
from data_prep.shards import absent_shards, find_shards
from data_prep.spill import Entry, Job, spill_shard
from data_prep.split import SPLITS, SplitRule, read_split
from data_prep.write import REPORT, fingerprint, new_folder, plan_files, write_file, write_json
from uivlm.actions.language import Language
from uivlm.sentences.store import FORMAT, META, VERSION

app = typer.Typer(add_completion=False)
screen = Console()
errors = Console(stderr=True)


@app.command()
def main(
    source: Annotated[Path, typer.Argument(help="A shard, or a folder with shards anywhere below it.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    format: Annotated[Literal["aitw"], typer.Option(help="How the episodes were recorded.")] = "aitw",
    split: Annotated[
        Path | None, typer.Option(help="JSON: {train|validation|val|test: [episode ids]}.")
    ] = None,
    bins: Annotated[int, typer.Option(min=2, help="Coordinates in the words: 0..bins-1.")] = 100,
    gaps: Annotated[Gaps, typer.Option(help="What becomes of episodes with missing steps.")] = "keep-prefix",
    codec: Annotated[
        Literal["jpeg", "png"], typer.Option(help="How screens are kept; png is lossless.")
    ] = "jpeg",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many episodes, whole ones first.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a core.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace prepared data in OUT.")] = False,
) -> None:
    """Turn recorded episodes into prepared data: Parquet shards, meta.json and report.json."""
    with _one_sentence():
        report = prepare(source, out, split, bins, gaps, codec, limit, workers or os.cpu_count() or 1, force)
        print_report(report, screen)
        screen.print(f"Written to {out}", markup=False)


def prepare(
    source: Path,
    out: Path,
    split: Path | None = None,
    bins: int = 100,
    gaps: Gaps = "keep-prefix",
    codec: str = "jpeg",
    limit: int | None = None,
    workers: int = 1,
    force: bool = False,
) -> dict[str, Any]:
    """The stage itself; returns its report. Raises ValueError with one sentence, and then leaves nothing behind."""
    Language(bins)
    rule = read_split(split)
    shards = find_shards(source)
    if source.resolve().is_relative_to(out.resolve()):
        raise ValueError(f"the source {source} lies inside the output folder {out}: name another folder")
    start = time.perf_counter()
    with new_folder(out, force) as folder, Progress(console=errors, transient=True) as progress:
        spill = folder / "spill"
        spill.mkdir()
        jobs = [Job(i, shard, spill, bins, codec) for i, shard in enumerate(shards)]
        entries, sources = _read(jobs, Stop(limit, rule.of), workers, progress)
        plan = plan_episodes(entries, rule.of, gaps, limit)
        if not plan.episodes:
            raise ValueError(_nothing_left(source, plan))
        files = _write(plan, folder, spill, workers, progress)
        shutil.rmtree(spill)
        report = make_report(plan, rule, gaps, (len(sources), len(shards)), absent_shards(shards))
        write_json(folder / REPORT, {**report, "seconds": round(time.perf_counter() - start, 1)})
        write_json(folder / META, _meta(plan, report, files, sources, bins, codec, rule))
    return report


def _read(
    jobs: list[Job], stop: Stop, workers: int, progress: Progress
) -> tuple[list[Entry], list[dict[str, str | int]]]:
    """Pass 1: every shard once."""
    entries: list[Entry] = []
    sources: list[dict[str, str | int]] = []
    task = progress.add_task("reading shards", total=len(jobs))
    with closing(in_order(spill_shard, jobs, workers)) as results:
        for spilled in results:
            entries += spilled.entries
            sources.append(spilled.source)
            progress.advance(task)
            if stop.after(spilled.entries):
                break
    return entries, sources


def _write(plan: Plan, folder: Path, spill: Path, workers: int, progress: Progress) -> list[dict[str, Any]]:
    """Pass 2: every row once."""
    jobs = plan_files(plan.episodes, folder, spill)
    task = progress.add_task("writing episodes", total=len(jobs))
    files: list[dict[str, Any]] = []
    for written in in_order(write_file, jobs, min(workers, len(jobs))):
        files.append(written)
        progress.advance(task)
    return files


def _meta(
    plan: Plan,
    report: dict[str, Any],
    files: list[dict[str, Any]],
    sources: list[dict[str, str | int]],
    bins: int,
    codec: str,
    rule: SplitRule,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "bins": bins,
        "codec": codec,
        "episodes": report["episodes"],
        "steps": report["steps"],
        "splits": {s: report["by_split"][s]["episodes"] for s in SPLITS},
        "subsets": {name: count["episodes"] for name, count in report["by_subset"].items()},
        "split_rule": rule.name,
        "fingerprint": fingerprint(plan.episodes),
        "shards": files,
        "sources": sources,
    }


def _nothing_left(source: Path, plan: Plan) -> str:
    why = ", ".join(f"{count} {reason}" for reason, count in plan.dropped_episodes.items()) or "no records"
    return f"no episode of {source} is left to write: {why}"


@contextmanager
def _one_sentence() -> Iterator[None]:
    """A user's mistake is one sentence and exit status 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()

"""The verbs that make, convert and publish data: simulate, record-miniwob, export-chat, publish.

Preparation has a command of its own: `python -m data_prep`.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from uivlm.cli.options import DataArgument, SeedOption, print_line

app = typer.Typer()
OutArgument = Annotated[Path, typer.Argument(help="New folder.")]


@app.command()
def simulate(
    out: OutArgument,
    episodes: Annotated[int, typer.Option(min=1, help="Number of train episodes.")] = 3000,
    test: Annotated[int, typer.Option(min=0, help="Number of test episodes.")] = 250,
    seed: SeedOption = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; default: one per core.")
    ] = None,
) -> None:
    """Write simulated episodes as shards in AITW's format, with split.json."""
    from data_prep.simulate import simulate as write_episodes

    write_episodes(out, episodes, test, seed, workers or os.cpu_count() or 1)
    print_line(f"{episodes + test} simulated episodes ({episodes} train, {test} test): {out}")


@app.command()
def record_miniwob(
    out: OutArgument,
    episodes: Annotated[int, typer.Option(min=1, help="Number of train episodes.")] = 280,
    test: Annotated[int, typer.Option(min=0, help="Number of test episodes.")] = 28,
    seed: SeedOption = 0,
    task: Annotated[list[str] | None, typer.Option(help="Name of a task; default: all; repeatable.")] = None,
) -> None:
    """Record an expert's episodes on MiniWoB++ pages as traces, with split.json."""
    from data_prep.record_miniwob import record_miniwob as record
    from uivlm.evaluation.miniwob.tasks import TASK_NAMES

    num_unsolved = record(out, episodes, test, seed, tuple(task or TASK_NAMES))
    print_line(f"{episodes + test} episodes ({episodes} train, {test} test): {out}")
    print_line(f"{num_unsolved} tasks left out: the expert did not solve them")


@app.command()
def export_chat(
    data: DataArgument,
    out: OutArgument,
    chat_format: Annotated[
        Literal["tags", "parts"], typer.Option(help="Images as <image> tags in the text, or as parts (TRL).")
    ] = "tags",
    max_screens: Annotated[int, typer.Option(min=1, help="Maximum number of screens in a sentence.")] = 8,
    max_past_actions: Annotated[
        int, typer.Option(min=0, help="Maximum number of older actions given as text.")
    ] = 8,
) -> None:
    """Export prepared data as chats for other trainers: LLaMA-Factory, ms-swift, TRL."""
    from data_prep.export_chat import export_chat as export
    from uivlm.episodes.dataset import PreparedData
    from uivlm.episodes.sentence import PromptFormat

    num_bins = int(PreparedData.open(data).meta["num_bins"])
    counts = export(data, out, PromptFormat(num_bins, max_screens, max_past_actions), chat_format)
    for split, count in counts.items():
        left_out = f", {count['left out']} left out: their text has <image>" if count["left out"] else ""
        print_line(f"{split}: {count['lines']} sentences{left_out}")
    print_line(f"chats: {out}")


@app.command()
def publish(
    data: DataArgument,
    repo_id: Annotated[str, typer.Argument(help="Dataset repository on the Hugging Face Hub: USER/NAME.")],
    public: Annotated[bool, typer.Option("--public", help="Public repository; default: private.")] = False,
) -> None:
    """Upload prepared data to the Hugging Face Hub, with its dataset card."""
    from data_prep.publish import push_to_hub

    print_line(f"published: {push_to_hub(data, repo_id, private=not public)}")

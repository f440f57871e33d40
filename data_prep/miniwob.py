"""Demonstrations on MiniWoB++ as traces: in numbers and a seed, out a folder to prepare with `--format trace`.

    python -m data_prep.miniwob OUT [--episodes 280] [--test 28] [--seed 0] [--task NAME]...
    python -m data_prep OUT DATA --format trace --split OUT/split.json

OUT/train and OUT/test hold a trace an episode, OUT/split.json says which is which. No seed of a page is in both.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from data_prep.folder import new_folder
from data_prep.formats.trace import find
from uivlm.devices.device import DeviceError
from uivlm.miniwob.demonstrate import demonstrate
from uivlm.miniwob.tasks import NAMES, Room, Split, room, tasks

MOST = 100_000  # episodes
SPARE = 10  # tasks that may be left out before anything is thought of it


def write(out: Path, episodes: int, test: int, seed: int, names: tuple[str, ...]) -> int:
    """Write the folder `out`; how many tasks were left out, because the expert did not solve them."""
    for name, number, least in (("--episodes", episodes, 1), ("--test", test, 0), ("--seed", seed, 0)):
        if not least <= number <= MOST:
            raise ValueError(f"{name} is {number}: it must lie between {least} and {MOST}")
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"there is no task {unknown[0]!r}: take some of {', '.join(NAMES)}")
    wanted: tuple[tuple[Split, int], ...] = (("train", episodes), ("test", test))
    with new_folder(out) as folder, room() as here:
        left = sum(_split(here, folder / split, split, number, seed, names) for split, number in wanted)
        ids = {split: _ids(folder / split) for split, number in wanted if number}
        (folder / "split.json").write_text(json.dumps(ids, indent=1) + "\n", "utf-8")
    return left


def _split(here: Room, folder: Path, split: Split, number: int, seed: int, names: tuple[str, ...]) -> int:
    """So many solved tasks; how many more there were."""
    left, endless = 0, tasks(split, seed, names)
    for i in track(range(number), f"Demonstrating, {split}", console=Console(stderr=True)):
        while not demonstrate(here, next(endless), folder / f"{i:05d}"):
            shutil.rmtree(folder / f"{i:05d}")
            left += 1
            if left > i + SPARE:
                raise ValueError(
                    f"the expert left out {left} of {i + left} tasks: is this another MiniWoB++ than 1.1?"
                )
    return left


def _ids(folder: Path) -> list[str]:
    return [trace["id"] for part in find(str(folder)) for trace in part.items]


def main(
    out: Annotated[Path, typer.Argument(help="the folder to make")],
    episodes: Annotated[int, typer.Option(help="episodes of the train split")] = 280,
    test: Annotated[int, typer.Option(help="episodes of the test split")] = 28,
    seed: Annotated[int, typer.Option(help="another seed, other episodes")] = 0,
    task: Annotated[list[str] | None, typer.Option(help="only this task; may be said again")] = None,
) -> None:
    """Write an expert's episodes on MiniWoB++ as traces."""
    try:
        left = write(out, episodes, test, seed, tuple(task or NAMES))
    except (ValueError, OSError, DeviceError) as error:
        typer.echo(f"miniwob: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(
        f"{episodes + test} episodes ({episodes} train, {test} test) in {out}; "
        f"{left} tasks were left out, which the expert did not solve"
    )


if __name__ == "__main__":
    typer.run(main)

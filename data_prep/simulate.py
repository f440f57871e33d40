"""Episodes of the simulated phone as AITW-format shards: in numbers and a seed, out a folder like a real source.

    python -m data_prep.simulate OUT [--episodes 3000] [--test 250] [--seed 0] [--workers N]

OUT/simulated/simulated-?????-of-????? are GZIP TFRecords, OUT/split.json says which episodes train and which test.
No goal, layout or episode of the one is in the other. The same numbers give the same bytes.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from data_prep.aitw import to_example
from data_prep.folder import new_folder
from data_prep.record import Record
from data_prep.tfrecord import write_shard
from uivlm.actions.aitw import to_aitw
from uivlm.devices.sim.expert import SUBSET, record
from uivlm.devices.sim.goals import Split
from uivlm.devices.sim.tasks import Task, task
from uivlm.episode import Episode, annotations

IN_SHARD = 50  # episodes
SEEDS = 1_000_000  # task seeds that belong to one --seed
Shard = tuple[str, tuple[Task, ...]]  # path, tasks


def simulate(out: Path, episodes: int, test: int, seed: int, workers: int) -> None:
    """Write the folder `out`. It must not exist, or be empty; it appears only when it is whole."""
    for name, number, least in (("--episodes", episodes, 1), ("--test", test, 0), ("--seed", seed, 0)):
        if not least <= number <= SEEDS:
            raise ValueError(f"{name} is {number}: it must lie between {least} and {SEEDS}")
    if workers < 1:
        raise ValueError(f"--workers is {workers}: at least 1 process must draw")
    with new_folder(out) as folder:
        _write(folder, episodes, test, seed, workers)


def _write(folder: Path, episodes: int, test: int, seed: int, workers: int) -> None:
    (folder / SUBSET).mkdir()
    wanted: tuple[tuple[Split, int], ...] = (("train", episodes), ("test", test))
    tasks = [task(seed * SEEDS + i, split) for split, number in wanted for i in range(number)]
    starts = range(0, len(tasks), IN_SHARD)
    shards = [
        (str(folder / SUBSET / f"{SUBSET}-{i:05d}-of-{len(starts):05d}"), tuple(tasks[at : at + IN_SHARD]))
        for i, at in enumerate(starts)
    ]
    with ProcessPoolExecutor(workers) as pool:
        written = track(
            pool.map(_shard, shards), "Simulating episodes", len(shards), console=Console(stderr=True)
        )
        ids = [episode_id for part in written for episode_id in part]
    split = {"train": ids[:episodes], "test": ids[episodes:]}
    (folder / "split.json").write_text(json.dumps(split, indent=1) + "\n", "utf-8")


def _shard(shard: Shard) -> list[str]:
    """Write one shard; the ids of its episodes."""
    path, tasks = shard
    ids: list[str] = []

    def examples() -> Iterator[bytes]:
        for each in tasks:
            episode = record(each)
            ids.append(episode.id)
            for t in range(len(episode.steps)):
                yield to_example(_record(episode, t))

    write_shard(path, examples())
    return ids


def _record(episode: Episode, t: int) -> Record:
    step = episode.steps[t]
    action_type, touch, lift, text = to_aitw(step.action)
    return Record(
        episode_id=episode.id,
        step_id=t,
        episode_length=len(episode.steps),
        goal=episode.goal,
        android_api_level=33,
        device_type="SIMULATED",
        activity="sim/sim.Phone",
        pixels=step.screen.pixels,
        annotations=annotations(step.screen.elements),
        action_type=action_type,
        touch=touch,
        lift=lift,
        text=text,
    )


def main(
    out: Annotated[Path, typer.Argument(help="the folder to make")],
    episodes: Annotated[int, typer.Option(help="episodes of the train split")] = 3000,
    test: Annotated[int, typer.Option(help="episodes of the test split")] = 250,
    seed: Annotated[int, typer.Option(help="another seed, other episodes")] = 0,
    workers: Annotated[int, typer.Option(help="processes that draw")] = os.cpu_count() or 1,
) -> None:
    """Write simulated episodes in AITW's format."""
    try:
        simulate(out, episodes, test, seed, workers)
    except (ValueError, OSError) as error:
        typer.echo(f"simulate: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{episodes + test} simulated episodes ({episodes} train, {test} test) in {out}")


if __name__ == "__main__":
    typer.run(main)

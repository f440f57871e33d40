"""Episodes of the simulated phone as shards in AITW's format: counts and a seed in, a source folder out.

OUT/simulated/simulated-?????-of-????? are GZIP TFRecords, and OUT/split.json has the ids of the train and
test episodes. No goal, layout or episode is in both. The same arguments give the same bytes.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track

from data_prep.formats.aitw import to_example
from data_prep.source import StepRecord
from data_prep.tfrecord import write_shard
from uivlm.actions.aitw import to_aitw
from uivlm.atomic import new_dir
from uivlm.devices.sim.expert import SUBSET, record_demonstration
from uivlm.devices.sim.goals import Split
from uivlm.devices.sim.tasks import TASKS_PER_SEED, SimTask, make_task
from uivlm.episodes.episode import Episode, to_annotations

EPISODES_PER_SHARD = 50
ShardJob = tuple[str, tuple[SimTask, ...]]  # path, tasks


def simulate(out: Path, num_train: int, num_test: int, seed: int, workers: int) -> None:
    """Write the folder `out`, which must be new or empty. It appears only when it is complete."""
    for name, value, minimum in (("episodes", num_train, 1), ("test", num_test, 0), ("seed", seed, 0)):
        if not minimum <= value <= TASKS_PER_SEED:
            raise ValueError(f"{name}: got {value}; expected {minimum} to {TASKS_PER_SEED}")
    if workers < 1:
        raise ValueError(f"workers: got {workers}; expected 1 or more")
    with new_dir(out) as folder:
        _write_shards(folder, num_train, num_test, seed, workers)


def _write_shards(folder: Path, num_train: int, num_test: int, seed: int, workers: int) -> None:
    (folder / SUBSET).mkdir()
    counts: tuple[tuple[Split, int], ...] = (("train", num_train), ("test", num_test))
    tasks = [make_task(seed * TASKS_PER_SEED + i, split) for split, count in counts for i in range(count)]
    starts = range(0, len(tasks), EPISODES_PER_SHARD)
    shards = [
        (
            str(folder / SUBSET / f"{SUBSET}-{i:05d}-of-{len(starts):05d}"),
            tuple(tasks[start : start + EPISODES_PER_SHARD]),
        )
        for i, start in enumerate(starts)
    ]
    with ProcessPoolExecutor(workers) as pool:
        written = track(
            pool.map(_write_shard, shards), "Simulating episodes", len(shards), console=Console(stderr=True)
        )
        ids = [episode_id for shard_ids in written for episode_id in shard_ids]
    split = {"train": ids[:num_train], "test": ids[num_train:]}
    (folder / "split.json").write_text(json.dumps(split, indent=1) + "\n", "utf-8")


def _write_shard(job: ShardJob) -> list[str]:
    """Write one shard. Returns the ids of its episodes."""
    path, tasks = job
    ids: list[str] = []

    def examples() -> Iterator[bytes]:
        for task in tasks:
            episode = record_demonstration(task)
            ids.append(episode.id)
            for t in range(len(episode.steps)):
                yield to_example(_to_record(episode, t))

    write_shard(path, examples())
    return ids


def _to_record(episode: Episode, t: int) -> StepRecord:
    step = episode.steps[t]
    return StepRecord(
        episode_id=episode.id,
        step_id=t,
        episode_length=len(episode.steps),
        goal=episode.goal,
        android_api_level=33,
        device_type="SIMULATED",
        activity="sim/sim.Phone",
        pixels=step.screen.pixels,
        annotations=to_annotations(step.screen.elements),
        action=step.action,
        aitw=to_aitw(step.action),
    )

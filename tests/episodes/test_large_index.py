"""AITW's size: 715,000 episodes of 5.7 million steps in 1,390 shards, whose indexes are generated."""

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.byte_counts import ByteProcessor
from uivlm.episodes import dataset, window_index
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.episode_index import EpisodeRef
from uivlm.episodes.sentence import PromptFormat
from uivlm.episodes.window_index import FIELDS, WindowIndex, open_window_index
from uivlm.training.dataset import WindowDataset

NUM_SHARDS, EPISODES_PER_SHARD, STEPS_PER_EPISODE = 1390, 515, 8
NUM_WINDOWS = 1_690_000
SECONDS = 2.0  # at most, for a process


def refs(path: Path, num_steps: int) -> Iterator[EpisodeRef]:
    split = path.name.partition("-")[0]
    for i in range(EPISODES_PER_SHARD):
        name = f"{path.name}{i:019d}"
        yield EpisodeRef(path.name, i * STEPS_PER_EPISODE, STEPS_PER_EPISODE, name, "general", split)


def all_windows(*_: Any) -> WindowIndex:
    return WindowIndex(*(np.arange(NUM_WINDOWS, dtype=np.int32) % 8192 for _ in FIELDS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = [f"{'train' if i < 1200 else 'test'}-{i:05d}.parquet" for i in range(NUM_SHARDS)]
    for name in names:
        (tmp_path / name).touch()
    shards = [{"file": name, "steps": EPISODES_PER_SHARD * STEPS_PER_EPISODE} for name in names]
    meta = {
        "format": "uivlm prepared data",
        "version": 3,
        "num_bins": 100,
        "fingerprint": "f",
        "shards": shards,
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta | {"splits": {"train": 1, "test": 1}, "subsets": {}}))
    return tmp_path


def open_all(folder: Path) -> tuple[PreparedEpisodes, WindowIndex]:
    episodes = PreparedData.open(folder).episodes("train")
    return episodes, open_window_index(episodes, "f", PromptFormat(), ByteProcessor())


@pytest.mark.exhaustive
def test_a_process_opens_the_indexes_in_two_seconds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(dataset, "find_episodes", refs)
        patched.setattr(window_index, "index_windows", all_windows)
        open_all(folder)
    started = time.perf_counter()
    episodes, index = open_all(folder)
    opened = time.perf_counter() - started
    assert int(episodes.num_steps.sum()) == 1200 * EPISODES_PER_SHARD * STEPS_PER_EPISODE
    assert episodes.refs[-1].shard == "train-01199.parquet"
    assert len(index) == NUM_WINDOWS
    sent = pickle.dumps(WindowDataset(episodes, index, PromptFormat(), ByteProcessor()))
    assert len(sent) < 2000
    started = time.perf_counter()
    there = pickle.loads(sent)
    received = time.perf_counter() - started
    assert len(there) == NUM_WINDOWS
    with capsys.disabled():
        print(f"\nopened in {opened:.2f} s; sent to a worker: {len(sent)} bytes, opened in {received:.3f} s")
    assert opened < SECONDS
    assert received < SECONDS

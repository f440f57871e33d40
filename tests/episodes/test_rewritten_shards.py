"""Shards that another tool wrote again are read right, or refused: never as other episodes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import made, record
from uivlm.episodes.dataset import PreparedData

Content = dict[str, tuple[str, list[int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 episodes of 1 to 7 steps; every screen has the shade of its episode and step."""
    root = tmp_path_factory.mktemp("rewritten")
    records = [record(f"{e}", t, e % 7 + 1, 10 * (e % 20) + t) for e in range(60) for t in range(e % 7 + 1)]
    write_shard(root / "general-00000-of-00001", records)
    made(root / "general-00000-of-00001", root / "data", image_format="png")
    return root / "data"


def content(data: Path) -> Content:
    """The goal and the shades of each episode's screens."""
    prepared = PreparedData.open(data)
    episodes = [e for split in prepared.meta["splits"] for e in prepared.episodes(split)]
    return {e.id: (e.goal, [int(s.screen.pixels[0, 0, 0]) for s in e.steps]) for e in episodes}


EXPECTED: Content = {
    str(e): (f"goal of {e}", [10 * (e % 20) + t for t in range(e % 7 + 1)]) for e in range(60)
}


def regroup(size: int) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pq.read_table(path), path, row_group_size=size)


def write_uneven_groups(path: Path) -> None:
    table = pq.read_table(path)
    ends = [0, *np.cumsum([5, 1, 40]).tolist(), len(table)]
    with pq.ParquetWriter(path, table.schema) as writer:
        for start, end in zip(ends, ends[1:], strict=False):
            writer.write_table(table.slice(start, end - start))


def write_by_datasets(path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the tool under test is not installed")
    cache = path.parent.parent / "cache"
    data = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(cache))
    data.to_parquet(str(path))


@pytest.mark.parametrize(
    "rewrite", [regroup(8), regroup(64), write_uneven_groups, write_by_datasets],
    ids=["groups of 8", "groups of 64", "uneven groups", "datasets"],
)  # fmt: skip
def test_the_same_rows_in_other_groups(rewrite: Callable[[Path], None], folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    for path in data.glob("*.parquet"):
        rewrite(path)
    assert content(data) == EXPECTED
    prepared = PreparedData.open(data)
    train = prepared.episodes("train")
    shown = train.with_screens(5, 0, 99)
    assert [int(s.screen.pixels[0, 0, 0]) for s in shown.steps] == EXPECTED[shown.id][1]
    assert len(train.encoded_screens(5)) == len(shown.steps)


def test_other_rows_under_an_index_are_refused(folder: Path, tmp_path: Path) -> None:
    """The shard is replaced after its index was read: its episodes are in the reverse order."""
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    train = PreparedData.open(data).episodes("train")
    (path,) = data.glob("train-*.parquet")
    table = pq.read_table(path)
    starts = [*np.flatnonzero(table["t"].to_numpy() == 0).tolist(), len(table)]
    episodes = [table.slice(a, b - a) for a, b in zip(starts, starts[1:], strict=False)]
    pq.write_table(pa.concat_tables(episodes[::-1]), path, row_group_size=16)
    for read in (train.__getitem__, train.without_screens, train.encoded_screens):
        with pytest.raises(ValueError, match="is not the shard that was indexed") as refused:
            read(0)
        assert "episode_index" in str(refused.value)

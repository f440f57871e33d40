"""Memory of both passes: little, whatever the size of the screens."""

import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest

from data_prep.formats.aitw import find, to_example
from data_prep.index import read_index
from data_prep.pass1_read import SpillJob, spill_part
from data_prep.settings import ImageSettings, PrepSettings
from data_prep.split import split_by_hash
from data_prep.tfrecord import write_shard
from data_prep.work_dir import WorkDir, check_settings
from tests.helpers.paths import ROOT
from tests.helpers.prepared_data import step

RECORDS = 800


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> WorkDir:
    folder = tmp_path_factory.mktemp("index")
    shard = folder / "general-00000-of-00001"
    ids = islice((f"{i}" for i in count() if split_by_hash(f"{i}") == "train"), RECORDS // 10)
    write_shard(shard, (to_example(step(name, t, 10)) for name in ids for t in range(10)))
    made = WorkDir(folder / "part")
    (made.path / "spill").mkdir(parents=True)
    check_settings(made, PrepSettings(images=ImageSettings(image_format="png")))
    (part,) = find(str(shard))
    spill_part(SpillJob(0, part, made))
    return made


@pytest.mark.slow
def test_no_screen_is_read_for_it(work: WorkDir) -> None:
    """5.7 million screens do not fit into memory."""
    on_disk = work.screens_path(0, "train").stat().st_size
    assert on_disk > RECORDS * 30_000
    code = (
        "import sys, pyarrow, pathlib; from data_prep.index import read_index; "
        "from data_prep.work_dir import WorkDir; "
        "index = read_index(WorkDir(pathlib.Path(sys.argv[1])), range(1)); "
        "print(len(index), len(list(index.episodes())), pyarrow.default_memory_pool().max_memory())"
    )  # a process of its own: the peak is counted from its start
    output = subprocess.run(
        [sys.executable, "-c", code, str(work.path)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    records, episodes, peak = map(int, output.split())
    assert (records, episodes) == (RECORDS, RECORDS // 10)
    assert 0 < peak < on_disk / 20


@pytest.mark.slow
def test_written_rows_are_let_go(work: WorkDir) -> None:
    """Of 30 MB of screens, gathered from a mapped file, a few are in memory at a time."""
    code = (
        "import resource, sys; from pathlib import Path; "
        "from data_prep.pass2_write import RowRef, ShardPlan, write_file; "
        "from data_prep.work_dir import WorkDir; work = WorkDir(Path(sys.argv[1])); "
        "row = lambda i: RowRef(0, i, i % 10); "
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024; "
        "work.data_dir.mkdir(exist_ok=True); "
        "write_file(ShardPlan('few', work, 'train', tuple(map(row, range(40))), 4)); before = peak(); "
        "info = write_file(ShardPlan('all', work, 'train', tuple(map(row, range(int(sys.argv[2])))), 80)); "
        "print(info['bytes'], peak() - before)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(work.path), str(RECORDS)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    written, grown = map(int, output.split())
    assert written > RECORDS * 30_000
    assert grown < written / 6


def test_what_outlives_the_files(work: WorkDir, tmp_path: Path) -> None:
    """Arrays of the index are no view of a file that may change or go."""
    other = WorkDir(tmp_path)
    (tmp_path / "spill").mkdir()
    other.spill_path(0).write_bytes(work.spill_path(0).read_bytes())
    index = read_index(other, range(1))
    expected = read_index(work, range(1))
    other.spill_path(0).write_bytes(b"")
    assert index.digest.tolist() == expected.digest.tolist()
    assert len(set(index.digest.tolist())) == RECORDS
    assert index.step_id.tolist() == [i % 10 for i in range(RECORDS)]

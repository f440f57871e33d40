"""What both passes hold in memory: little, whatever the screens take."""

import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest
from test_data_prep_resume import step

from data_prep.aitw import to_example
from data_prep.formats.aitw import find
from data_prep.index import read_index
from data_prep.settings import Kept, Settings
from data_prep.spill import Job, spill_part
from data_prep.split import by_hash
from data_prep.tfrecord import write_shard
from data_prep.work import Work, keep_settings

ROOT = Path(__file__).parents[1]
RECORDS = 800


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    folder = tmp_path_factory.mktemp("index")
    shard = folder / "general-00000-of-00001"
    ids = islice((f"{i}" for i in count() if by_hash(f"{i}") == "train"), RECORDS // 10)
    write_shard(shard, (to_example(step(name, t, 10)) for name in ids for t in range(10)))
    made = Work(folder / "part")
    (made.folder / "spill").mkdir(parents=True)
    keep_settings(made, Settings(kept=Kept(codec="png")))
    (part,) = find(str(shard))
    spill_part(Job(0, part, made))
    return made


def test_no_screen_is_read_for_it(work: Work) -> None:
    """5.7 million screens do not fit into memory."""
    on_disk = work.screens(0, "train").stat().st_size
    assert on_disk > RECORDS * 30_000
    code = (
        "import sys, pyarrow, pathlib; from data_prep.index import read_index; from data_prep.work import Work; "
        "index = read_index(Work(pathlib.Path(sys.argv[1])), range(1)); "
        "print(len(index), len(list(index.episodes())), pyarrow.default_memory_pool().max_memory())"
    )  # a process of its own: the peak is counted from its start
    told = subprocess.run(
        [sys.executable, "-c", code, str(work.folder)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    records, episodes, peak = map(int, told.split())
    assert (records, episodes) == (RECORDS, RECORDS // 10)
    assert 0 < peak < on_disk / 20


def test_written_rows_are_let_go(work: Work) -> None:
    """Of 30 MB of screens, gathered from a mapped file, a few are in memory at a time."""
    code = (
        "import resource, sys; from pathlib import Path; from data_prep.write import File, Row, write_file; "
        "from data_prep.work import Work; work = Work(Path(sys.argv[1])); "
        "row = lambda i: Row(0, i, i % 10); "
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024; "
        "work.data.mkdir(exist_ok=True); "
        "write_file(File('few', work, 'train', tuple(map(row, range(40))), 4)); before = peak(); "
        "told = write_file(File('all', work, 'train', tuple(map(row, range(int(sys.argv[2])))), 80)); "
        "print(told['bytes'], peak() - before)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(work.folder), str(RECORDS)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    written, grown = map(int, told.split())
    assert written > RECORDS * 30_000
    assert grown < written / 6


def test_what_outlives_the_files(work: Work, tmp_path: Path) -> None:
    """Arrays of the index are no view of a file that may change or go."""
    other = Work(tmp_path)
    (tmp_path / "spill").mkdir()
    other.spill(0).write_bytes(work.spill(0).read_bytes())
    index = read_index(other, range(1))
    expected = read_index(work, range(1))
    other.spill(0).write_bytes(b"")
    assert index.digest.tolist() == expected.digest.tolist()
    assert len(set(index.digest.tolist())) == RECORDS
    assert index.step_id.tolist() == [i % 10 for i in range(RECORDS)]

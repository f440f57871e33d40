"""Every format through the command: prepared data in which gold scores 100 % against itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_prep.__main__ import REPORT_FILE, app
from data_prep.pass1_read import SpillJob, spill_part
from data_prep.settings import PrepSettings
from data_prep.source import FORMATS
from data_prep.split import SPLITS
from data_prep.work_dir import WorkDir, check_settings, read_json
from tests.helpers.foreign_formats import MODULES, write_all
from tests.helpers.prepared_data import Recorded, fully_counted, refused
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Episode
from uivlm.evaluation.offline import evaluate
from uivlm.parallel import Executor, make_executor


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Executor]:
    """Two worker processes, for all formats: to start them takes longer than their work."""
    with make_executor(2) as executor:
        yield executor


def prepared(folder: Path) -> Sequence[Episode]:
    data = PreparedData.open(folder)
    return [episode for split in data.meta["splits"] for episode in data.episodes(split)]


@pytest.mark.parametrize("name", MODULES)
def test_gold_against_itself(name: str, sources: Path, tmp_path: Path) -> None:
    arguments = [
        str(sources / name),
        str(tmp_path / "out"),
        "--format",
        name,
        "--missing-steps",
        "keep",
        "--image-format",
        "png",
    ]
    result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert fully_counted(read_json(tmp_path / "out" / REPORT_FILE))
    episodes = prepared(tmp_path / "out")
    assert episodes
    verdicts = evaluate(Recorded(episodes), episodes, tmp_path / "verdicts.jsonl")
    assert all(verdict.correct for verdict in verdicts)
    assert len(verdicts) == sum(len(episode.steps) for episode in episodes)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_parts_cross_process_borders(name: str, sources: Path, two_workers: Executor, tmp_path: Path) -> None:
    part = MODULES[name].find(str(sources / name))[0]
    spilled = []
    for executor in (Executor(), two_workers):
        work = WorkDir(tmp_path / str(executor.workers))
        (work.path / "spill").mkdir(parents=True)
        check_settings(work, PrepSettings(name))  # type: ignore[arg-type]
        list(executor.map_ordered(spill_part, [SpillJob(i, part, work) for i in range(2)]))
        spilled += [
            (read_json(work.done_marker(i)), work.spill_path(i).read_bytes(), screens(work, i))
            for i in range(2)
        ]
    assert all(each == spilled[0] for each in spilled)
    assert spilled[0][0]["records"]


def screens(work: WorkDir, number: int) -> list[bytes]:
    return [work.screens_path(number, split).read_bytes() for split in SPLITS]


def test_every_format_of_the_command_is_here() -> None:
    assert {*MODULES, "aitw"} == set(FORMATS)


def test_what_auto_ui_leaves_is_refused(tmp_path: Path) -> None:
    (tmp_path / "general_texts_train.obj").write_bytes(b"\x80\x04.")
    sentence = refused(tmp_path, str(tmp_path), str(tmp_path.with_name("none")))
    assert "Auto-UI" in sentence

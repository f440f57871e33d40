"""Every format through the command: prepared data in which gold scores 100 % against itself."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded import MODULES, write_all
from test_data_prep import Recorded, fully_counted, refused
from typer.testing import CliRunner

from data_prep.__main__ import REPORT, app
from data_prep.reader import FORMATS
from data_prep.settings import Settings
from data_prep.spill import Job, spill_part
from data_prep.split import SPLITS
from data_prep.work import Work, keep_settings, read_json
from uivlm.engine import crew
from uivlm.episode import Episode
from uivlm.evaluation.benchmark import evaluate
from uivlm.sentences.store import Prepared


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_all(folder)
    return folder


def prepared(folder: Path) -> Sequence[Episode]:
    data = Prepared.open(folder)
    return [episode for split in data.meta["splits"] for episode in data.episodes(split)]


@pytest.mark.parametrize("name", MODULES)
def test_gold_against_itself(name: str, sources: Path, tmp_path: Path) -> None:
    arguments = [
        str(sources / name),
        str(tmp_path / "out"),
        "--format",
        name,
        "--gaps",
        "keep",
        "--codec",
        "png",
    ]
    result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert fully_counted(read_json(tmp_path / "out" / REPORT))
    episodes = prepared(tmp_path / "out")
    assert episodes
    verdicts = evaluate(Recorded(episodes), episodes, tmp_path / "verdicts.jsonl")
    assert all(verdict.correct for verdict in verdicts)
    assert len(verdicts) == sum(len(episode.steps) for episode in episodes)


@pytest.mark.parametrize("name", MODULES)
def test_parts_cross_process_borders(name: str, sources: Path, tmp_path: Path) -> None:
    part = MODULES[name].find(str(sources / name))[0]
    spilled = []
    for workers in (1, 2):
        work = Work(tmp_path / str(workers))
        (work.folder / "spill").mkdir(parents=True)
        keep_settings(work, Settings(name))  # type: ignore[arg-type]
        with crew(workers) as hands:
            list(hands.in_order(spill_part, [Job(i, part, work) for i in range(2)]))
        spilled += [(read_json(work.told(i)), work.spill(i).read_bytes(), screens(work, i)) for i in range(2)]
    assert all(each == spilled[0] for each in spilled)
    assert spilled[0][0]["records"]


def screens(work: Work, number: int) -> list[bytes]:
    return [work.screens(number, split).read_bytes() for split in SPLITS]


def test_every_format_of_the_command_is_here() -> None:
    assert {*MODULES, "aitw"} == set(FORMATS)


def test_what_auto_ui_leaves_is_refused(tmp_path: Path) -> None:
    (tmp_path / "general_texts_train.obj").write_bytes(b"\x80\x04.")
    sentence = refused(tmp_path, str(tmp_path), str(tmp_path.with_name("none")))
    assert "Auto-UI" in sentence

"""The verbs that make, convert and publish data: their success lines, and bad input that leaves nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from tests.helpers.command_line import Uivlm, refused
from tests.helpers.prepared_data import FIXTURE, STYLES, made
from uivlm.devices.device import DeviceError
from uivlm.devices.web import chromium
from uivlm.evaluation.miniwob import tasks as miniwob


def refused_without_trace(uivlm: Uivlm, *words: str) -> str:
    """The one sentence on stderr, of a command that leaves every file as it was."""
    before = files()
    sentence = refused(uivlm(*words))
    assert files() == before
    return sentence


def files() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path().rglob("*")}


@pytest.fixture
def full() -> str:
    """A folder in which a user has a file."""
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("years of work")
    return "full"


# -- simulate --------------------------------------------------------------------------------------


def test_simulate(uivlm: Uivlm) -> None:
    status, out, err = uivlm("simulate", "out", "--episodes", "3", "--test", "1", "--workers", "1")
    assert status == 0, err
    assert out == "4 simulated episodes (3 train, 1 test): out\n"
    split = json.loads(Path("out/split.json").read_text())
    assert {name: len(ids) for name, ids in split.items()} == {"train": 3, "test": 1}
    assert [path.name for path in Path().iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("full",), "full already exists and is not an empty folder"),
        (("out", "--episodes", "1000001"), "episodes: got 1000001; expected 1 to 1000000"),
        (("out", "--seed", "1000001"), "seed: got 1000001; expected 0 to 1000000"),
    ],
)
def test_simulate_refuses(uivlm: Uivlm, full: str, words: tuple[str, ...], message: str) -> None:
    assert message in refused_without_trace(uivlm, "simulate", *words)


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        ("simulate", "--episodes", "0"),
        ("simulate", "--test", "-1"),
        ("simulate", "--seed", "-1"),
        ("simulate", "--workers", "0"),
        ("record-miniwob", "--episodes", "0"),
        ("record-miniwob", "--test", "-1"),
        ("record-miniwob", "--seed", "-1"),
    ],
)
def test_numbers_below_the_minimum(uivlm: Uivlm, verb: str, option: str, value: str) -> None:
    """The option parser refuses them: its message names the option."""
    status, out, err = uivlm(verb, "out", option, value)
    assert (status, out) == (2, "")
    sentence = " ".join(err.replace("│", " ").split())  # without typer's box
    assert f"Invalid value for '{option}'" in sentence
    assert "greater than or equal to" in sentence
    assert "Traceback" not in err
    assert files() == {}


# -- record-miniwob --------------------------------------------------------------------------------


@pytest.mark.slow
def test_record_miniwob(uivlm: Uivlm) -> None:
    try:
        chromium.find_chromium()
        miniwob._pages_dir()
    except DeviceError as absent:
        pytest.skip(str(absent))
    tasks = ("--task", "enter-text", "--task", "click-test")
    status, out, err = uivlm("record-miniwob", "out", "--episodes", "2", "--test", "1", *tasks)
    assert status == 0, err
    assert out == ("3 episodes (2 train, 1 test): out\n0 tasks left out: the expert did not solve them\n")
    split = json.loads(Path("out/split.json").read_text())
    assert {name: len(ids) for name, ids in split.items()} == {"train": 2, "test": 1}


def test_record_miniwob_prints_the_unsolved_tasks(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command passes its options, all tasks by default."""
    calls: list[tuple[Any, ...]] = []

    def record(*arguments: Any) -> int:
        calls.append(arguments)
        return 7

    monkeypatch.setattr("data_prep.record_miniwob.record_miniwob", record)
    status, out, err = uivlm("record-miniwob", "out", "--episodes", "5", "--test", "2", "--seed", "3")
    assert status == 0, err
    assert out == ("7 episodes (5 train, 2 test): out\n7 tasks left out: the expert did not solve them\n")
    assert calls == [(Path("out"), 5, 2, 3, miniwob.TASK_NAMES)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("out", "--task", "fly"), "task: got 'fly'; expected some of click-test,"),
        (("out", "--episodes", "100001"), "episodes: got 100001; expected 1 to 100000"),
        (("full", "--task", "click-test"), "full already exists and is not an empty folder"),
    ],
)
def test_record_miniwob_refuses(uivlm: Uivlm, full: str, words: tuple[str, ...], message: str) -> None:
    assert message in refused_without_trace(uivlm, "record-miniwob", *words)


def test_record_miniwob_without_its_pages(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miniwob, "find_spec", lambda name: None)
    sentence = refused_without_trace(uivlm, "record-miniwob", "out", "--episodes", "1", "--test", "0")
    assert "MiniWoB++ is not installed" in sentence


# -- export-chat -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chat_format", ["tags", "parts"])
def test_export_chat(uivlm: Uivlm, small: Path, chat_format: str) -> None:
    status, out, err = uivlm(
        "export-chat", str(small / "data"), "out", "--chat-format", chat_format, "--max-screens", "2"
    )
    assert status == 0, err
    *splits, last = out.splitlines()
    assert last == "chats: out"
    num_lines = len(Path("out/train.jsonl").read_text().splitlines())
    assert num_lines > 1
    assert f"train: {num_lines} sentences" in splits
    first = json.loads(Path("out/train.jsonl").read_text().splitlines()[0])
    assert isinstance(first["messages"][0]["content"], str) == (chat_format == "tags")
    assert [path.name for path in Path().iterdir()] == ["out"]


def test_export_chat_counts_what_it_left_out(
    uivlm: Uivlm, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"train": {"lines": 3, "left out": 2}, "test": {"lines": 1, "left out": 0}}
    monkeypatch.setattr("data_prep.export_chat.export_chat", lambda *_: counts)
    assert uivlm("export-chat", str(small / "data"), "out")[1].splitlines() == [
        "train: 3 sentences, 2 left out: their text has <image>",
        "test: 1 sentences",
        "chats: out",
    ]


def test_export_chat_refuses(uivlm: Uivlm, small: Path, full: str) -> None:
    data = str(small / "data")
    assert "there is no folder none" in refused_without_trace(uivlm, "export-chat", "none", "out")
    assert "no meta.json" in refused_without_trace(uivlm, "export-chat", full, "out")
    assert "full already exists" in refused_without_trace(uivlm, "export-chat", data, full)
    before = files()
    for option, value in (("--max-screens", "0"), ("--chat-format", "xml"), ("--max-past-actions", "-1")):
        status, out, err = uivlm("export-chat", data, "out", option, value)
        assert (status, out) == (2, "")
        assert option in err
    assert files() == before


# -- publish ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data with its dataset card."""
    out = tmp_path_factory.mktemp("publish") / "data"
    made(FIXTURE, out, FIXTURE / STYLES[0])
    return out


@pytest.mark.parametrize(("flags", "private"), [((), True), (("--public",), False)])
def test_publish(
    uivlm: Uivlm, data: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], private: bool
) -> None:
    pytest.importorskip("datasets")
    repositories: list[tuple[str, bool]] = []
    uploads: list[Path] = []

    def create_repo(_: HfApi, repo_id: str, private: bool, **options: Any) -> str:
        repositories.append((repo_id, private))
        return f"https://hub/datasets/{repo_id}"

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", lambda _, **options: uploads.append(options["folder_path"]))
    status, out, err = uivlm("publish", str(data), "me/phones", *flags)
    assert status == 0, err
    assert out == "published: https://hub/datasets/me/phones\n"
    assert repositories == [("me/phones", private)]
    assert uploads == [data]


def test_publish_refuses(uivlm: Uivlm, data: Path, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "there is no folder none" in refused_without_trace(uivlm, "publish", "none", "me/phones")
    assert "no meta.json" in refused_without_trace(uivlm, "publish", full, "me/phones")
    assert "repo_id: got 'a/b/c'" in refused_without_trace(uivlm, "publish", str(data), "a/b/c")
    assert "offline mode" in refused_without_trace(uivlm, "publish", str(data), "me/phones")

"""Prepared data as conversations: every action once, after its screen, readable by other loaders."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep import export_chat
from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import FIXTURE, STYLES, made, record
from uivlm.actions.text import ActionText
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.sentence import PromptFormat

GOLDEN_SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    made(FIXTURE, folder / "out", split=FIXTURE / STYLES[0])
    return folder / "out"


def lines(out: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{split}.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", ["tags", "parts"])
@pytest.mark.parametrize("screens", [1, 2, 8])
def test_every_action_is_answered_once_after_its_screen(
    form: Any, screens: int, data: Path, tmp_path: Path
) -> None:
    export_chat.export_chat(data, tmp_path / "out", PromptFormat(100, screens), form)
    prepared = PreparedData.open(data)
    for split in GOLDEN_SPLITS:
        episodes = list(prepared.episodes(split))
        gold = [step.action for episode in episodes for step in episode.steps]
        answers, last_screens = [], []
        for each in lines(tmp_path / "out", split):
            num_screens = 0
            for turn in each["messages"]:
                text = turn["content"] if form == "tags" else "".join(p["text"] for p in turn["content"])
                shown = (
                    text.count("<image>")
                    if form == "tags"
                    else sum(p["type"] == "image" for p in turn["content"])
                )
                num_screens += shown
                if turn["role"] == "assistant":
                    assert shown == 0
                    answers.append(ActionText().parse(text))
                    last_screens.append(each["images"][num_screens - 1])
            assert num_screens == len(each["images"])
            assert [turn["role"] for turn in each["messages"]] == ["user", "assistant"] * (
                len(each["messages"]) // 2
            )
            assert episodes[int(Path(each["images"][0]).name[:6])].goal in json.dumps(
                each, ensure_ascii=False
            )
        assert answers == [ActionText().parse(ActionText().format(action)) for action in gold]
        kept = [
            screen for i in range(len(episodes)) for screen in prepared.episodes(split).encoded_screens(i)
        ]
        assert [(tmp_path / "out" / name).read_bytes() for name in last_screens] == kept


def test_the_datasets_library_reads_it(data: Path, tmp_path: Path) -> None:
    import datasets

    export_chat.export_chat(data, tmp_path / "out", PromptFormat(), "parts")
    read = datasets.load_dataset(
        "json",
        data_files=str(tmp_path / "out" / "train.jsonl"),
        cache_dir=str(tmp_path / "cache"),
        split="train",
    )
    assert read.to_list() == lines(tmp_path / "out", "train")
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
    assert info["uivlm_train"]["columns"] == {"messages": "messages", "images": "images"}
    assert sorted(info) == [f"uivlm_{split}" for split in sorted(GOLDEN_SPLITS)]


def test_words_that_look_like_a_screen_are_left_out_and_told(tmp_path: Path) -> None:
    shard = tmp_path / "general-00000-of-00001"
    write_shard(shard, [record("1", 0, 1, goal="type <image> here"), record("2", 0, 1)])
    split = tmp_path / "split.json"
    split.write_text('{"train": ["1", "2"]}')
    made(shard, tmp_path / "data", split=split)
    counts = export_chat.export_chat(tmp_path / "data", tmp_path / "out", PromptFormat(), "tags")
    assert counts["train"] == {"lines": 1, "left out": 1}
    assert len(lines(tmp_path / "out", "train")) == 1
    export_chat.export_chat(tmp_path / "data", tmp_path / "parts", PromptFormat(), "parts")
    assert "type <image> here" in lines(tmp_path / "parts", "train")[0]["messages"][0]["content"][0]["text"]


def test_bad_input_is_one_sentence(data: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for source, out, message in (
        (tmp_path / "none", tmp_path / "out", "there is no folder"),
        (data, tmp_path / "full", "not an empty folder"),
    ):
        with pytest.raises(ValueError, match=message):
            export_chat.export_chat(source, out, PromptFormat(), "tags")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]

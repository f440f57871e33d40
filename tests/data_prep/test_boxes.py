"""One rule for the boxes of every format: clipped by less than 1 %, else left out; a step is never lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_prep.__main__ import prepare
from data_prep.settings import PrepSettings
from data_prep.source import FormatName
from data_prep.tfrecord import write_shard
from tests.helpers.foreign_formats import (
    HEIGHT,
    SCREEN,
    Gold,
    GoldEpisode,
    put,
    save,
    write_aitz,
    write_jsonl,
    write_seeclick,
    write_showui,
)
from tests.helpers.prepared_data import all_episodes, fully_counted, record
from uivlm.actions.matching import matches
from uivlm.episodes.episode import Annotations, boxes_of

GOOD = [0.25, 0.5, 0.125, 0.25]
BOXES = [
    GOOD,
    [-0.0078125, 0.0, 0.5, 1.0078125],
    [0.5, 0.5, 0.5, 1.5],
    [40.0, 3.0, 9.0, 12.0],
    [-0.5, 0, 0, 0],
]
KEPT = [GOOD, [0.0, 0.0, 0.5, 1.0]]
EPISODE = GoldEpisode("general", "1", "g", (Gold(4, (0.5, 0.5), (0.5, 0.5)),))


def aitw(folder: Path) -> None:
    annotations = Annotations([side for box in BOXES for side in box], list("abcde"), ["TEXT"] * 5)
    write_shard(folder / "general-00000-of-00001", [record("1", 0, 1, annotations=annotations)])


def seeclick(folder: Path) -> None:
    write_seeclick(folder, [EPISODE])
    file = folder / "aitw_data_train.json"
    content = json.loads(file.read_text())
    content["general"][0][0]["annot_position"] = [side for box in BOXES for side in box]
    put(file, content)


def showui(folder: Path) -> None:
    write_showui(folder, [EPISODE])
    file = folder / "metadata" / "hf_train.json"
    rows = json.loads(file.read_text())
    put(file, [row | {"annot_position": [side for box in BOXES for side in box]} for row in rows])


def aitz(folder: Path) -> None:
    write_aitz(folder, [EPISODE])
    (file,) = folder.rglob("*.json")
    height, width, _ = SCREEN.shape
    boxes = [[y * height, x * width, h * height, w * width] for y, x, h, w in BOXES]
    labels = {"ui_text": json.dumps(list("abcde")), "ui_types": json.dumps(["TEXT"] * 5)}
    put(file, [row | labels | {"ui_positions": json.dumps(boxes)} for row in json.loads(file.read_text())])


def jsonl(folder: Path) -> None:
    write_jsonl(folder / "a.jsonl", [EPISODE])
    content = json.loads((folder / "a.jsonl").read_text())
    content["steps"][0] |= {"boxes": BOXES, "box_texts": list("abcde")}
    put(folder / "a.jsonl", content)


@pytest.mark.parametrize("write", [aitw, seeclick, showui, aitz, jsonl])
def test_every_format_has_the_same_rule(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write(tmp_path / "source")
    name: FormatName = write.__name__  # type: ignore[assignment]
    report = prepare(tmp_path / "source", tmp_path / "out", PrepSettings(format=name))
    assert fully_counted(report)
    assert (report["steps"], report["dropped_steps"]) == (1, {})
    assert report["notes"] == {"boxes left out": 3}
    (step,) = all_episodes(tmp_path / "out")["1"].steps
    assert boxes_of(step.screen).tolist() == KEPT
    assert [e.text for e in step.screen.elements][:2] in (["a", "b"], ["", ""])
    assert matches(step.action, step.action, boxes_of(step.screen))


@pytest.mark.parametrize(
    "bad", [None, "x", 3, [], [0, 0, 1], [0, 0, 1, True], [0, 0, 1, "1"], [10**400, 0, 0, 0], float("nan")]
)
def test_a_value_that_is_no_box(bad: Any, tmp_path: Path) -> None:
    save(tmp_path / "a.png", SCREEN)
    tap = {"step_id": 0, "image": "a.png", "action_type": 4, "touch_yx": [0.5, 0.5], "lift_yx": [0.5, 0.5]}
    steps = [tap | {"boxes": [bad, GOOD], "box_texts": ["bad", "good"]}]
    put(tmp_path / "a.jsonl", {"subset": "s", "episode_id": "e", "goal": "g", "steps": steps})
    report = prepare(tmp_path, tmp_path / "out", PrepSettings(format="jsonl"))
    assert report["notes"] == {"boxes left out": 1}
    (step,) = all_episodes(tmp_path / "out")["e"].steps
    assert [(e.y, e.height, e.text) for e in step.screen.elements] == [(0.25, 0.125, "good")]
    assert step.screen.pixels.shape[0] == HEIGHT

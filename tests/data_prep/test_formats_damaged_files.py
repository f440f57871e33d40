"""Foreign formats with bad files: one sentence, or steps that are counted as unusable."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_prep.formats import aitz, androidcontrol, jsonl, seeclick, showui, trace
from data_prep.tfrecord import CorruptShardError
from tests.helpers.foreign_formats import (
    HEIGHT,
    MODULES,
    SCREEN,
    WIDTH,
    example,
    found_in,
    golden,
    png,
    put,
    reasons,
    reject_reason,
    write_aitz,
    write_androidcontrol,
    write_trace,
)
from uivlm.actions.action import Finish, InvalidAction, Point, Press, Swipe, Tap, Type

DEEP = "[" * 100_000
HUGE = 10**400


@pytest.mark.parametrize("name", MODULES)
def test_a_source_that_is_none(tmp_path: Path, name: str) -> None:
    for source in (tmp_path / "absent", tmp_path):
        with pytest.raises(ValueError, match=str(source)) as error:
            MODULES[name].find(str(source))
        assert str(error.value).count("\n") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"general": 3}',
        '{"general": []}',
        "{}",
        DEEP,
        '{"\\ud800": [[]]}',
        "\ufeff{",
    ],
)
def test_annotations_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "aitw_data_train.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match="aitw_data_train.json"):
        seeclick.find(str(tmp_path))
    for name, module in (("hf_train.json", showui), ("a.jsonl", jsonl)):
        if name == "a.jsonl" and text.startswith(('{"', "{}")):
            continue  # a line that is an object
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(ValueError, match=name):
            module.find(str(tmp_path))
    file = tmp_path / "GENERAL-1" / "GENERAL-1.json"
    file.parent.mkdir()
    file.write_text(text, "utf-8")
    assert reasons(aitz, tmp_path) == ["damaged episode"]


FEATURES: list[Callable[[dict[str, Any]], Any]] = [
    lambda f: f.pop("episode_id"), lambda f: f.pop("goal"), lambda f: f.pop("actions"),
    lambda f: f.pop("screenshots"),
    lambda f: f.update(episode_id=[b"x"]), lambda f: f.update(episode_id=[1, 2]),
    lambda f: f.update(goal=[3]),
    lambda f: f.update(actions=[1.5]), lambda f: f.update(screenshots=[1, 2]),
    lambda f: f["screenshots"].pop(),
    lambda f: f.update(screenshot_heights=[1]), lambda f: f.update(screenshot_heights=[b"x"] * 2),
]  # fmt: skip


@pytest.mark.parametrize("damage", FEATURES)
def test_examples_that_are_no_episode(tmp_path: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    from data_prep.tf_example import make_example, parse_example

    good = example(0, "g", [{"action_type": "navigate_back"}], [png(tmp_path / "s.png", SCREEN)] * 2)
    features = parse_example(good)
    damage(features)
    write_androidcontrol(tmp_path, [good, make_example(features), b"\xff no protobuf", good])
    assert reasons(androidcontrol, tmp_path) == ["", "", "damaged episode", "damaged episode", "", ""]


def test_actions_and_screens_of_androidcontrol(tmp_path: Path) -> None:
    screen = png(tmp_path / "s.png", SCREEN)
    clicks: list[tuple[Any, Any, str]] = [
        (0, 0, ""), (WIDTH, HEIGHT, ""), (13.5, 1, ""), (WIDTH + 1, 0, "point off the screen"),
        (0, -1, "point off the screen"), (None, 1, "damaged step"), ("1", 1, "damaged step"),
        (True, 1, "damaged step"),
        (float("nan"), 1, "point off the screen"), (HUGE, 1, "point off the screen"),
    ]  # fmt: skip
    actions: list[Any] = [{"action_type": "click", "x": x, "y": y} for x, y, _ in clicks]
    other = [3, [], {}, {"action_type": 4}, {"action_type": "x" * 500}, {"action_type": "input_text"}]
    episode = example(0, "g", [*actions, *other], [screen] * 17)
    sizes = {"screenshot_heights": [HEIGHT, HEIGHT + 1], "screenshot_widths": [WIDTH, WIDTH]}
    write_androidcontrol(
        tmp_path, [episode, example(1, "g", [{"action_type": "wait"}], [b"", screen], **sizes)]
    )
    assert reasons(androidcontrol, tmp_path) == [
        *(reason for _, _, reason in clicks), *["damaged step"] * 4, "unsupported action", "damaged step", "",
        "unsupported action", "damaged step",
    ]  # fmt: skip


def test_files_of_androidcontrol(tmp_path: Path) -> None:
    file = write_androidcontrol(tmp_path, [example(0, "g", [], [png(tmp_path / "s.png", SCREEN)])])
    for content in (
        "[]",
        "{",
        '{"train": "12"}',
        '{"dev": [1]}',
        '{"train": [1], "test": [1]}',
        '{"train": [[]]}',
        DEEP,
    ):
        (tmp_path / "splits.json").write_text(content)
        with pytest.raises(ValueError, match="splits.json is not a split: expected train"):
            androidcontrol.find(str(tmp_path))
    (tmp_path / "splits.json").unlink()
    (part,) = androidcontrol.find(str(tmp_path))
    assert (part.path, part.stamp, part.items) == (str(file), str(file.stat().st_size), ())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CorruptShardError):
        list(androidcontrol.read(part))


def test_traces(tmp_path: Path) -> None:
    actions = [
        Tap(Point(0.1, 0.2)),
        Swipe(Point(0.8, 0.5), Point(0.2, 0.5)),
        Type("x"),
        Press("enter"),
        Finish("impossible"),
    ]
    steps = [(SCREEN, action) for action in actions]
    write_trace(tmp_path / "good", "g", steps, "impossible")
    write_trace(tmp_path / "unfinished", "g2", steps[:2], "max_steps")
    write_trace(tmp_path / "words", "g3", [(SCREEN, InvalidAction("hm", "no")), steps[-1]])
    (tmp_path / "broken").mkdir()
    shutil.copytree(tmp_path / "good", tmp_path / "killed" / "deeper")
    rows = tmp_path / "killed" / "deeper" / "trace.jsonl"
    rows.write_text(rows.read_text()[:-30])
    (tmp_path / "norun").mkdir()
    (tmp_path / "norun" / "trace.jsonl").write_text("{}")
    strange = tmp_path / "strange"
    write_trace(strange, "g4", steps)
    actions_json = [
        {"type": "long_press", "at": {"y": 0.1, "x": 0.1}}, {"type": "press", "key": "menu"}, None,
        {"type": "tap", "at": {"y": 2, "x": 0}}, {"type": "tap", "at": [0.5, 0.5, 0.5]},
    ]  # fmt: skip
    changed = [
        json.loads(item) | {"action": content}
        for item, content in zip(rows_of(strange), actions_json, strict=True)
    ]
    (strange / "trace.jsonl").write_text("\n".join(map(json.dumps, changed)))
    by_trace: dict[str, list[str]] = {}
    for part in trace.find(str(tmp_path)):
        folders = [item["folder"] for item in part.items for _ in item["rows"] or [0]]
        for name, handle in zip(folders, trace.read(part), strict=True):
            by_trace.setdefault(name, []).append(reject_reason(handle))
    assert by_trace == {
        "good": [""] * 5,
        "killed/deeper": ["", "", "", "", "damaged step"],
        "unfinished": ["unfinished run"] * 2,
        "norun": ["damaged episode"],
        "strange": [*["unsupported action"] * 3, "point off the screen", "unsupported action"],
        "words": ["unsupported action", ""],
    }


def rows_of(folder: Path) -> list[str]:
    return (folder / "trace.jsonl").read_text().splitlines()


def test_a_trace_is_named_by_its_content(tmp_path: Path) -> None:
    write_trace(tmp_path / "one", "g", [(SCREEN, Finish("complete"))])
    before = {handle.episode_id for handle in found_in(trace, tmp_path)}
    shutil.move(tmp_path / "one", tmp_path / "far" / "away")
    assert {handle.episode_id for handle in found_in(trace, tmp_path)} == before
    write_trace(tmp_path / "two", "another goal", [(SCREEN, Finish("complete"))])
    assert len({handle.episode_id for handle in found_in(trace, tmp_path)}) == 2


def test_aitz_strings_that_are_no_json(tmp_path: Path) -> None:
    write_aitz(tmp_path, golden()[:1])
    (file,) = tmp_path.rglob("GENERAL-0.json")
    good = json.loads(file.read_text("utf-8"))[:1]
    for key, value, reason in [
        ("ui_positions", [[1, 2, 3, 4]], "damaged step"), ("ui_positions", "[[1, 2, 3]", "damaged step"),
        ("ui_positions", DEEP, "damaged step"), ("ui_positions", "[[61, 0, 1, 1]]", "damaged step"),
        ("ui_positions", "3", "damaged step"), ("ui_text", '"ab"', "damaged step"),
        ("ui_positions", None, ""),
        ("result_touch_yx", [0.5, 0.5], "damaged step"),
        ("result_touch_yx", "[540, 200]", "point off the screen"),
        ("image_path", "../../x.png", "image outside the source"), ("image_path", "x/y.png", "image missing"),
        ("image_path", "moved/GENERAL-0_0.png", ""), ("episode_length", "4", "damaged step"),
    ]:  # fmt: skip
        put(file, [good[0] | {key: value}])
        assert reasons(aitz, tmp_path) == [reason], (key, value)

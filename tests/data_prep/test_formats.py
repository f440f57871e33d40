"""Foreign formats: golden episodes come back exactly, and hand-written steps are decoded as documented."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.formats import aitw, aitz, androidcontrol, jsonl, seeclick, showui, trace
from data_prep.source import StepHandle, StepRecord, UnusableStepError
from tests.helpers.foreign_formats import (
    HEIGHT,
    WIDTH,
    Gold,
    GoldEpisode,
    boxes_in,
    example,
    fields,
    found_in,
    golden,
    loaded,
    png,
    put,
    save,
    write_aitz,
    write_androidcontrol,
    write_jsonl,
    write_seeclick,
    write_showui,
    write_trace,
)
from tests.helpers.paths import ROOT
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.matching import matches

BLACK = np.zeros((HEIGHT, WIDTH, 3), np.uint8)


def check(
    read: list[tuple[StepHandle, StepRecord]],
    episodes: list[GoldEpisode],
    split: str | None,
    has_boxes: bool = True,
) -> None:
    """Every gold step is there, in order, with equal values."""
    gold = {(e.subset, e.id, i): (e, step) for e in episodes for i, step in enumerate(e.steps)}
    assert sorted(gold) == sorted(
        (handle.subset, record.episode_id, record.step_id) for handle, record in read
    )
    for handle, record in read:
        episode, step = gold[handle.subset, record.episode_id, record.step_id]
        assert (handle.episode_id, handle.step_id, handle.split) == (record.episode_id, record.step_id, split)
        assert (record.goal, record.episode_length) == (episode.goal, len(episode.steps))
        assert record.aitw == fields(step)
        assert matches(record.action, step.action, step.boxes)
        assert record.action == step.action
        assert boxes_in(record) == (step.boxes if has_boxes else [])
        assert record.pixels.dtype == np.uint8
        assert np.array_equal(record.pixels, step.pixels)


@pytest.mark.parametrize("root", ["", "aitw_images"])
@pytest.mark.parametrize(("label", "split"), [("train", "train"), ("val", "validation"), ("test", "test")])
def test_seeclick_returns(tmp_path: Path, root: str, label: str, split: str) -> None:
    write_seeclick(tmp_path, golden(), label, root)
    check(loaded(seeclick, tmp_path), golden(), split)
    check(loaded(seeclick, tmp_path / f"aitw_data_{label}.json"), golden(), split)


@pytest.mark.parametrize("whole_step", [True, False])
def test_showui_returns(tmp_path: Path, whole_step: bool) -> None:
    write_showui(tmp_path, golden(), "val", whole_step)
    read = loaded(showui, tmp_path)
    check(read, golden(), "validation")
    for episode in golden():  # though the file is back to front
        own = [record.step_id for _, record in read if record.episode_id == episode.id]
        assert own == list(range(len(episode.steps)))


@pytest.mark.parametrize("beside", [True, False])
def test_aitz_returns(tmp_path: Path, beside: bool) -> None:
    write_aitz(tmp_path, golden(), "test", beside)
    read = loaded(aitz, tmp_path)
    check(read, golden(), "test")
    assert {e.ui_type for _, record in read for e in record.annotations.elements} == {"ICON_HOME"}
    check(loaded(aitz, tmp_path / "test"), golden(), "test")


def test_jsonl_returns(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mine.jsonl", golden())
    check(loaded(jsonl, tmp_path), golden(), None)
    check(loaded(jsonl, tmp_path / "mine.jsonl"), golden(), None)


def test_trace_returns(tmp_path: Path) -> None:
    """Written by the rollout's trace writer; swipes that AITW counts as taps come back as taps."""
    for episode in golden():
        write_trace(
            tmp_path / "runs" / episode.subset, episode.goal, [(s.pixels, s.action) for s in episode.steps]
        )
    read = loaded(trace, tmp_path)
    by_goal = {e.goal: e for e in golden()}
    assert len(read) == sum(len(e.steps) for e in golden())
    assert len({handle.episode_id for handle, _ in read}) == len(by_goal)
    for handle, record in read:
        step = by_goal[record.goal].steps[record.step_id]
        assert handle.subset == "trace"
        assert handle.split is None
        assert record.action == step.action
        assert np.array_equal(record.pixels, step.pixels)


def test_androidcontrol_returns(tmp_path: Path) -> None:
    """All that this format supports: taps at whole pixels, text, back, home; `complete` at the end."""
    taps = [(0, 0), (WIDTH, HEIGHT), (13, 59), (26, 1), (5, 30)]  # x, y
    steps = [
        Gold(4, (y / HEIGHT, x / WIDTH), (y / HEIGHT, x / WIDTH), screen=4 * i)
        for i, (x, y) in enumerate(taps)
    ]
    steps += [
        Gold(3, text='北京 "x"', screen=40),
        Gold(5, screen=44),
        Gold(6, screen=48),
        Gold(10, screen=52),
    ]
    actions: list[dict[str, Any]] = [{"action_type": "click", "x": x, "y": y} for x, y in taps]
    actions += [{"action_type": "input_text", "text": steps[5].text}, {"action_type": "navigate_back"}]
    actions += [{"action_type": "navigate_home"}]
    screens = [png(tmp_path / "s.png", step.pixels) for step in steps]
    sizes = {"screenshot_heights": [HEIGHT] * len(steps), "screenshot_widths": [WIDTH] * len(steps)}
    write_androidcontrol(
        tmp_path / "a", [example(5, "买", actions, screens, **sizes), example(9, "g", actions, screens)]
    )
    episodes = [
        GoldEpisode("android_control", "5", "买", tuple(steps)),
        GoldEpisode("android_control", "9", "g", tuple(steps)),
    ]
    check(loaded(androidcontrol, tmp_path / "a"), episodes, None)
    put(tmp_path / "a" / "splits.json", {"train": [1], "validation": [5, 9], "test": []})
    check(loaded(androidcontrol, tmp_path / "a"), episodes, "validation")


def test_seeclick_by_hand(tmp_path: Path) -> None:
    """ "scroll down" shows what is below: the finger goes up. Points x before y, boxes y before x."""
    common = {
        "ep_id": "1",
        "goal": "g",
        "img_filename": "webshopping/1_0",
        "type_text": "",
        "action_addition": "x",
    }
    down = common | {"step": 0, "action_type_id": 4, "action_type_text": "scroll down", "annot_position": []}
    tap = common | {
        "step": 1,
        "action_type_id": 4,
        "action_type_text": "click",
        "annot_position": [0.1, 0.2, 0.3, 0.4],
    }
    down |= {"touch": [0.5, 0.8], "lift": [0.4, 0.2]}
    tap |= {"touch": [0.49, 0.61], "lift": [0.5, 0.62]}
    put(tmp_path / "aitw_data_test.json", {"webshopping": [[down, tap]]})
    save(tmp_path / "webshopping" / "1_0.png", BLACK)
    (one, scroll), (_, click) = loaded(seeclick, tmp_path)
    assert (one.subset, one.split, scroll.episode_length) == ("web_shopping", "test", 2)
    assert scroll.action == Swipe(Point(y=0.8, x=0.5), Point(y=0.2, x=0.4))
    assert click.action == Tap(Point(y=0.61, x=0.49))
    assert click.aitw[2] == (0.62, 0.5)
    (box,) = click.annotations.elements
    assert (box.y, box.x, box.height, box.width, box.text, box.ui_type) == (0.1, 0.2, 0.3, 0.4, "", "TEXT")


def test_aitz_by_hand(tmp_path: Path) -> None:
    """The first box of CoAT's published example is (54, 17, 8, 12) on a screen of 600 x 270."""
    step = {
        "episode_id": "523638528775825151", "episode_length": 4, "step_id": 1, "instruction": "open Clock",
        "ui_positions": "[[54, 17, 8, 12]]", "ui_text": "[\"M\"]", "ui_types": "[\"TEXT\"]",
        "result_action_type": 4,
        "result_action_text": "", "result_touch_yx": "[0.541063666343689, 0.5073748230934143]",
        "result_lift_yx": "[0.001115699764341116, 0.5788536071777344]", "coat_action_desc": "scroll up",
        "image_path": "google_apps/GOOGLE_APPS-5/GOOGLE_APPS-5_1.png",
    }  # fmt: skip
    put(tmp_path / "train" / "google_apps" / "GOOGLE_APPS-5" / "GOOGLE_APPS-5.json", [step])
    save(
        tmp_path / "train" / "google_apps" / "GOOGLE_APPS-5" / "GOOGLE_APPS-5_1.png",
        np.zeros((600, 270, 3), np.uint8),
    )
    ((handle, record),) = loaded(aitz, tmp_path)
    assert (handle.subset, handle.split, record.episode_length) == ("google_apps", "train", 4)
    assert record.action == Swipe(
        Point(0.541063666343689, 0.5073748230934143), Point(0.001115699764341116, 0.5788536071777344)
    )
    assert boxes_in(record) == [[54 / 600, 17 / 270, 8 / 600, 12 / 270]]
    assert record.annotations.texts[0] == "M"


def test_androidcontrol_by_hand(tmp_path: Path) -> None:
    """Pixels (x, y) of a screen of 1080 x 2400, an RGBA picture as the real ones are."""
    save(tmp_path / "s.png", np.zeros((2400, 1080, 3), np.uint8), "RGBA")
    screen = (tmp_path / "s.png").read_bytes()
    swipe = {"action_type": "swipe", "coordinate": [540.0, 1800.0], "coordinate2": [540.0, 600.0]}
    actions = [
        {"action_type": "click", "x": 540, "y": 390}, {"action_type": "scroll", "direction": "down"},
        {"action_type": "open_app", "app_name": "Zoho"}, {"action_type": "wait"},
        {"action_type": "long_press", "x": 1, "y": 2}, {"action_type": "input_text", "text": "x"},
        {"action_type": "type", "text": "x", "x": 1, "y": 2}, {"action_type": "navigate_back"}, swipe,
        {"action_type": "click", "x": 390, "y": 2401}, {"action_type": "swipe", "direction": "up"},
    ]  # fmt: skip
    write_androidcontrol(tmp_path, [example(0, "g", actions, [screen] * 12)])
    outcomes: list[Any] = []
    for handle in found_in(androidcontrol, tmp_path):
        try:
            outcomes.append(handle.load().action)
        except UnusableStepError as error:
            outcomes.append(error.reason)
    assert outcomes == [
        Tap(Point(0.1625, 0.5)), "swipe without points", "unsupported action", "unsupported action",
        "unsupported action", Type("x"), "unsupported action", Press("back"),
        Swipe(Point(0.75, 0.5), Point(0.25, 0.5)),
        "point off the screen", "swipe without points", Finish("complete"),
    ]  # fmt: skip


def test_the_documented_example_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    example_text = page.partition("```json\n")[2].partition("```")[0]
    (tmp_path / "mine.jsonl").write_text(example_text.replace("\n", ""), "utf-8")
    for i in range(3):
        save(tmp_path / "screens" / f"42-{i}.png", BLACK)
    read = loaded(jsonl, tmp_path)
    assert [record.action for _, record in read] == [
        Swipe(Point(0.8, 0.5), Point(0.2, 0.5)), Type("clock"), Finish("complete"),
    ]  # fmt: skip
    assert {(handle.subset, handle.episode_id, handle.split) for handle, _ in read} == {
        ("mine", "42", "train")
    }
    assert read[0][1].annotations.texts == ["Apps"]


def test_autoui_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Auto-UI's pickles are not supported"):
        aitw.refuse_autoui(str(tmp_path / "general_blip_train.obj"))

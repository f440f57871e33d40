"""Foreign formats: real recorded steps, written in each format by its documented rules, come back."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_prep.formats import aitz, androidcontrol, seeclick
from data_prep.source import StepRecord, UnusableStepError
from tests.helpers.foreign_formats import boxes_in, example, found_in, loaded, put, write_androidcontrol
from tests.helpers.paths import REAL

REAL_STEPS = REAL / "episodes.jsonl"
REAL_ACTIONS = REAL / "androidcontrol_actions.jsonl.gz"
real = pytest.mark.skipif(not REAL_STEPS.exists(), reason=f"the real recorded steps are not at {REAL}")


def real_steps() -> list[dict[str, Any]]:
    with REAL_STEPS.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check_real(record: StepRecord, row: dict[str, Any], exact: bool) -> None:
    """A record against the recorded AITW values. Boxes in whole pixels come back where they were whole."""
    number, touch, lift = row["results/action_type"], row["results/yx_touch"], row["results/yx_lift"]
    assert record.aitw == (number, tuple(touch), tuple(lift), row["results/type_action"])
    assert (record.goal, record.step_id) == (row["goal_info"], row["step_id"])
    boxes = row["image/ui_annotations_positions"]
    assert np.allclose(
        np.reshape(boxes_in(record), (-1, 4)), np.reshape(boxes, (-1, 4)), rtol=0, atol=0 if exact else 1e-6
    )
    with Image.open(REAL / row["image"]) as picture:
        assert np.array_equal(record.pixels, np.array(picture.convert("RGB")))
    assert record.pixels.shape == (row["image/height"], row["image/width"], 3)


@real
@pytest.mark.parametrize("format", ["seeclick", "aitz"])
def test_real_steps_of_aitw(tmp_path: Path, format: str) -> None:
    """SeeClick: touch [x, y], flat boxes. AITZ: JSON in strings, boxes in pixels."""
    rows = [row for row in real_steps() if row["source"].startswith("aitw")]
    assert len(rows) == 9
    episodes: dict[str, list[Any]] = {}
    for row in rows:
        (ty, tx), (ly, lx) = row["results/yx_touch"], row["results/yx_lift"]
        height, width = row["image/height"], row["image/width"]
        name, boxes = row["episode_id"], row["image/ui_annotations_positions"]
        theirs = {
            "ep_id": name, "step": row["step_id"], "img_filename": f"general/{name}_{row['step_id']}",
            "goal": row["goal_info"], "action_type_id": row["results/action_type"], "touch": [tx, ty],
            "lift": [lx, ly], "type_text": row["results/type_action"],
            "annot_position": [v for box in boxes for v in box],
        } if format == "seeclick" else {
            "episode_id": name, "episode_length": row["episode_length"], "step_id": row["step_id"],
            "instruction": row["goal_info"], "result_action_type": row["results/action_type"],
            "result_action_text": row["results/type_action"], "result_touch_yx": f"[{ty}, {tx}]",
            "result_lift_yx": f"[{ly}, {lx}]",
            "image_path": f"general/GENERAL-{name}/GENERAL-{name}_{row['step_id']}.png",
            "ui_positions": json.dumps([[round(v * s) for v,
            s in zip(b, (height, width) * 2, strict=True)] for b in boxes]),
            "ui_text": json.dumps(row["image/ui_annotations_text"]),
            "ui_types": json.dumps(row["image/ui_annotations_ui_types"]),
        }  # fmt: skip
        episodes.setdefault(name, []).append(theirs)
        image = theirs.get("image_path") or f"{theirs['img_filename']}.png"
        (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / image).write_bytes((REAL / row["image"]).read_bytes())
    if format == "seeclick":
        put(tmp_path / "aitw_data_train.json", {"general": list(episodes.values())})
    for name, steps in episodes.items():
        if format == "aitz":
            put(tmp_path / "general" / f"GENERAL-{name}" / f"GENERAL-{name}.json", steps)
    read = {
        (r.episode_id, r.step_id): r for _, r in loaded(seeclick if format == "seeclick" else aitz, tmp_path)
    }
    for row in rows:
        record = read[row["episode_id"], row["step_id"]]
        check_real(record, row, exact=format == "seeclick")
        if format == "aitz":
            assert record.annotations.texts == row["image/ui_annotations_text"]


@real
def test_real_episodes_of_androidcontrol(tmp_path: Path) -> None:
    rows = [row for row in real_steps() if row["source"].startswith("AndroidControl")]
    episodes: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        episodes.setdefault(row["episode_id"], []).append(row)
    written = []
    for name, steps in episodes.items():
        screens = [(REAL / step["image"]).read_bytes() for step in steps]
        screens.append(screens[-1])  # the last screen is not among the files
        number = int(name.removeprefix("androidcontrol-"))
        written.append(example(number, steps[0]["goal_info"], [s["source_action"] for s in steps], screens))
    write_androidcontrol(tmp_path, written)
    read = {(handle.episode_id, handle.step_id): handle for handle in found_in(androidcontrol, tmp_path)}
    assert len(read) == len(rows) + len(episodes)
    for row in rows:
        handle = read[row["episode_id"].removeprefix("androidcontrol-"), row["step_id"]]
        if row["results/action_type"] is None:
            with pytest.raises(UnusableStepError):
                handle.load()
        else:
            check_real(handle.load(), row | {"image/ui_annotations_positions": []}, exact=True)


@pytest.mark.skipif(not REAL_ACTIONS.exists(), reason=f"the real recorded actions are not at {REAL}")
def test_real_actions_of_androidcontrol() -> None:
    """4,295 recorded actions, their words put back into the dataset's own; screens of the stated size."""
    with gzip.open(REAL_ACTIONS, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    agreed = refused = 0
    for row in rows:
        action, (height, width) = original(row["source_action"]), row["screen_hw"] or (None, None)
        if row["results/action_type"] is None:
            with pytest.raises(UnusableStepError, match="AITW has no action"):
                androidcontrol._reject_unsupported(action, "here")
            refused += 1
        elif row["aitw_expressible"]:
            decoded = androidcontrol._decode_action(action, height or 1, width or 1, "here")
            action_type, touch, lift, text = decoded[1]
            assert (action_type, text) == (row["results/action_type"], row["results/type_action"])
            assert np.allclose(
                [touch, lift], [row["results/yx_touch"], row["results/yx_lift"]], rtol=0, atol=5e-6
            )
            agreed += 1
    assert (agreed, refused) == (169 + 1719 + 305 + 650, 280 + 312 + 3)


def original(action: dict[str, Any]) -> dict[str, Any]:
    """The packaged form of an action (`action`, `coordinate`) in the words of AndroidControl's README."""
    match action:
        case {"action": "click", "coordinate": [x, y]}:
            return {"action_type": "click", "x": x, "y": y}
        case {"action": "long_press", "coordinate": [x, y]}:
            return {"action_type": "long_press", "x": x, "y": y}
        case {"action": "type", "text": text}:
            return {"action_type": "input_text", "text": text}
        case {"action": "open", "text": app}:
            return {"action_type": "open_app", "app_name": app}
        case {"action": "system_button", "button": "Back"}:
            return {"action_type": "navigate_back"}
    return {"action_type": action["action"], **action}

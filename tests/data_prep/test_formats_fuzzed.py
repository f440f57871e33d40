"""Foreign formats with random values in their JSON: usable steps, or steps with a known reason."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from data_prep.formats import androidcontrol, trace, validation
from tests.helpers.foreign_formats import (
    MODULES,
    SCREEN,
    example,
    found_in,
    png,
    reject_reason,
    write_all,
    write_androidcontrol,
)

REASONS = {
    validation.UNSUPPORTED_ACTION, validation.NO_POINTS, validation.OFF_SCREEN, validation.MISSING_IMAGE,
    validation.BAD_IMAGE,
    validation.OUTSIDE_SOURCE, validation.BAD_STEP, validation.BAD_EPISODE, trace.BAD_RUN,
}  # fmt: skip
HUGE = 10**400


def fuzzed(value: Any, chance: random.Random) -> Any:
    """A copy with one value somewhere replaced by something else, or left out."""
    strange = [
        None,
        True,
        -1,
        0,
        4,
        3,
        2**63,
        HUGE,
        1e308,
        float("nan"),
        "",
        "x",
        "\ud800",
        "../x",
        [],
        {},
        [[]],
        [1],
    ]
    value = copy.deepcopy(value)
    holder, key = None, None
    node = value
    while isinstance(node, (dict, list)) and node and (holder is None or chance.random() < 0.8):
        holder, key = node, chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        node = node[key]
    if holder is None:
        return chance.choice(strange)
    if chance.random() < 0.15:
        del holder[key]
    else:
        holder[key] = chance.choice(strange)
    return value


def survives(module: Any, source: Path) -> int:
    """The number of errors. Only a ValueError from `find`, or usable and unusable steps, are allowed."""
    try:
        handles = list(found_in(module, source))
    except ValueError:
        return 1
    for item in handles:
        item.subset.encode(), item.episode_id.encode()
        assert type(item.step_id) is int
        assert 0 <= item.step_id < 2**63
    outcomes = [reject_reason(item) for item in handles]
    assert set(outcomes) <= REASONS | {""}
    return len(outcomes) - outcomes.count("")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("seeclick", "aitw_data_train.json"), ("showui", "metadata/hf_train.json"),
        ("aitz", "train/*/*/*-0.json"),
        ("jsonl", "a.jsonl"), ("trace", "1/trace.jsonl"), ("trace", "1/run.json"),
    ],
)  # fmt: skip
def test_fuzzed_json(tmp_path: Path, name: str, pattern: str) -> None:
    write_all(tmp_path)
    (file,) = (tmp_path / name).glob(pattern)
    lines = file.read_text("utf-8").splitlines() if file.suffix == ".jsonl" else [file.read_text("utf-8")]
    good = [json.loads(item) for item in lines]
    chance, refused = random.Random(0), 0
    for _ in range(60):
        bad = good
        for _ in range(chance.choice((1, 1, 8))):
            bad = fuzzed(bad, chance)
        rows = bad if isinstance(bad, list) else [bad]
        file.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
        refused += survives(MODULES[name], tmp_path / name)
    assert refused


def test_fuzzed_actions_of_androidcontrol(tmp_path: Path) -> None:
    swipe = {"action_type": "swipe", "coordinate": [1, 50], "coordinate2": [1.5, 2]}
    good = [{"action_type": "click", "x": 1, "y": 2}, {"action_type": "input_text", "text": "x"}, swipe]
    chance = random.Random(1)
    actions = [fuzzed(chance.choice(good), chance) for _ in range(200)]
    write_androidcontrol(tmp_path, [example(0, "g", actions, [png(tmp_path / "s.png", SCREEN)] * 201)])
    assert survives(androidcontrol, tmp_path) > 50

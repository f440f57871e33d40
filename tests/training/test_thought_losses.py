"""Training with thoughts: a class of their own in losses, and data without them is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.tiny_models import base, episode, prepare, recipe
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Episode, StepNotes
from uivlm.recipe import PromptArgs, Recipe
from uivlm.training.train import train


def thoughtful(seed: int) -> Episode:
    plain = episode(seed, 3)
    notes = StepNotes(thought="because it comes next", instruction="do it")
    return replace(plain, steps=tuple(replace(step, notes=notes) for step in plain.steps))


def thinking(recipe: Recipe, **data: object) -> Recipe:
    return replace(
        recipe,
        prompt=PromptArgs(100, 4, 3, "thought"),
        data=replace(recipe.data, **data),  # type: ignore[arg-type]
    )


def test_thoughts_have_their_own_losses(tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", [thoughtful(seed) for seed in range(4)], validation=1)
    small = recipe(base(tmp_path / "base"), data)
    out = train(thinking(small, eval_episodes=1), tmp_path / "out")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    step = next(line for line in lines if "loss_thought" in line)
    of_actions = [
        value
        for name, value in step.items()
        if name.startswith("loss_") and name not in ("loss_thought", "loss_macro")
    ]
    assert step["loss_macro"] == pytest.approx(sum(of_actions) / len(of_actions))
    validated = next(line for line in lines if "eval_loss" in line)
    assert validated["eval_loss_thought"] > 0
    assert 0 <= validated["eval_partial_match"] <= 1
    summary = json.loads((out / "card.json").read_text())["data"][0]
    assert summary["windows"] == summary["steps"] == 9, "one sentence for each step"


def test_data_without_thoughts_is_refused(tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", [episode(0, 3)])
    with pytest.raises(ValueError, match=r"prompt\.thoughts: got 'thought', but no step in .* has such text"):
        train(thinking(recipe(base(tmp_path / "base"), data)), tmp_path / "out")


def test_data_of_the_last_release_is_read_without_notes(tmp_path: Path) -> None:
    """Its files do not have the columns."""
    import pyarrow.parquet as pq

    folder = prepare(tmp_path / "data", [thoughtful(0)])
    assert PreparedData.open(folder).has_notes("instruction")
    assert PreparedData.open(folder).episodes("train")[0].steps[0].notes.instruction == "do it"
    file, meta = folder / "train-0.parquet", json.loads((folder / "meta.json").read_text())
    columns = ["screen_description", "thought", "instruction", "result"]
    pq.write_table(pq.read_table(file).drop_columns(columns), file, row_group_size=16)
    (folder / "meta.json").write_text(json.dumps(meta | {"version": 2}))
    old = PreparedData.open(folder)
    assert not old.has_notes("instruction")
    assert [step.notes for step in old.episodes("train")[0].steps] == [StepNotes()] * 3

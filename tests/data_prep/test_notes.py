"""Notes of annotators: from AITZ, AndroidControl and JSON Lines through prepared data into episodes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_prep.__main__ import app
from data_prep.formats import aitz, androidcontrol, jsonl
from tests.helpers.foreign_formats import (
    SCREEN,
    example,
    golden,
    loaded,
    png,
    reasons,
    write_aitz,
    write_androidcontrol,
    write_jsonl,
)
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import NO_NOTES, StepNotes

WHOLE = StepNotes("a list", "I must\nscroll", "scroll down", "more rows")
COAT = dict(
    zip(
        ("coat_screen_desc", "coat_action_think", "coat_action_desc", "coat_action_result"),
        ("a list", " I must\nscroll ", "scroll down", "more rows"),
        strict=True,
    )
)


def edit(file: Path, **changes: object) -> None:
    """Change the first step of an AITZ file."""
    steps = json.loads(file.read_text())
    file.write_text(json.dumps([steps[0] | changes, *steps[1:]]))


def test_aitz_notes_reach_episodes(tmp_path: Path) -> None:
    write_aitz(tmp_path / "source", golden()[:1])
    file = next((tmp_path / "source").rglob("*.json"))
    edit(file, **COAT)
    records = [record for _, record in loaded(aitz, tmp_path / "source")]
    assert records[0].notes == WHOLE
    assert records[1].notes == StepNotes(instruction="scroll down")
    run = CliRunner().invoke(app, [str(tmp_path / "source"), str(tmp_path / "data"), "--format", "aitz"])
    assert run.exit_code == 0, run.output
    episode = PreparedData.open(tmp_path / "data").episodes("train")[0]
    assert [step.notes for step in episode.steps[:2]] == [WHOLE, StepNotes(instruction="scroll down")]


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("  ", None), (" x ", "x")])
def test_blank_notes_are_none(tmp_path: Path, value: str | None, expected: str | None) -> None:
    write_aitz(tmp_path, golden()[:1])
    edit(next(tmp_path.rglob("*.json")), coat_action_think=value)
    assert loaded(aitz, tmp_path)[0][1].notes.thought == expected


def test_a_note_that_is_no_text_costs_the_step(tmp_path: Path) -> None:
    write_aitz(tmp_path, golden()[:1])
    edit(next(tmp_path.rglob("*.json")), coat_action_think=["no", "text"])
    assert reasons(aitz, tmp_path)[:2] == ["damaged step", ""]


def test_androidcontrol_step_instructions(tmp_path: Path) -> None:
    """One for each action; the screen that is left at the end has none."""
    screen = png(tmp_path / "s.png", SCREEN)
    actions = [{"action_type": "navigate_back"}, {"action_type": "navigate_home"}]
    said = {"step_instructions": [b"go back", "geh heim, 家".encode()]}
    write_androidcontrol(tmp_path / "a", [example(0, "g", actions, [screen] * 3, **said)])
    notes = [record.notes for _, record in loaded(androidcontrol, tmp_path / "a")]
    assert notes == [StepNotes(instruction="go back"), StepNotes(instruction="geh heim, 家"), NO_NOTES]
    write_androidcontrol(tmp_path / "b", [example(0, "g", actions, [screen] * 3, step_instructions=[b"one"])])
    assert reasons(androidcontrol, tmp_path / "b") == ["damaged episode"]
    write_androidcontrol(tmp_path / "c", [example(0, "g", actions, [screen] * 3, step_instructions=[])])
    assert [record.notes for _, record in loaded(androidcontrol, tmp_path / "c")] == [NO_NOTES] * 3


def test_own_notes(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", golden()[:1])
    line = json.loads((tmp_path / "a.jsonl").read_text())
    line["steps"][0] |= {"thought": "because", "instruction": "do"}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    notes = [record.notes for _, record in loaded(jsonl, tmp_path)]
    assert notes[:2] == [StepNotes(thought="because", instruction="do"), NO_NOTES]

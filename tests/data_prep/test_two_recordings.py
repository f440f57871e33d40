"""Two recordings under one id are refused, never spliced into one episode; an exact copy is dropped."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.__main__ import prepare
from data_prep.settings import PrepSettings
from data_prep.source import FormatName
from data_prep.tfrecord import write_shard
from tests.helpers.foreign_formats import (
    SCREEN,
    Gold,
    GoldEpisode,
    example,
    png,
    write_aitz,
    write_androidcontrol,
    write_jsonl,
    write_seeclick,
    write_showui,
)
from tests.helpers.prepared_data import all_episodes, fully_counted, record, refused

Write = Callable[[Path, Sequence[GoldEpisode]], None]
CLOCK = GoldEpisode("general", "1", "open the clock", (Gold(6), Gold(5), Gold(10)))
SHOES = GoldEpisode("general", "1", "buy shoes", (Gold(7), Gold(7), Gold(7), Gold(10)))
OTHER = GoldEpisode("general", "2", "go home", (Gold(6), Gold(10)))


def write_aitw(folder: Path, episodes: Sequence[GoldEpisode]) -> None:
    for number, episode in enumerate(episodes):
        records = [
            record(episode.id, t, len(episode.steps), goal=episode.goal) for t in range(len(episode.steps))
        ]
        write_shard(folder / f"general-{number:05d}-of-00009", records)


def write_actions(folder: Path, episodes: Sequence[GoldEpisode]) -> None:
    """AndroidControl's episodes: each step is going home."""
    screen, home = png(folder / "s.png", SCREEN), {"action_type": "navigate_home"}
    write_androidcontrol(folder, [
        example(int(e.id), e.goal, [home] * (len(e.steps) - 1), [screen] * len(e.steps)) for e in episodes
    ])  # fmt: skip


FORMATS: dict[FormatName, Write] = {
    "aitw": write_aitw,
    "seeclick": write_seeclick,
    "showui": write_showui,
    "aitz": write_aitz,
    "androidcontrol": write_actions,
    "jsonl": lambda folder, episodes: write_jsonl(folder / "a.jsonl", episodes),
}


@pytest.mark.parametrize("name", FORMATS)
def test_two_goals_under_one_id_are_refused(name: FormatName, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    FORMATS[name](tmp_path / "source", [CLOCK, OTHER, SHOES])
    report = prepare(tmp_path / "source", tmp_path / "out", PrepSettings(format=name))
    assert fully_counted(report)
    assert set(all_episodes(tmp_path / "out")) == {"2"}
    assert report["dropped_episodes"] == {"two recordings of one id": 1}
    assert report["dropped_steps"] == {"two recordings of one id": 7}
    assert "two recordings of the id '1' in " in report["unusable_examples"][0]


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"aitw", "showui"}))  # these have a row a step
def test_two_objects_of_one_goal_are_refused(name: FormatName, tmp_path: Path) -> None:
    """Neither the goal nor the number of steps tells them apart: only the objects of the source do."""
    again = replace(CLOCK, steps=tuple(replace(step, screen=9) for step in CLOCK.steps))
    if name == "androidcontrol":  # its screens are equal here, so the number of steps differs
        again = replace(CLOCK, steps=(*CLOCK.steps, Gold(10)))
    (tmp_path / "source").mkdir()
    FORMATS[name](tmp_path / "source", [CLOCK, again])
    arguments = str(tmp_path / "source"), str(tmp_path / "out"), "--format", name
    assert "1 two recordings of one id" in refused(tmp_path, *arguments)


def test_two_lengths_of_aitw_are_refused(tmp_path: Path) -> None:
    write_shard(
        tmp_path / "general-00000-of-00001", [record("1", 0, 2), record("1", 1, 3), record("2", 0, 1)]
    )
    report = prepare(tmp_path, tmp_path / "out")
    assert report["dropped_steps"] == {"two recordings of one id": 2}
    assert "2 and 3 steps" in report["unusable_examples"][0]


def test_a_copy_of_a_recording_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write_jsonl(tmp_path / "source" / "a.jsonl", [CLOCK, CLOCK])
    report = prepare(tmp_path / "source", tmp_path / "out", PrepSettings(format="jsonl"))
    assert (report["steps"], report["dropped_steps"]) == (3, {"exact duplicate": 3})

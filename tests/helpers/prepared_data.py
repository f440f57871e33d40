"""Data preparation in a test: run it on the golden shards, count and compare what it made."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from data_prep.__main__ import app, prepare
from data_prep.formats.aitw import to_example
from data_prep.settings import ImageSettings, MissingStepsPolicy, PrepSettings
from data_prep.source import StepRecord
from data_prep.split import EpisodeSelection, read_split
from tests.helpers.paths import GOLDEN
from uivlm.actions.aitw import DUAL_POINT, AitwFields, from_aitw
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Annotations, Episode, History, to_annotations
from uivlm.episodes.rows import ImageFormat

FIXTURE = GOLDEN / "aitw_fixture"
STYLES = ["standard_google_style_split.json", "autoui_style_split.json"]


def made(
    source: Path, out: Path, split: Path | None = None, num_bins: int = 100,
    image_format: ImageFormat = "jpeg",
    missing_steps: MissingStepsPolicy = "keep-prefix", max_episodes: int | None = None, workers: int = 1,
    overwrite: bool = False,
) -> dict[str, Any]:  # fmt: skip
    settings = PrepSettings(
        selection=EpisodeSelection(read_split([split] if split else [])),
        images=ImageSettings(num_bins, image_format),
        missing_steps=missing_steps,
        max_episodes=max_episodes,
    )
    return prepare(source, out, settings, workers, overwrite=overwrite)


def all_episodes(folder: Path) -> dict[str, Episode]:
    prepared = PreparedData.open(folder)
    return {e.id: e for split in prepared.meta["splits"] for e in prepared.episodes(split)}


def fully_counted(report: dict[str, Any]) -> bool:
    return report["records_read"] == report["steps"] + sum(report["dropped_steps"].values())


# --- steps in every state -------------------------------------------------------------------------


TAP = (DUAL_POINT, (0.5, 0.5), (0.5, 0.5), "")


def record(
    episode_id: str, step: int, length: int, shade: int = 0, aitw: AitwFields = TAP, **changes: Any
) -> bytes:
    """An Example of a step. `aitw` may be an action that no reader accepts."""
    pixels = np.full((6, 4, 3), shade, np.uint8)
    first = (episode_id, step, length, f"goal of {episode_id}", 30, "PIXEL_3", "a/b", pixels)
    annotations = Annotations([0.5, 0.25, 0.125, 0.5], ["x"], ["TEXT"])
    return to_example(replace(StepRecord(*first, annotations, from_aitw(*TAP), aitw), **changes))


# --- an error is one sentence, exit status 2, and leaves nothing behind ---------------------------


def refused(tmp_path: Path, *arguments: str) -> str:
    """Run the command as a user does, and return the one sentence of its error."""
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, ["--workers", "1", *arguments])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert sorted(tmp_path.rglob("*")) == before
    lines = [line for line in result.output.splitlines() if line.strip()]
    assert len(lines) == 1, result.output
    assert lines[0].startswith("error: ")
    return lines[0]


class Recorded:
    """An agent that repeats the recorded actions."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.steps = iter([step for episode in episodes for step in episode.steps])

    def reset(self) -> None: ...

    def act(self, history: History) -> Decision:
        text = ActionText().format(next(self.steps).action)
        return Decision(ActionText().parse(text), text)


def step(episode_id: str, t: int, length: int) -> StepRecord:
    pixels = np.random.default_rng(t).integers(0, 255, (160, 80, 3), np.uint8)
    return StepRecord(
        episode_id,
        t,
        length,
        "a goal",
        33,
        "PIXEL",
        "a/b",
        pixels,
        to_annotations(()),
        from_aitw(*TAP),
        TAP,
    )


def command(source: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "data_prep", str(source), str(out), "--image-format", "png", *more]


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }

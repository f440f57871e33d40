"""Prepared data shown to people, and episodes that people recorded."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from data_prep.formats.aitw import parse_record, to_example
from data_prep.source import StepRecord
from data_prep.tfrecord import read_records, write_shard
from tests.helpers.paths import REAL
from tests.helpers.prepared_data import (
    FIXTURE,
    STYLES,
    Recorded,
    all_episodes,
    made,
)
from uivlm.actions.aitw import from_aitw
from uivlm.cli.show import show
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Annotations
from uivlm.episodes.sentence import PromptFormat
from uivlm.evaluation.offline import evaluate

EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


def test_show_colours_exactly_the_trained_words(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out", split=FIXTURE / STYLES[0])
    console = Console(width=100, record=True, color_system="truecolor", file=io.StringIO())
    prepared = PreparedData.open(tmp_path / "out")
    episode = show(prepared, 1, "train", tmp_path / "strip.png", PromptFormat(max_screens=4), console)
    styled = console.export_text(styles=True)
    language = PromptFormat().action_text
    green = re.findall(r"\x1b\[32m(.*?)\x1b\[0m", styled)
    assert [words.rstrip("■") for words in green if words] == [
        language.format(step.action) for step in episode.steps
    ]
    assert "[screen 24x48]" in styled
    picture = np.asarray(Image.open(tmp_path / "strip.png").convert("RGB"))
    is_green = (picture == (0x1A, 0x8F, 0x3C)).all(-1)
    assert is_green.any()  # letters of trained words
    assert picture.shape[1] > 4 * 24


def test_show_names_what_is_not_there(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out", split=FIXTURE / STYLES[0])
    prepared = PreparedData.open(tmp_path / "out")
    for index in (4, -1):
        with pytest.raises(ValueError, match="it has 4"):
            show(prepared, index, "train")
    with pytest.raises(ValueError, match="split"):
        show(prepared, 0, "dev")


# --- recorded by people ---------------------------------------------------------------------------


def real_records() -> list[StepRecord]:
    rows = [json.loads(line) for line in (REAL / "episodes.jsonl").read_text("utf-8").splitlines()]
    made = []
    for row in rows:
        if not row["source"].startswith("aitw:"):
            continue
        pixels = np.asarray(Image.open(REAL / row["image"]).convert("RGB"))
        boxes, texts, ui_types = (
            row[f"image/ui_annotations_{name}"] for name in ("positions", "text", "ui_types")
        )
        annotations = Annotations([value for box in boxes for value in box], texts, ui_types)
        first = (row["episode_id"], row["step_id"], row["episode_length"], row["goal_info"])
        device = (
            row.get("android_api_level", 30),
            row.get("device_type", ""),
            row.get("current_activity", ""),
        )
        points = (tuple(row["results/yx_touch"]), tuple(row["results/yx_lift"]))
        aitw = (row["results/action_type"], *points, row["results/type_action"])
        made.append(StepRecord(*first, *device, pixels, annotations, from_aitw(*aitw), aitw))
    return made


@pytest.mark.skipif(
    not REAL.is_dir(), reason="the recorded episodes (shared/real beside the checkout) are absent"
)
def test_real_episodes_go_all_the_way(tmp_path: Path) -> None:
    records = real_records()
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    write_shard(source / "real-00000-of-00001", map(to_example, records))
    assert len(list(read_records(source / "real-00000-of-00001"))) == 9
    report = made(source, out, image_format="png")
    assert (report["episodes"], report["steps"], report["dropped_steps"]) == (2, 9, {})
    assert report["notes"] == {
        "episodes with missing steps": 1,
        "missing steps": 4,
    }  # one is cut after step 4 of 9
    assert report["screens"] == {"540x1080": 5, "270x600": 4}
    found = all_episodes(out)
    for recorded in records:
        step = found[recorded.episode_id].steps[recorded.step_id]
        np.testing.assert_array_equal(step.screen.pixels, recorded.pixels)
        assert step.action == parse_record(to_example(recorded)).action
        assert [e.text for e in step.screen.elements] == recorded.annotations.texts
    prepared = PreparedData.open(out)
    filled = {split: found for split in prepared.meta["splits"] if (found := prepared.episodes(split))}
    assert sum(len(episodes) for episodes in filled.values()) == 2
    for split, episodes in filled.items():
        verdicts = evaluate(Recorded(episodes), episodes, tmp_path / f"{split}.jsonl")
        assert len(verdicts) == sum(len(episode.steps) for episode in episodes)
        assert all(verdict.correct for verdict in verdicts)  # each action matches what its own words say
        for i in range(len(episodes)):
            episode = show(prepared, i, split, tmp_path / "strip.png", console=Console(quiet=True))
            assert Image.open(tmp_path / "strip.png").width > 200 * len(episode.steps)

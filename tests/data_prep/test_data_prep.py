"""The whole stage: shards in any state go in, whole episodes come out, and every record is accounted for."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep import pass2_write
from data_prep.__main__ import app
from data_prep.settings import MissingStepsPolicy
from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import (
    FIXTURE,
    STYLES,
    all_episodes,
    content,
    fully_counted,
    made,
    record,
)
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Episode

EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


# --- the fixture that TensorFlow wrote ------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_the_fixture_through_the_command(style: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [
        str(FIXTURE),
        str(out),
        "--split",
        str(FIXTURE / style),
        "--image-format",
        "png",
        "--workers",
        "1",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert sorted(os.listdir(tmp_path)) == ["out"]
    report = json.loads((out / "report.json").read_text())
    assert fully_counted(report)
    assert (report["records_read"], report["episodes"], report["steps"]) == (37, 9, 32)
    assert report["dropped_steps"] == {"exact duplicate": 1, "after a gap": 1, "not in the split file": 3}
    assert report["dropped_episodes"] == {"not in the split file": 2}
    assert report["notes"] == {
        "episodes with missing steps": 1,
        "missing steps": 1,
        "episodes out of order": 1,
        "episodes not contiguous": 1,
        "episodes over several shards": 1,
    }
    assert {s: n["episodes"] for s, n in report["by_split"].items()} == {
        "train": 4,
        "validation": 2,
        "test": 3,
    }
    assert report["screens"] == {"24x48": 30, "27x60": 2}
    listed = json.loads((FIXTURE / style).read_text())
    prepared = PreparedData.open(out)
    for label, ids in listed.items():
        split = "validation" if label == "val" else label
        assert sorted(e.id for e in prepared.episodes(split)) == sorted(ids)


def test_every_step_of_the_fixture_is_what_was_recorded(tmp_path: Path) -> None:
    """Against expected.json, not against our own reader: pixels by hash, floats and texts as they are."""
    report = made(FIXTURE, tmp_path / "out", image_format="png")
    assert fully_counted(report)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for shard in EXPECTED.values():
        for row in shard:
            rows.setdefault((row["episode_id"], row["step_id"]), row)
    by_id = all_episodes(tmp_path / "out")
    assert len(by_id) == 11
    assert len(by_id["6160402803482314990"].steps) == 2  # step 2 is missing, step 3 lies after the gap
    for episode_id, episode in by_id.items():
        for t, step in enumerate(episode.steps):
            row = rows[episode_id, t]
            assert hashlib.sha256(step.screen.pixels.tobytes()).hexdigest() == row["image/encoded"]["sha256"]
            flat = [number for e in step.screen.elements for number in (e.y, e.x, e.height, e.width)]
            assert flat == row["image/ui_annotations_positions"]
            assert [e.text for e in step.screen.elements] == row["image/ui_annotations_text"]
            assert [e.ui_type for e in step.screen.elements] == row["image/ui_annotations_ui_types"]
            assert episode.goal == row["goal_info"]
    chile = [repr(step.action) for step in by_id["3883174507157444369"].steps]
    assert chile[2] == f"Type(text={rows['3883174507157444369', 2]['results/type_action']!r})"
    assert "key='back'" in chile[5]
    assert "impossible" in chile[6]
    whole = [
        len(by_id[i].steps)
        for i in ("9007199254740993001", "777", "2729424677228029046", "10914442784645576315")
    ]
    assert whole == [4, 3, 4, 4]


def test_ids_with_slashes_come_back(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out")
    singles = [i for i in all_episodes(tmp_path / "out") if "." in i]
    assert any("/" in i for i in singles)
    assert set(singles) == {row["episode_id"] for row in EXPECTED["single/single-00000-of-00001"]}


@pytest.mark.slow
def test_workers_and_runs_do_not_change_the_data(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        made(FIXTURE, tmp_path / name, workers=workers)
    assert "meta.json" in content(tmp_path / "one")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_fingerprint_is_of_the_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(name: str, **options: Any) -> str:
        made(FIXTURE, tmp_path / name, **options)
        return PreparedData.open(tmp_path / name).meta["fingerprint"]

    plain = fingerprint("plain")
    assert fingerprint("drop", missing_steps="drop") != plain
    assert fingerprint("bins", num_bins=50) != plain
    monkeypatch.setattr(pass2_write, "STEPS_PER_FILE", 5)
    assert fingerprint("files") == plain
    meta = PreparedData.open(tmp_path / "files").meta
    assert len(meta["shards"]) > 3
    assert [e.id for e in PreparedData.open(tmp_path / "files").episodes("train")] == [
        e.id for e in PreparedData.open(tmp_path / "plain").episodes("train")
    ]


@pytest.mark.parametrize(
    ("missing_steps", "steps", "dropped"),
    [
        ("keep-prefix", 35, {"exact duplicate": 1, "after a gap": 1}),
        ("drop", 33, {"exact duplicate": 1, "episode with a gap": 3}),
        ("keep", 36, {"exact duplicate": 1}),
    ],
)
def test_missing_steps_policies(
    missing_steps: MissingStepsPolicy, steps: int, dropped: dict[str, int], tmp_path: Path
) -> None:
    report = made(FIXTURE, tmp_path / "out", missing_steps=missing_steps)
    assert (report["steps"], report["dropped_steps"]) == (steps, dropped)
    assert report["missing_steps_policy"].startswith(missing_steps)
    assert fully_counted(report)
    by_id = all_episodes(tmp_path / "out")
    assert sum(len(e.steps) for e in by_id.values()) == steps
    assert (
        len(by_id.get("6160402803482314990", Episode("", "", "", ())).steps) == {35: 2, 33: 0, 36: 3}[steps]
    )


def test_a_limit_takes_complete_episodes_first_and_stops_reading(tmp_path: Path) -> None:
    report = made(FIXTURE / "general", tmp_path / "out", max_episodes=3)
    assert report["episodes"] == 3
    assert report["shards"]["read"] == 1
    assert fully_counted(report)
    assert set(all_episodes(tmp_path / "out")) == {
        "12172380859428428757", "10914442784645576315", "3883174507157444369",
    }  # fmt: skip
    more = made(FIXTURE / "general", tmp_path / "more", max_episodes=4)
    assert more["shards"]["read"] == 2
    assert more["episodes"] == 4
    assert "6160402803482314990" not in all_episodes(tmp_path / "more")  # its step 2 is missing


def test_a_limit_takes_episodes_of_each_subset_by_a_hash(tmp_path: Path) -> None:
    """Shards of all subsets by turns: the fifth and sixth of general are never needed."""
    source = tmp_path / "source"
    source.mkdir()
    names = {"general": 6, "install": 2, "single": 1}
    for subset, num_shards in names.items():
        for i in range(num_shards):
            records = [record(f"{subset}{i}{j}", 0, 1) for j in range(2)]
            write_shard(source / f"{subset}-{i:05d}-of-{num_shards:05d}", records)
    report = made(source, tmp_path / "out", max_episodes=3)
    assert report["shards"]["read"] == 5  # general, install, single, general, install
    assert {subset: n["episodes"] for subset, n in report["by_subset"].items()} == {
        "general": 3, "install": 3, "single": 2,
    }  # fmt: skip
    assert report["dropped_episodes"] == {"beyond max_episodes": 2}
    read = [f"{subset}{i}{j}" for subset in ("general", "install") for i in range(2) for j in range(2)]
    ranks = {name: hashlib.sha256(f"{name[:-2]}\0{name}".encode()).digest() for name in read}
    chosen = {
        name for subset in ("general", "install")
        for name in sorted((n for n in read if n.startswith(subset)), key=ranks.__getitem__)[:3]
    }  # fmt: skip
    assert set(all_episodes(tmp_path / "out")) == {*chosen, "single00", "single01"}


def test_every_fault_is_counted(tmp_path: Path) -> None:
    source = tmp_path / "source" / "deep" / "er"
    source.mkdir(parents=True)
    shards = [
        [record("a", 2, 3), record("b", 0, 2, 1), record("a", 0, 3), record("c", 1, 3), record("d", 0, 2)],
        [record("b", 0, 2, 2), record("b", 1, 2), record("b", 1, 2), record("c", 2, 3), record("e", 0, 3)],
        [record("a", 1, 3), record("d", 1, 2), record("d", 2, 2), record("b", 0, 2, 1), record("a", 1, 3)],
    ]
    for i, data in enumerate(shards):
        write_shard(source / f"install-{i:05d}-of-00009", data)
    report = made(tmp_path / "source", tmp_path / "out", image_format="png")
    assert fully_counted(report)
    assert report["records_read"] == 15
    assert report["dropped_steps"] == {
        "exact duplicate": 3,  # b 1, the third b 0, a 1
        "conflicting duplicate": 1,  # the second b 0
        "episode with a gap": 2,  # c has no step 0
    }
    assert report["dropped_episodes"] == {"episode with a gap": 1}
    assert report["notes"] == {
        "episodes out of order": 2,
        "episodes over several shards": 4,
        "episodes not contiguous": 1,  # a, inside a shard
        "episodes longer than stated": 1,
        "episodes with missing steps": 2,
        "missing steps": 3,  # c 0, e 1, e 2
    }
    assert report["shards"]["missing"] == {"install": 6}
    by_id = all_episodes(tmp_path / "out")
    assert {i: len(e.steps) for i, e in by_id.items()} == {"a": 3, "b": 2, "d": 3, "e": 1}
    assert by_id["b"].steps[0].screen.pixels[0, 0].tolist() == [1, 1, 1]  # the first wins
    assert {e.subset for e in by_id.values()} == {"install"}


def test_a_recorded_float_is_not_changed(tmp_path: Path) -> None:
    touch = tuple(np.array([0.1, 0.7654321], np.float32).tolist())
    lift = tuple(np.array([1e-8, 0.33333334], np.float32).tolist())
    write_shard(tmp_path / "general-00000-of-00001", [record("1", 0, 1, aitw=(4, touch, lift, ""))])
    made(tmp_path, tmp_path / "out")
    action = all_episodes(tmp_path / "out")["1"].steps[0].action
    assert (action.start.y, action.start.x, action.end.y, action.end.x) == (*touch, *lift)


def test_one_id_in_two_subsets_is_two_episodes(tmp_path: Path) -> None:
    for subset in ("general", "install"):
        write_shard(tmp_path / f"{subset}-00000-of-00001", [record("1", t, 2) for t in range(2)])
    report = made(tmp_path, tmp_path / "out")
    assert (report["episodes"], report["dropped_steps"]) == (2, {})

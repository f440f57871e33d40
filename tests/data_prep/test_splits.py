"""Splits: names of shards and subsets, the hash rule, split files, and leaks between train and test."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_prep.__main__ import app
from data_prep.formats.aitw import find, missing_shards, subset_of
from data_prep.split import find_leaks, parent_id, read_split, split_by_hash
from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import FIXTURE, made, record, refused

EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


@pytest.mark.parametrize(
    ("name", "subset"),
    [
        ("general-00000-of-00321", "general"),
        ("android-in-the-wild_general_general-00000-of-00321", "general"),
        ("android-in-the-wild_google_apps_google_apps-00000-of-08688", "google_apps"),
        ("web_shopping-00007-of-00100", "web_shopping"),
        ("simulated-00000-of-00030", "simulated"),
        ("my-own-00000-of-00030", "my-own"),
    ],
)
def test_subset_of_a_name(name: str, subset: str) -> None:
    assert subset_of(name) == subset


def test_shards_are_found_by_name_alone(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in (
        "b/general-00001-of-00002",
        "b/general-00000-of-00002",
        "general-00000-of-00002.txt",
        "x-abcde-of-00001",
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "general-00009-of-00010").mkdir()
    names = [part.name for part in find(str(tmp_path))]
    assert names == ["b/general-00000-of-00002", "b/general-00001-of-00002"]
    assert missing_shards(names) == {}


def test_parents() -> None:
    assert parent_id("4852706046833005736.969-1019.Set 1.2-3. x") == "4852706046833005736"
    assert parent_id("18260339861117453695") == "18260339861117453695"
    assert parent_id("a.b") == "a.b"


def test_the_hash_rule_keeps_parents_together_and_shares_80_10_10() -> None:
    splits = [split_by_hash(str(i)) for i in range(20_000)]
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert abs(splits.count(split) / 20_000 - share) < 0.01
    assert all(split_by_hash(f"{i}.1-2.goal") == split_by_hash(str(i)) for i in range(200))
    assert [split_by_hash(i) for i in ("1", "18260339861117453695")] == [
        "train" if int(hashlib.sha256(i.encode()).hexdigest()[:16], 16) % 10 < 8 else "other"
        for i in ("1", "18260339861117453695")
    ]


def test_the_report_says_when_the_hash_decides(tmp_path: Path) -> None:
    assert "SHA-256" in made(FIXTURE, tmp_path / "out")["split_rule"]


def test_leaks_are_counted() -> None:
    report = find_leaks([
        ("1", "open maps", "train"),
        ("2", "open mail", "train"),
        ("2", "close mail", "test"),
        ("1.3-4.zoom", "zoom", "test"),
        ("9", "open maps", "test"),
        ("8", "open maps", "validation"),
        ("7", "fly", "test"),
    ])  # fmt: skip
    assert {what: leak["test_episodes"] for what, leak in report.items()} == {"id": 1, "parent": 2, "goal": 1}
    assert report["goal"] == {"test_episodes": 1, "of": 4, "examples": ["open maps"]}


def test_ids_of_the_split_file_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps({"train": ["777", "1"], "val": [], "test": [42, "2"]}))
    report = made(FIXTURE, tmp_path / "out", split=tmp_path / "split.json")
    assert report["split_ids_not_written"] == {"count": 2, "examples": ["1", "2"]}
    assert report["episodes"] == 2
    assert report["dropped_episodes"] == {"not in the split file": 9}


def test_val_and_validation_are_one_split(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('{"val": ["1"], "validation": ["1", "2"], "test": ["3"]}')
    rule = read_split([tmp_path / "split.json"])
    assert [rule.split_of(i) for i in "1234"] == ["validation", "validation", "test", None]


AUTO_UI = {  # one file a subset, as in Auto-UI's dataset/<subset>_texts_splits.json
    "general": {"train": ["g1", "g2"], "val": ["g3"], "test": ["g4"]},
    "install": {"train": ["i1", "i1", "i2"], "val": ["i3"], "test": ["i2"]},
    "single": {"train": ["1.0-2.a", "1.3-4.b"], "val": ["1.3-4.b"], "test": ["1.0-2.a", "1.5-6.c"]},
}


@pytest.fixture
def auto_ui(tmp_path: Path) -> list[str]:
    """Three subsets of single steps, and the options with Auto-UI's three lists."""
    options: list[str] = []
    for subset, split in AUTO_UI.items():
        ids = sorted({episode_id for ids in split.values() for episode_id in ids})
        (tmp_path / "source").mkdir(exist_ok=True)
        write_shard(tmp_path / "source" / f"{subset}-00000-of-00001", [record(i, 0, 1) for i in ids])
        file = tmp_path / f"{subset}_texts_splits.json"
        file.write_text(json.dumps(split))
        options += ["--split", str(file)]
    return [str(tmp_path / "source"), str(tmp_path / "out"), "--workers", "1", *options]


def test_ids_under_two_labels_of_several_files_are_refused(auto_ui: list[str], tmp_path: Path) -> None:
    sentence = refused(tmp_path, *auto_ui)
    assert "3 episode ids are under two labels, such as 'i2' in train and test" in sentence
    assert "--duplicate-ids drop or first" in sentence


@pytest.mark.parametrize(
    ("policy", "splits", "dropped"),
    [
        ("drop", {"train": 3, "validation": 2, "test": 2}, {"under two split labels": 3}),
        ("first", {"train": 6, "validation": 2, "test": 2}, {}),
    ],
)
def test_several_lists_with_a_policy_for_duplicate_ids(
    policy: str, splits: dict[str, int], dropped: dict[str, int], auto_ui: list[str], tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, [*auto_ui, "--duplicate-ids", policy])
    assert result.exit_code == 0, result.output
    assert f"3 ids are under two labels of the split files: {policy}." in result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {split: n["episodes"] for split, n in report["by_split"].items()} == splits
    assert report["dropped_episodes"] == report["dropped_steps"] == dropped
    assert report["duplicate_ids"] == {
        "policy": policy, "count": 3, "examples": ["1.0-2.a", "1.3-4.b", "i2"],
    }  # fmt: skip
    assert "Ids under two labels" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert all(f"{subset}_texts_splits.json" in report["split_rule"] for subset in AUTO_UI)

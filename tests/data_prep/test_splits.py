"""Splits: names of shards and subsets, the hash rule, split files, and leaks between train and test."""

import hashlib
import json
from pathlib import Path

import pytest

from data_prep.formats.aitw import find, missing_shards, subset_of
from data_prep.split import find_leaks, parent_id, read_split, split_by_hash
from tests.helpers.prepared_data import (
    FIXTURE,
    made,
)

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
    rule = read_split(tmp_path / "split.json")
    assert [rule.split_of(i) for i in "1234"] == ["validation", "validation", "test", None]

"""Damaged sources and refused outputs: one sentence each, and every readable part is still prepared."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_prep.__main__ import app
from data_prep.tfrecord import write_shard
from tests.helpers.paths import ROOT
from tests.helpers.prepared_data import (
    FIXTURE,
    TAP,
    all_episodes,
    fully_counted,
    made,
    record,
    refused,
)
from uivlm.episodes.dataset import PreparedData

EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


@pytest.mark.parametrize(
    "name", ["truncated_gzip", "truncated_record", "bad_data_crc", "bad_length", "not_gzipped"]
)
def test_a_damaged_shard_is_left_out_and_told(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    good = (FIXTURE / "general" / "general-00000-of-00002").read_bytes()
    (source / "general-00000-of-00002").write_bytes(good)
    (source / "general-00001-of-00002").write_bytes((FIXTURE / "damaged" / f"general-{name}").read_bytes())
    result = CliRunner().invoke(app, [str(source), str(tmp_path / "out"), "--workers", "1"])
    assert result.exit_code == 3
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (damaged,) = report["damaged"]
    assert damaged["name"] == "general-00001-of-00002"
    assert "corrupt shard" in damaged["error"]
    assert "general-00001-of-00002: corrupt shard" in " ".join(result.output.split())
    made(source / "general-00000-of-00002", tmp_path / "alone")
    assert set(all_episodes(tmp_path / "out")) == set(all_episodes(tmp_path / "alone"))
    assert sorted(os.listdir(tmp_path)) == ["alone", "out", "source"]


def test_a_limited_run_goes_past_a_damaged_shard(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    good = (FIXTURE / "general" / "general-00000-of-00002").read_bytes()
    (source / "general-00000-of-00002").write_bytes((FIXTURE / "damaged/general-bad_data_crc").read_bytes())
    (source / "general-00001-of-00002").write_bytes(good)
    report = made(source, tmp_path / "out", max_episodes=1)
    assert (report["episodes"], len(report["damaged"])) == (1, 1)


@pytest.mark.slow
def test_only_damaged_shards_are_refused_by_many_workers_and_a_real_process(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(3):
        (source / f"general-{i:05d}-of-00003").write_bytes(
            (FIXTURE / "damaged/general-bad_data_crc").read_bytes()
        )
    command = [sys.executable, "-m", "data_prep", str(source), str(tmp_path / "out"), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "corrupt shard" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_bad_record_is_a_missing_step(tmp_path: Path) -> None:
    for name, changes, message in (
        ("type", {"aitw": (1, *TAP[1:])}, "results/action_type"),
        ("point", {"aitw": (4, (float("nan"), 0.5), (0.5, 0.5), "")}, "y nan"),
    ):
        shard = tmp_path / f"{name}-00000-of-00001"
        write_shard(shard, [record("1", 0, 3), record("1", 1, 3, **changes), record("1", 2, 3)])
        report = made(shard, tmp_path / name)
        assert report["records_read"] == 3
        assert fully_counted(report)
        assert sum(report["dropped_steps"].values()) == 2
        assert report["dropped_steps"]["after a gap"] == 1
        (sentence,) = report["unusable_examples"]
        assert message in sentence
        assert len(all_episodes(tmp_path / name)["1"].steps) == 1


def test_a_record_without_an_id_is_counted(tmp_path: Path) -> None:
    shard = tmp_path / "general-00000-of-00001"
    write_shard(shard, [record("1", 0, 1), b"\xff\xff", record("2", 0, 1)])
    report = made(shard, tmp_path / "out")
    assert (report["episodes"], report["dropped_steps"]) == (2, {"corrupt record": 1})
    assert f"corrupt record 1 of {shard.name}: " in report["unusable_examples"][0]
    write_shard(shard, [b"\xff\xff"])
    assert "1 corrupt record" in refused(tmp_path, str(shard), str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ('{"train": ["1", "2"], "test": ["2"]}', "under two labels, such as '2' in train and test"),
        ('{"dev": ["1"]}', "got the label 'dev'"),
        ('{"train": "1"}', "must be a list"),
        ('{"train": [1.5]}', "must be a list"),
        ("[]", "must be an object"),
        ("{", "JSON"),
        ('{"train": ["404"]}', "no episode"),
    ],
)
def test_a_bad_split_file(split: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(split)
    sentence = refused(tmp_path, str(FIXTURE), str(tmp_path / "out"), "--split", str(tmp_path / "split.json"))
    assert message in sentence


def test_missing_or_empty_sources(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_shard(tmp_path / "nothing-00000-of-00001", [])
    out = str(tmp_path / "out")
    assert "no folder or file" in refused(tmp_path, str(tmp_path / "none"), out)
    assert "has no shard" in refused(tmp_path, str(tmp_path / "empty"), out)
    assert "has no records" in refused(tmp_path, str(tmp_path / "nothing-00000-of-00001"), out)
    assert "no split file" in refused(tmp_path, str(FIXTURE), out, "--split", str(tmp_path / "none.json"))


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for more in ([], ["--overwrite"]):
        assert "is not prepared data" in refused(tmp_path, str(FIXTURE), str(out), *more)
    (out / "meta.json").write_text('{"format": "something else"}')
    assert "is not prepared data" in refused(tmp_path, str(FIXTURE), str(out), "--overwrite")
    assert (out / "thesis.txt").read_text() == "mine"


def test_own_data_is_replaced_with_force_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is no obstacle
    made(FIXTURE, out)
    assert "--overwrite" in refused(tmp_path, str(FIXTURE), str(out))
    made(FIXTURE, out, num_bins=50, overwrite=True)
    assert PreparedData.open(out).meta["num_bins"] == 50
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_a_failed_replacement_keeps_the_old(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(FIXTURE, out)
    damaged = FIXTURE / "damaged" / "general-bad_data_crc"
    assert "damaged" in refused(tmp_path, str(damaged), str(out), "--overwrite")
    assert len(all_episodes(out)) == 11


def test_a_source_inside_the_output_is_refused(tmp_path: Path) -> None:
    shard = tmp_path / "out" / "general-00000-of-00001"
    shard.parent.mkdir()
    write_shard(shard, [record("1", 0, 1)])
    assert "inside" in refused(tmp_path, str(shard), str(tmp_path / "out"))

"""The whole stage: shards in any state go in, whole episodes come out, and every record is accounted for."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from data_prep import write
from data_prep.__main__ import app, prepare
from data_prep.aitw import parse_record, to_example
from data_prep.formats.aitw import absent, find, subset_of
from data_prep.record import Record
from data_prep.settings import Codec, Gaps, Kept, Settings
from data_prep.split import Choice, by_hash, leaks, parent, read_split
from data_prep.tfrecord import read_records, write_shard
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import Annotations, Episode, History
from uivlm.evaluation.benchmark import evaluate
from uivlm.sentences.sentence import Grammar
from uivlm.sentences.store import Prepared
from uivlm.show import show

FIXTURE = Path(os.environ.get("UIVLM_GOLDEN") or Path(__file__).parent / "golden") / "aitw_fixture"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]
REAL = Path(__file__).parents[2] / "shared" / "real"
STYLES = ["standard_google_style_split.json", "autoui_style_split.json"]


def made(
    source: Path, out: Path, split: Path | None = None, bins: int = 100, codec: Codec = "jpeg",
    gaps: Gaps = "keep-prefix", limit: int | None = None, workers: int = 1, force: bool = False,
) -> dict[str, Any]:  # fmt: skip
    settings = Settings(choice=Choice(read_split(split)), kept=Kept(bins, codec), gaps=gaps, limit=limit)
    return prepare(source, out, settings, workers, force=force)


def all_episodes(folder: Path) -> dict[str, Episode]:
    prepared = Prepared.open(folder)
    return {e.id: e for split in prepared.meta["splits"] for e in prepared.episodes(split)}


def fully_counted(report: dict[str, Any]) -> bool:
    return report["records_read"] == report["steps"] + sum(report["dropped_steps"].values())


# --- the fixture that TensorFlow wrote -----------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_the_fixture_through_the_command(style: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [str(FIXTURE), str(out), "--split", str(FIXTURE / style), "--codec", "png", "--workers", "1"]
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
    prepared = Prepared.open(out)
    for label, ids in listed.items():
        split = "validation" if label == "val" else label
        assert sorted(e.id for e in prepared.episodes(split)) == sorted(ids)


def test_every_step_of_the_fixture_is_what_was_recorded(tmp_path: Path) -> None:
    """Against expected.json, not against our own reader: pixels by hash, floats and texts as they are."""
    report = made(FIXTURE, tmp_path / "out", codec="png")
    assert fully_counted(report)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for shard in EXPECTED.values():
        for row in shard:
            rows.setdefault((row["episode_id"], row["step_id"]), row)
    found = all_episodes(tmp_path / "out")
    assert len(found) == 11
    assert len(found["6160402803482314990"].steps) == 2  # step 2 is missing, step 3 lies after the gap
    for episode_id, episode in found.items():
        for t, step in enumerate(episode.steps):
            row = rows[episode_id, t]
            assert hashlib.sha256(step.screen.pixels.tobytes()).hexdigest() == row["image/encoded"]["sha256"]
            flat = [number for e in step.screen.elements for number in (e.y, e.x, e.height, e.width)]
            assert flat == row["image/ui_annotations_positions"]
            assert [e.text for e in step.screen.elements] == row["image/ui_annotations_text"]
            assert [e.kind for e in step.screen.elements] == row["image/ui_annotations_ui_types"]
            assert episode.goal == row["goal_info"]
    chile = [repr(step.action) for step in found["3883174507157444369"].steps]
    assert chile[2] == f"Type(text={rows['3883174507157444369', 2]['results/type_action']!r})"
    assert "key='back'" in chile[5]
    assert "impossible" in chile[6]
    whole = [
        len(found[i].steps)
        for i in ("9007199254740993001", "777", "2729424677228029046", "10914442784645576315")
    ]
    assert whole == [4, 3, 4, 4]


def test_ids_with_slashes_come_back(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out")
    singles = [i for i in all_episodes(tmp_path / "out") if "." in i]
    assert any("/" in i for i in singles)
    assert set(singles) == {row["episode_id"] for row in EXPECTED["single/single-00000-of-00001"]}


def test_workers_and_runs_do_not_change_the_data(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        made(FIXTURE, tmp_path / name, workers=workers)
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_the_fingerprint_is_of_the_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(name: str, **options: Any) -> str:
        made(FIXTURE, tmp_path / name, **options)
        return Prepared.open(tmp_path / name).meta["fingerprint"]

    plain = fingerprint("plain")
    assert fingerprint("drop", gaps="drop") != plain
    assert fingerprint("bins", bins=50) != plain
    monkeypatch.setattr(write, "STEPS_A_FILE", 5)
    assert fingerprint("files") == plain
    meta = Prepared.open(tmp_path / "files").meta
    assert len(meta["shards"]) > 3
    assert [e.id for e in Prepared.open(tmp_path / "files").episodes("train")] == [
        e.id for e in Prepared.open(tmp_path / "plain").episodes("train")
    ]


@pytest.mark.parametrize(
    ("gaps", "steps", "dropped"),
    [
        ("keep-prefix", 35, {"exact duplicate": 1, "after a gap": 1}),
        ("drop", 33, {"exact duplicate": 1, "episode with a gap": 3}),
        ("keep", 36, {"exact duplicate": 1}),
    ],
)
def test_gap_policies(gaps: Gaps, steps: int, dropped: dict[str, int], tmp_path: Path) -> None:
    report = made(FIXTURE, tmp_path / "out", gaps=gaps)
    assert (report["steps"], report["dropped_steps"]) == (steps, dropped)
    assert report["gap_policy"].startswith(gaps)
    assert fully_counted(report)
    found = all_episodes(tmp_path / "out")
    assert sum(len(e.steps) for e in found.values()) == steps
    assert (
        len(found.get("6160402803482314990", Episode("", "", "", ())).steps) == {35: 2, 33: 0, 36: 3}[steps]
    )


def test_limit_takes_whole_episodes_first_and_stops_reading(tmp_path: Path) -> None:
    report = made(FIXTURE, tmp_path / "out", limit=3)
    assert report["episodes"] == 3
    assert report["shards"]["read"] == 1
    assert fully_counted(report)
    assert set(all_episodes(tmp_path / "out")) == {
        "12172380859428428757", "10914442784645576315", "3883174507157444369",
    }  # fmt: skip
    more = made(FIXTURE, tmp_path / "more", limit=4)
    assert more["shards"]["read"] == 2
    assert "9007199254740993001" in all_episodes(tmp_path / "more")


# --- steps in every state -------------------------------------------------------------------------------------------


def record(episode_id: str, step: int, length: int, shade: int = 0, **changes: Any) -> bytes:
    pixels = np.full((6, 4, 3), shade, np.uint8)
    first = (episode_id, step, length, f"goal of {episode_id}", 30, "PIXEL_3", "a/b", pixels)
    made = Record(
        *first, Annotations([0.5, 0.25, 0.125, 0.5], ["x"], ["TEXT"]), 4, (0.5, 0.5), (0.5, 0.5), ""
    )
    return to_example(replace(made, **changes))


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
    report = made(tmp_path / "source", tmp_path / "out", codec="png")
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
    assert report["shards"]["absent_by_name"] == {"install": 6}
    found = all_episodes(tmp_path / "out")
    assert {i: len(e.steps) for i, e in found.items()} == {"a": 3, "b": 2, "d": 3, "e": 1}
    assert found["b"].steps[0].screen.pixels[0, 0].tolist() == [1, 1, 1]  # the first wins
    assert {e.subset for e in found.values()} == {"install"}


def test_a_recorded_float_is_not_changed(tmp_path: Path) -> None:
    touch = tuple(np.array([0.1, 0.7654321], np.float32).tolist())
    lift = tuple(np.array([1e-8, 0.33333334], np.float32).tolist())
    write_shard(tmp_path / "general-00000-of-00001", [record("1", 0, 1, touch=touch, lift=lift)])
    made(tmp_path, tmp_path / "out")
    action = all_episodes(tmp_path / "out")["1"].steps[0].action
    assert (action.start.y, action.start.x, action.end.y, action.end.x) == (*touch, *lift)


def test_one_id_in_two_subsets_is_two_episodes(tmp_path: Path) -> None:
    for subset in ("general", "install"):
        write_shard(tmp_path / f"{subset}-00000-of-00001", [record("1", t, 2) for t in range(2)])
    report = made(tmp_path, tmp_path / "out")
    assert (report["episodes"], report["dropped_steps"]) == (2, {})


# --- names, splits, leaks -------------------------------------------------------------------------------------------


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
    assert absent(names) == {}


def test_parents() -> None:
    assert parent("4852706046833005736.969-1019.Set 1.2-3. x") == "4852706046833005736"
    assert parent("18260339861117453695") == "18260339861117453695"
    assert parent("a.b") == "a.b"


def test_the_hash_rule_keeps_parents_together_and_shares_80_10_10() -> None:
    splits = [by_hash(str(i)) for i in range(20_000)]
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert abs(splits.count(split) / 20_000 - share) < 0.01
    assert all(by_hash(f"{i}.1-2.goal") == by_hash(str(i)) for i in range(200))
    assert [by_hash(i) for i in ("1", "18260339861117453695")] == [
        "train" if int(hashlib.sha256(i.encode()).hexdigest()[:16], 16) % 10 < 8 else "other"
        for i in ("1", "18260339861117453695")
    ]


def test_the_report_says_when_the_hash_decides(tmp_path: Path) -> None:
    assert "SHA-256" in made(FIXTURE, tmp_path / "out")["split_rule"]


def test_leaks_are_counted() -> None:
    report = leaks([
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
    assert [rule.of(i) for i in "1234"] == ["validation", "validation", "test", None]


# --- what goes wrong is one sentence, exit status 2, and nothing left behind ------------------------------------------


def refused(tmp_path: Path, *arguments: str) -> str:
    """Run the command as a user does; the one sentence it ends with."""
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, ["--workers", "1", *arguments])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert sorted(tmp_path.rglob("*")) == before
    lines = [line for line in result.output.splitlines() if line.strip()]
    assert len(lines) == 1, result.output
    assert lines[0].startswith("error: ")
    return lines[0]


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
    assert "damaged shard" in damaged["error"]
    assert "general-00001-of-00002: damaged shard" in " ".join(result.output.split())
    made(source / "general-00000-of-00002", tmp_path / "alone")
    assert set(all_episodes(tmp_path / "out")) == set(all_episodes(tmp_path / "alone"))
    assert sorted(os.listdir(tmp_path)) == ["alone", "out", "source"]


def test_a_limited_run_goes_past_a_damaged_shard(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    good = (FIXTURE / "general" / "general-00000-of-00002").read_bytes()
    (source / "general-00000-of-00002").write_bytes((FIXTURE / "damaged/general-bad_data_crc").read_bytes())
    (source / "general-00001-of-00002").write_bytes(good)
    report = made(source, tmp_path / "out", limit=1)
    assert (report["episodes"], len(report["damaged"])) == (1, 1)


def test_only_damaged_shards_are_refused_by_many_workers_and_a_real_process(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(3):
        (source / f"general-{i:05d}-of-00003").write_bytes(
            (FIXTURE / "damaged/general-bad_data_crc").read_bytes()
        )
    command = [sys.executable, "-m", "data_prep", str(source), str(tmp_path / "out"), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 2
    assert "damaged shard" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_bad_record_is_a_missing_step(tmp_path: Path) -> None:
    for name, changes, says in (
        ("kind", {"action_type": 1}, "results/action_type"),
        ("point", {"touch": (float("nan"), 0.5)}, "y nan"),
    ):
        shard = tmp_path / f"{name}-00000-of-00001"
        write_shard(shard, [record("1", 0, 3), record("1", 1, 3, **changes), record("1", 2, 3)])
        report = made(shard, tmp_path / name)
        assert report["records_read"] == 3
        assert fully_counted(report)
        assert sum(report["dropped_steps"].values()) == 2
        assert report["dropped_steps"]["after a gap"] == 1
        (sentence,) = report["unusable_examples"]
        assert says in sentence
        assert len(all_episodes(tmp_path / name)["1"].steps) == 1


def test_a_record_without_an_id_is_counted(tmp_path: Path) -> None:
    shard = tmp_path / "general-00000-of-00001"
    write_shard(shard, [record("1", 0, 1), b"\xff\xff", record("2", 0, 1)])
    report = made(shard, tmp_path / "out")
    assert (report["episodes"], report["dropped_steps"]) == (2, {"bad record": 1})
    assert f"bad record 1 of {shard}" in report["unusable_examples"][0]
    write_shard(shard, [b"\xff\xff"])
    assert "1 bad record" in refused(tmp_path, str(shard), str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ('{"train": ["1", "2"], "test": ["2"]}', "under two labels, the first is '2' in train and test"),
        ('{"dev": ["1"]}', "label 'dev'"),
        ('{"train": "1"}', "no list"),
        ('{"train": [1.5]}', "no list"),
        ("[]", "not an object"),
        ("{", "JSON"),
        ('{"train": ["404"]}', "no episode"),
    ],
)
def test_a_bad_split_file(split: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(split)
    sentence = refused(tmp_path, str(FIXTURE), str(tmp_path / "out"), "--split", str(tmp_path / "split.json"))
    assert says in sentence


def test_missing_or_empty_sources(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_shard(tmp_path / "nothing-00000-of-00001", [])
    out = str(tmp_path / "out")
    assert "no folder or file" in refused(tmp_path, str(tmp_path / "none"), out)
    assert "no shards" in refused(tmp_path, str(tmp_path / "empty"), out)
    assert "no records" in refused(tmp_path, str(tmp_path / "nothing-00000-of-00001"), out)
    assert "no split file" in refused(tmp_path, str(FIXTURE), out, "--split", str(tmp_path / "none.json"))


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for more in ([], ["--force"]):
        assert "no prepared data" in refused(tmp_path, str(FIXTURE), str(out), *more)
    (out / "meta.json").write_text('{"format": "something else"}')
    assert "no prepared data" in refused(tmp_path, str(FIXTURE), str(out), "--force")
    assert (out / "thesis.txt").read_text() == "mine"


def test_own_data_is_replaced_with_force_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty folder is no obstacle
    made(FIXTURE, out)
    assert "--force" in refused(tmp_path, str(FIXTURE), str(out))
    made(FIXTURE, out, bins=50, force=True)
    assert Prepared.open(out).meta["bins"] == 50
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_a_failed_replacement_keeps_the_old(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(FIXTURE, out)
    damaged = FIXTURE / "damaged" / "general-bad_data_crc"
    assert "damaged" in refused(tmp_path, str(damaged), str(out), "--force")
    assert len(all_episodes(out)) == 11


def test_a_source_inside_the_output_is_refused(tmp_path: Path) -> None:
    shard = tmp_path / "out" / "general-00000-of-00001"
    shard.parent.mkdir()
    write_shard(shard, [record("1", 0, 1)])
    assert "inside" in refused(tmp_path, str(shard), str(tmp_path / "out"))


# --- show -----------------------------------------------------------------------------------------------------------


def test_show_colours_exactly_the_trained_words(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out", split=FIXTURE / STYLES[0])
    console = Console(width=100, record=True, color_system="truecolor", file=io.StringIO())
    prepared = Prepared.open(tmp_path / "out")
    episode = show(prepared, 1, "train", tmp_path / "strip.png", Grammar(screens=4), console)
    styled = console.export_text(styles=True)
    language = Grammar().language
    green = re.findall(r"\x1b\[32m(.*?)\x1b\[0m", styled)
    assert [words.rstrip("■") for words in green if words] == [
        language.say(step.action) for step in episode.steps
    ]
    assert "[screen 24x48]" in styled
    picture = np.asarray(Image.open(tmp_path / "strip.png").convert("RGB"))
    is_green = (picture == (0x1A, 0x8F, 0x3C)).all(-1)
    assert is_green.any()  # letters of trained words
    assert picture.shape[1] > 4 * 24


def test_show_names_what_is_not_there(tmp_path: Path) -> None:
    made(FIXTURE, tmp_path / "out", split=FIXTURE / STYLES[0])
    prepared = Prepared.open(tmp_path / "out")
    for index in (4, -1):
        with pytest.raises(ValueError, match="it has 4"):
            show(prepared, index, "train")
    with pytest.raises(ValueError, match="split"):
        show(prepared, 0, "dev")


# --- recorded by people ---------------------------------------------------------------------------------------------


def real_records() -> list[Record]:
    rows = [json.loads(line) for line in (REAL / "episodes.jsonl").read_text("utf-8").splitlines()]
    made = []
    for row in rows:
        if not row["source"].startswith("aitw:"):
            continue
        pixels = np.asarray(Image.open(REAL / row["image"]).convert("RGB"))
        boxes, texts, kinds = (
            row[f"image/ui_annotations_{name}"] for name in ("positions", "text", "ui_types")
        )
        drawn = Annotations([number for box in boxes for number in box], texts, kinds)
        first = (row["episode_id"], row["step_id"], row["episode_length"], row["goal_info"])
        device = (
            row.get("android_api_level", 30),
            row.get("device_type", ""),
            row.get("current_activity", ""),
        )
        points = (tuple(row["results/yx_touch"]), tuple(row["results/yx_lift"]))
        made.append(
            Record(
                *first,
                *device,
                pixels,
                drawn,
                row["results/action_type"],
                *points,
                row["results/type_action"],
            )
        )
    return made


class Recorded:
    """An agent that says what was recorded, in the words of the grammar."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.steps = iter([step for episode in episodes for step in episode.steps])

    def reset(self) -> None: ...

    def act(self, history: History) -> Decision:
        words = Language().say(next(self.steps).action)
        return Decision(Language().parse(words), words)


@pytest.mark.skipif(
    not REAL.is_dir(), reason="the recorded episodes (shared/real beside the checkout) are absent"
)
def test_real_episodes_go_all_the_way(tmp_path: Path) -> None:
    records = real_records()
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    write_shard(source / "real-00000-of-00001", map(to_example, records))
    assert len(list(read_records(source / "real-00000-of-00001"))) == 9
    report = made(source, out, codec="png")
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
    prepared = Prepared.open(out)
    filled = {split: found for split in prepared.meta["splits"] if (found := prepared.episodes(split))}
    assert sum(len(episodes) for episodes in filled.values()) == 2
    for split, episodes in filled.items():
        verdicts = evaluate(Recorded(episodes), episodes, tmp_path / f"{split}.jsonl")
        assert len(verdicts) == sum(len(episode.steps) for episode in episodes)
        assert all(verdict.correct for verdict in verdicts)  # each action matches what its own words say
        for i in range(len(episodes)):
            episode = show(prepared, i, split, tmp_path / "strip.png", console=Console(quiet=True))
            assert Image.open(tmp_path / "strip.png").width > 200 * len(episode.steps)

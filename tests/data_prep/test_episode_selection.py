"""The selection of episodes, the format of screens, remote sources and executors."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_prep import tfrecord
from data_prep.__main__ import prepare
from data_prep.formats.aitw import to_example
from data_prep.settings import ImageSettings, PrepSettings
from data_prep.source_files import open_binary
from data_prep.split import HASH_RULE, EpisodeSelection, SplitRule, parent_id, parse_subsample
from data_prep.tfrecord import write_shard
from tests.helpers.foreign_formats import golden, write_jsonl
from tests.helpers.paths import ROOT
from tests.helpers.prepared_data import (
    FIXTURE,
    all_episodes,
    command,
    content,
    fully_counted,
    made,
    record,
    refused,
    step,
)
from uivlm.episodes import rows
from uivlm.episodes.dataset import PreparedData

BY_HASH = SplitRule(HASH_RULE)


def shard(folder: Path, name: str, episodes: range) -> None:
    folder.mkdir(exist_ok=True)
    examples = [record(f"{name}{i}", t, 2) for i in episodes for t in range(2)]
    write_shard(folder / f"{name}-00000-of-00001", examples)


@pytest.mark.slow
def test_a_subsample_is_of_whole_train_episodes_and_reproducible(tmp_path: Path) -> None:
    shard(tmp_path / "source", "google_apps", range(200))
    shard(tmp_path / "source", "install", range(40))
    reports, kept = [], []
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        choice = EpisodeSelection(BY_HASH, subsample={"google_apps": 0.25}, seed=seed)
        reports.append(prepare(tmp_path / "source", tmp_path / name, settings=PrepSettings(selection=choice)))
        kept.append(set(all_episodes(tmp_path / name)))
    assert kept[0] == kept[1] != kept[2]
    everything = prepare(tmp_path / "source", tmp_path / "all")
    for report in reports:
        assert fully_counted(report)
        for split in ("validation", "test"):
            assert report["by_split"][split] == everything["by_split"][split]
        assert report["by_subset"]["install"] == everything["by_subset"]["install"]
        left = report["dropped_episodes"]["not in the subsample"]
        assert report["episodes"] == everything["episodes"] - left
        assert 0.6 < left / 160 < 0.9  # 0.75 of about 160 train episodes; a binomial stays within
        assert report["dropped_steps"]["not in the subsample"] == 2 * left


def test_no_screen_of_an_excluded_episode_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(tmp_path / "source", "general", range(30))
    encoded, encode = 0, rows.encode_image

    def counted(*arguments: Any) -> bytes:
        nonlocal encoded
        encoded += 1
        return encode(*arguments)

    monkeypatch.setattr(rows, "encode_image", counted)
    report = prepare(
        tmp_path / "source",
        tmp_path / "out",
        settings=PrepSettings(selection=EpisodeSelection(BY_HASH, subsample={"general": 0.0})),
    )
    assert encoded == report["steps"] < report["records_read"]


@pytest.mark.slow
def test_only_the_named_subsets(tmp_path: Path) -> None:
    arguments = ["--subset", "single", "--workers", "1"]
    subprocess.run(
        [sys.executable, "-m", "data_prep", str(FIXTURE), str(tmp_path / "out"), *arguments],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(report["by_subset"]) == ["single"]
    assert report["shards"] == {"read": 1, "found": 1, "missing": {}}
    assert fully_counted(report)


@pytest.mark.parametrize("option", ["--subset", "--subsample"])
def test_a_subset_that_is_not_there_is_rejected(option: str, tmp_path: Path) -> None:
    value = "singel" if option == "--subset" else "singel=0.1"
    sentence = refused(tmp_path, str(FIXTURE), str(tmp_path / "out"), option, value)
    assert sentence == f"error: {option[2:]}: got 'singel'; expected a subset of the source: general, single"


def test_only_the_shards_of_the_subset_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def count(path: str) -> Any:
        opened.append(Path(path).name)
        return open_binary(path)

    monkeypatch.setattr(tfrecord, "open_binary", count)
    for name in ("general", "google_apps", "install"):
        shard(tmp_path / "source", name, range(2))
    settings = PrepSettings(selection=EpisodeSelection(BY_HASH, frozenset({"general"})))
    report = prepare(tmp_path / "source", tmp_path / "out", settings=settings)
    assert set(opened) == {"general-00000-of-00001"}
    assert report["records_read"] == report["steps"] == 4


def test_a_part_with_several_subsets_is_read_for_each(tmp_path: Path) -> None:
    """A part of JSON Lines holds 64 episodes, whatever their subsets."""
    write_jsonl(tmp_path / "source" / "a.jsonl", golden())
    selection = EpisodeSelection(BY_HASH, frozenset({"install"}))
    settings = PrepSettings(format="jsonl", selection=selection)
    report = prepare(tmp_path / "source", tmp_path / "out", settings=settings)
    assert list(report["by_subset"]) == ["install"]
    assert report["dropped_episodes"] == {"not in the subsets": 4}


@pytest.mark.parametrize("argument", ["google_apps", "google_apps=ten", "google_apps=1.5", "=0.1", "a=nan"])
def test_a_bad_subsample_is_rejected(argument: str, tmp_path: Path) -> None:
    assert "expected SUBSET=FRACTION" in refused(
        tmp_path, str(FIXTURE), str(tmp_path / "out"), "--subsample", argument
    )


def test_subsamples_are_parsed() -> None:
    assert parse_subsample(["google_apps=0.1", "install=1"]) == {"google_apps": 0.1, "install": 1.0}


def test_screens_are_made_smaller_in_their_proportions(tmp_path: Path) -> None:
    source = tmp_path / "general-00000-of-00001"
    tall, small = step("1", 0, 1), step("2", 0, 1)
    write_shard(source, [to_example(tall), record("2", 0, 1)])
    report = prepare(
        source,
        tmp_path / "out",
        settings=PrepSettings(images=ImageSettings(image_format="png", max_height=100)),
    )
    assert report["screens"]["50x100"] == 1
    shown = all_episodes(tmp_path / "out")["1"].steps[0]
    expected = Image.fromarray(tall.pixels).resize((50, 100), Image.Resampling.LANCZOS)
    assert np.array_equal(shown.screen.pixels, np.asarray(expected))
    assert shown.action == small.action  # points are fractions
    assert PreparedData.open(tmp_path / "out").meta["max_height"] == 100


def test_a_lower_quality_takes_less_room_and_shows_the_same(tmp_path: Path) -> None:
    shard(tmp_path / "source", "general", range(5))
    sizes = {}
    for quality in (20, 95):
        prepare(
            tmp_path / "source",
            tmp_path / str(quality),
            settings=PrepSettings(images=ImageSettings(jpeg_quality=quality)),
        )
        sizes[quality] = sum(len(each) for each in content(tmp_path / str(quality)).values())
    assert sizes[20] < sizes[95]


def test_a_source_behind_a_url(tmp_path: Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for path in (FIXTURE / "general").iterdir():
        files.pipe(f"/bucket/aitw/general/{path.name}", path.read_bytes())
    made(FIXTURE / "general", tmp_path / "near")
    prepare("memory://bucket/aitw/general", tmp_path / "far")
    near, far = PreparedData.open(tmp_path / "near").meta, PreparedData.open(tmp_path / "far").meta
    assert far == near
    one = prepare("memory://bucket/aitw/general/general-00000-of-00002", tmp_path / "one")
    assert one["shards"]["read"] == 1
    assert "there is no folder or file memory://nothing" in refused(
        tmp_path, "memory://nothing", str(tmp_path / "out")
    )
    assert "cannot be opened" in refused(tmp_path, "nosuch://bucket/x", str(tmp_path / "out"))


@pytest.mark.slow
def test_a_url_is_read_by_many_workers(tmp_path: Path) -> None:
    prepare(f"file://{FIXTURE}", tmp_path / "far", workers=2)
    made(FIXTURE, tmp_path / "near")
    assert content(tmp_path / "far") == content(tmp_path / "near")


def test_parents_of_single_share_a_split_but_not_a_share() -> None:
    one, other = "5.0-3.Open it", "5.4-9.Close it"
    assert parent_id(one) == parent_id(other)
    assert BY_HASH.split_of(one) == BY_HASH.split_of(other)


# --- Ray ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    for number in range(6):
        write_shard(
            folder / f"general-{number:05d}-of-00006", [to_example(step(f"{number}", t, 4)) for t in range(4)]
        )
    return folder


@pytest.mark.slow
def test_a_worker_of_ray_is_killed_and_the_bytes_are_the_same(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray has no wheel for this system")
    prepare(source, tmp_path / "pool", settings=PrepSettings(images=ImageSettings(image_format="png")))
    run = subprocess.Popen(
        command(source, tmp_path / "ray", "--executor", "ray", "--workers", "2"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    victims = 0
    while run.poll() is None:
        for worker in _workers_at_work(run.pid):
            if victims < 1:
                os.kill(worker, signal.SIGKILL)
                victims += 1
        time.sleep(0.01)
    output = run.communicate()[0]
    assert run.returncode == 0, output
    assert victims == 1, "no worker of Ray was seen at work"
    assert content(tmp_path / "ray") == content(tmp_path / "pool")
    assert sorted(os.listdir(tmp_path)) == ["pool", "ray"]


@pytest.mark.slow
def test_several_machines_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    """Two nodes of one processor each, on this machine; each part says which of them did it."""
    pytest.importorskip("ray", reason="Ray has no wheel for this system")
    from ray.cluster_utils import Cluster

    prepare(source, tmp_path / "pool", settings=PrepSettings(images=ImageSettings(image_format="png")))
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        machines.add_node(num_cpus=1)
        run = subprocess.Popen(
            command(source, tmp_path / "ray", "--executor", "ray", "--workers", "2"),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "RAY_ADDRESS": machines.address},
        )  # fmt: skip
        nodes = set[int]()
        while run.poll() is None:
            nodes |= {node for worker in _workers_at_work(os.getsid(0)) if (node := _node(worker))}
            time.sleep(0.01)
        output = run.communicate()[0]
    finally:
        machines.shutdown()
    assert run.returncode == 0, output
    assert len(nodes) == 2, "one node did everything"
    assert content(tmp_path / "ray") == content(tmp_path / "pool")


def _node(worker: int) -> int | None:
    """The process of Ray that started this one: each node has its own."""
    try:
        told = Path(f"/proc/{worker}/status").read_text()
    except (OSError, ProcessLookupError):
        return None
    return int(told.partition("PPid:")[2].split()[0])


def _workers_at_work(session: int) -> Iterator[int]:
    """Processes of a session that Ray names after the function they run."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "cmdline").read_bytes()
                if told.startswith(b"ray::spill_part") and os.getsid(int(entry.name)) == session:
                    yield int(entry.name)
            except (OSError, ProcessLookupError):
                continue

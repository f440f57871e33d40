"""Sources with links to folders, names that are not UTF-8, and images that are transparent or turned."""

import json
import os
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_prep.__main__ import prepare
from data_prep.formats import aitw, aitz, trace
from data_prep.formats.image_files import read_pixels
from data_prep.settings import PrepSettings
from data_prep.source import FormatName
from data_prep.source_files import list_files
from data_prep.tfrecord import write_shard
from tests.helpers.foreign_formats import SCREEN, golden, png, reasons, write_aitz, write_jsonl, write_trace
from tests.helpers.prepared_data import FIXTURE, all_episodes, fully_counted, record
from uivlm.actions.action import Finish

ODD = os.fsdecode(b"o\xffdd")
NOT_LINUX = "the file system has UTF-8 names alone"


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    disk, source = tmp_path / "disk", tmp_path / "source"
    for folder in (disk / "general", disk / "screens", source):
        folder.mkdir(parents=True)
    write_shard(disk / "general" / "general-00000-of-00001", [record("1", 0, 1)])
    (source / "general").symlink_to(disk / "general")
    (source / "here").symlink_to(source)
    (disk / "general" / "back").symlink_to(source)
    assert [part.name for part in aitw.find(str(source))] == ["general/general-00000-of-00001"]
    assert prepare(source, tmp_path / "out")["steps"] == 1
    assert [file.name for file in list_files(str(tmp_path / "source"))] == ["general/general-00000-of-00001"]


def test_links_to_folders_of_aitz_and_traces(tmp_path: Path) -> None:
    write_aitz(tmp_path / "disk", golden()[:1])
    (tmp_path / "aitz" / "train").mkdir(parents=True)
    (tmp_path / "aitz" / "train" / "general").symlink_to(tmp_path / "disk" / "train" / "general")
    assert set(reasons(aitz, tmp_path / "aitz")) == {""}
    write_trace(tmp_path / "disk" / "run", "g", [(SCREEN, Finish("complete"))])
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "run").symlink_to(tmp_path / "disk" / "run")
    assert reasons(trace, tmp_path / "traces") == [""]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    source = tmp_path / "source"
    try:
        (source / ODD).mkdir(parents=True)
    except OSError:
        pytest.skip(NOT_LINUX)
    write_shard(source / ODD / "general-00000-of-00001", [record("1", 0, 1), b"\xff\xff"])
    write_shard(source / f"{ODD}-00000-of-00001", [record("2", 0, 1)])
    report = prepare(source, tmp_path / "out")
    assert fully_counted(report)
    assert {e.id: e.subset for e in all_episodes(tmp_path / "out").values()} == {
        "1": "general", "2": "o\\udcffdd",
    }  # fmt: skip
    assert "corrupt record 1 of o\\udcffdd/general-00000-of-00001" in report["unusable_examples"][0]


@pytest.mark.parametrize("name", ["trace", "aitz", "jsonl"])
def test_folders_that_are_not_utf8(name: FormatName, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_trace(tmp_path / "trace" / "run", "g", [(SCREEN, Finish("complete"))])
    write_aitz(tmp_path / "aitz", golden()[:1])
    write_jsonl(tmp_path / "jsonl" / "a.jsonl", golden()[:1])
    source.mkdir()
    try:
        shutil.move(tmp_path / name, source / ODD)
    except OSError:
        pytest.skip(NOT_LINUX)
    folder = source / ODD if name == "jsonl" else source
    report = prepare(folder, tmp_path / "out", PrepSettings(format=name))
    assert report["dropped_steps"] == {}
    assert report["episodes"] == 1


def test_the_report_has_no_folder_of_this_machine(tmp_path: Path) -> None:
    source = tmp_path / "aitw"
    source.mkdir()
    shutil.copy(FIXTURE / "damaged" / "general-bad_data_crc", source / "general-00000-of-00002")
    write_shard(source / "general-00001-of-00002", [record("1", 0, 1), b"\xff\xff"])
    prepare(source, tmp_path / "out")
    write_jsonl(tmp_path / "jsonl" / "a.jsonl", golden()[:1])
    write_trace(tmp_path / "traces" / "good", "g", [(SCREEN, Finish("complete"))])
    write_trace(tmp_path / "traces" / "bad", "h", [(SCREEN, Finish("complete"))])
    (tmp_path / "traces" / "bad" / "run.json").write_text("{")
    (tmp_path / "jsonl" / "screens" / "0-0.png").write_bytes(b"no image")
    keep_all = PrepSettings(format="jsonl", missing_steps="keep")
    prepare(tmp_path / "jsonl", tmp_path / "out2", keep_all)
    prepare(tmp_path / "traces", tmp_path / "out3", PrepSettings(format="trace"))
    for out, num_examples in (("out", 1), ("out2", 1), ("out3", 1)):
        for file in ("report.json", "report.html", "meta.json"):
            assert str(tmp_path) not in (tmp_path / out / file).read_text("utf-8"), file
        report = json.loads((tmp_path / out / "report.json").read_text("utf-8"))
        assert len(report["unusable_examples"]) == num_examples
    assert len(json.loads((tmp_path / "out" / "report.json").read_text())["damaged"]) == 1


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparent_parts_are_white(mode: str, tmp_path: Path) -> None:
    """Hidden black under a transparent upper half; the lower half is opaque."""
    pixels = np.zeros((4, 2, 4), np.uint8)
    pixels[2:] = (100, 100, 100, 255)
    file = tmp_path / "a.png"
    Image.fromarray(pixels).convert("LA" if mode != "RGBA" else mode).save(file)
    if mode == "PA":  # PNG has a palette with transparent entries
        Image.fromarray(pixels).quantize(4).save(file)
    found = read_pixels(file, "here")
    assert (found[:2] == 255).all()
    assert (found[2:] == 100).all()


def test_turned_images_are_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: shown after a quarter turn clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_pixels(tmp_path / "a.png", "here"), np.rot90(pixels, -1))


def test_more_pixels_than_a_screen_has(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """By the size in its header, before anything is decoded; Pillow's own warning is not printed."""
    data = png(tmp_path / "a.png", SCREEN)
    with pytest.raises(ValueError, match="got 13000 x 13000 pixels"):
        read_pixels(data[:16] + (13_000).to_bytes(4) * 2 + with_checksum(data, 13_000), "here")
    assert not recwarn.list


def with_checksum(data: bytes, side: int) -> bytes:
    """A PNG from the ninth byte of its header's content on, with the checksum of a square of this side."""
    content = data[12:16] + side.to_bytes(4) * 2 + data[24:29]
    return data[24:29] + zlib.crc32(content).to_bytes(4) + data[33:]

"""Prepared data of a stranger starts no program; damage is refused in one sentence that names the file."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.helpers.tiny_models import episode, prepare
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.images import ImageSizeError, open_image
from uivlm.episodes.rows import DamagedScreenError, decode_image, encode_image


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("whole") / "data", [episode(0, 3), episode(1, 2)])


def read_all(data: Path) -> None:
    prepared = PreparedData.open(data)
    for split in prepared.meta["splits"]:
        list(prepared.episodes(split))


def refusal(data: Path) -> str:
    with pytest.raises(ValueError, match=str(data)) as refused:
        read_all(data)
    assert "\n" not in str(refused.value)
    return str(refused.value)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in ("num_bins", "splits", "subsets", "shards", "fingerprint")),
        ("num_bins", "100"),
        ("num_bins", 0),
        ("splits", 3),
        ("splits", ["train"]),
        ("splits", {"train": "2"}),
        ("splits", {"train": -1}),
        ("subsets", "general"),
        ("shards", "train-0.parquet"),
        ("shards", ["train-0.parquet"]),
        ("shards", [{"file": "train-0.parquet"}]),
        ("shards", [{"steps": 5}]),
        ("shards", [{"file": 3, "steps": 5}]),
        ("shards", [{"file": "../train-0.parquet", "steps": 5}]),
        ("shards", [{"file": "/etc/passwd", "steps": 5}]),
        ("shards", [{"file": "train-0.parquet", "steps": 5.5}]),
        ("shards", {"0": {"file": "train-0.parquet", "steps": 5}}),
        ("fingerprint", 7),
        ("fingerprint", {}),
    ],
)
def test_a_meta_of_other_types(folder: Path, tmp_path: Path, field: str, value: object) -> None:
    data = Path(shutil.copytree(folder, tmp_path / "data"))
    meta = json.loads((data / "meta.json").read_text()) | {field: value}
    if value is None:
        del meta[field]
    (data / "meta.json").write_text(json.dumps(meta))
    assert f"meta.json.{field}" in refusal(data)


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "null", '"uivlm prepared data"', "\xff"])
def test_a_meta_that_is_no_object(folder: Path, tmp_path: Path, text: str) -> None:
    data = Path(shutil.copytree(folder, tmp_path / "data"))
    (data / "meta.json").write_text(text, "latin-1")
    assert "meta.json" in refusal(data)


def with_rows(folder: Path, data: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A copy of the data, its shard changed."""
    shutil.copytree(folder, data, ignore=shutil.ignore_patterns("episode_index"))
    shard = data / "train-0.parquet"
    pq.write_table(change(pq.read_table(shard)), shard, row_group_size=16)
    return data


def set_cell(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    cells = table[name].to_pylist()
    cells[row] = value
    field = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), field, pa.array(cells, field.type))


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [
        ("image", 1, None),
        ("image", 1, {"bytes": None, "path": None}),
        ("image", 1, {"bytes": None, "path": "/etc/passwd"}),
        ("image", 1, {"bytes": b"", "path": None}),
        ("action_type", 1, None),
        ("action_type", 1, 99),
        ("touch_y", 0, None),
        ("goal", 0, None),
        ("text", 2, None),
        ("height", 1, None),
        ("episode_id", 1, None),
        ("split", 1, None),
        ("t", 0, None),
        ("t", 0, 1),
        ("t", 1, 7),
        ("t", 1, -1),
        ("element_boxes", 1, [0.5]),
        ("element_boxes", 1, None),
    ],
)
def test_a_row_of_other_values(folder: Path, tmp_path: Path, name: str, row: int, value: Any) -> None:
    data = with_rows(folder, tmp_path / "data", lambda table: set_cell(table, name, row, value))
    assert "train-0.parquet" in refusal(data)


@pytest.mark.parametrize("name", ["image", "goal", "t", "action_type"])
def test_a_missing_column_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    data = with_rows(folder, tmp_path / "data", lambda table: table.drop_columns([name]))
    assert f"train-0.parquet: {name}: got none; expected" in refusal(data)


def test_a_column_of_another_type_is_named(folder: Path, tmp_path: Path) -> None:
    def as_text(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("t")
        return table.set_column(at, "t", table["t"].cast(pa.string()))

    data = with_rows(folder, tmp_path / "data", as_text)
    assert "train-0.parquet: t: got string; expected int32" in refusal(data)


def encoded(image: Image.Image, image_format: str) -> bytes:
    file = io.BytesIO()
    image.save(file, image_format)
    return file.getvalue()


def test_no_program_starts_for_a_picture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow gives EPS to Ghostscript. A stand-in on the PATH notes that it ran."""
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # searched once a process
    eps = encoded(Image.new("RGB", (10, 10)), "EPS")
    data = with_rows(
        folder, tmp_path / "data", lambda table: set_cell(table, "image", 1, {"bytes": eps, "path": None})
    )
    assert "a screen of episode 'e0' is damaged" in refusal(data)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("image_format", ["GIF", "BMP", "TIFF", "ICO", "PPM"])
def test_only_three_formats_are_screens(image_format: str) -> None:
    with pytest.raises(DamagedScreenError):
        decode_image(encoded(Image.new("RGB", (10, 10)), image_format))


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_a_huge_picture_is_not_decoded(image_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uivlm.episodes.images.MAX_SCREEN_PIXELS", 160_000)
    huge = encoded(Image.new("L", (1601, 100)), image_format)
    with pytest.raises(DamagedScreenError, match="got 1601 x 100 pixels; expected 1 to 160000"):
        decode_image(huge)
    with pytest.raises(ImageSizeError, match="got 1601 x 100 pixels"):
        open_image(huge)
    with open_image(encoded(Image.new("L", (1600, 100)), image_format)) as image:
        assert image.size == (1600, 100)


def test_what_is_not_a_bomb_is_decoded_as_before() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    assert np.array_equal(decode_image(encode_image(pixels, "png")), pixels)

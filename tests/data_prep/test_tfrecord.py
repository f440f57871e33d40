"""The TFRecord and Example readers against shards that TensorFlow wrote, and against every type of damage."""

import gzip
import hashlib
import json
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data_prep.formats.aitw import CorruptRecordError, parse_record
from data_prep.source import StepRecord
from data_prep.tfrecord import MAX_RECORD_BYTES, CorruptShardError, _masked_crc32c, read_records, write_shard
from tests.helpers.paths import GOLDEN

FIXTURE = GOLDEN / "aitw_fixture"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


def as_aitw(record: StepRecord) -> dict[str, object]:
    """A StepRecord under AITW's own names, as in expected.json."""
    pixels, (action_type, touch, lift, text) = record.pixels, record.aitw
    return {
        "episode_id": record.episode_id,
        "goal_info": record.goal,
        "step_id": record.step_id,
        "episode_length": record.episode_length,
        "android_api_level": record.android_api_level,
        "device_type": record.device_type,
        "current_activity": record.activity,
        "image/height": pixels.shape[0],
        "image/width": pixels.shape[1],
        "image/channels": pixels.shape[2],
        "image/encoded": {
            "sha256": hashlib.sha256(pixels.tobytes()).hexdigest(),
            "nbytes": pixels.nbytes,
            "rgb_top_left": pixels[0, 0].tolist(),
            "rgb_top_right": pixels[0, -1].tolist(),
            "rgb_bottom_left": pixels[-1, 0].tolist(),
        },
        "image/ui_annotations_positions": [
            number for e in record.annotations.elements for number in (e.y, e.x, e.height, e.width)
        ],
        "image/ui_annotations_text": [e.text for e in record.annotations.elements],
        "image/ui_annotations_ui_types": [e.ui_type for e in record.annotations.elements],
        "results/action_type": action_type,
        "results/yx_touch": list(touch),
        "results/yx_lift": list(lift),
        "results/type_action": text,
    }


@pytest.mark.parametrize("shard", EXPECTED)
def test_every_field_of_every_record(shard: str) -> None:
    records = [as_aitw(parse_record(data)) for data in read_records(FIXTURE / shard)]
    assert len(records) == len(EXPECTED[shard]) > 0
    for record, expected in zip(records, EXPECTED[shard], strict=True):
        assert record == expected


def test_the_fixture_is_complete() -> None:
    shards = {path.relative_to(FIXTURE).as_posix() for path in FIXTURE.rglob("*-of-*")}
    assert shards == set(EXPECTED)


@pytest.mark.parametrize(
    ("name", "damage_type"),
    [
        ("truncated_gzip", "truncated gzip"),
        ("truncated_record", "truncated record"),
        ("bad_data_crc", "data checksum"),
        ("bad_length", "length checksum"),
        ("not_gzipped", "not gzip"),
    ],
)
def test_each_damaged_shard_has_its_own_error(name: str, damage_type: str) -> None:
    path = FIXTURE / "damaged" / f"general-{name}"
    with pytest.raises(CorruptShardError) as caught:
        list(read_records(path))
    num_intact = 0 if name == "not_gzipped" else intact_records(path)
    assert (caught.value.damage_type, caught.value.record_index) == (damage_type, num_intact)
    assert str(path) in str(caught.value)


def intact_records(damaged: Path) -> int:
    """The number of records before the damage: those of the original shard that are unchanged."""
    content = np.frombuffer(inflated(damaged), np.uint8)
    counts = []
    for shard in EXPECTED:
        original = np.frombuffer(gzip.decompress((FIXTURE / shard).read_bytes()), np.uint8)
        size = min(len(content), len(original))
        changed = np.flatnonzero(content[:size] != original[:size])
        prefix = int(changed[0]) if len(changed) else size
        ends = np.cumsum([len(record) + 16 for record in read_records(FIXTURE / shard)])
        counts.append((prefix, int((ends <= prefix).sum())))
    return max(counts)[1]


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """A small shard by our writer, which a test below compares with TensorFlow's."""
    write_shard(tmp_path / "small", [b"one", b"", b"three" * 1000])
    return (tmp_path / "small").read_bytes()


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("damage", "damage_type"),
    [
        (lambda data: b"", "not gzip"),
        (lambda data: b"\x1f", "not gzip"),
        (lambda data: data[:5], "truncated gzip"),
        (lambda data: data[:-1], "truncated gzip"),
        (lambda data: flipped(data, len(data) - 8), "gzip checksum"),
        (lambda data: flipped(data, len(data) - 1), "gzip checksum"),
        (lambda data: data[:10] + b"\xff" * 20 + data[30:], "gzip damage"),
        (lambda data: data + b"garbage" * 2, "trailing garbage"),
        (lambda data: data + b"\x00" * 100 + b"garbage" * 2, "trailing garbage"),
        (lambda data: data + b"\x1f", "truncated gzip"),
        (lambda data: gzip.compress(gzip.decompress(data) + b"\x01\x02"), "truncated record"),
        (lambda data: gzip.compress(gzip.decompress(data)[:5]), "truncated record"),
        (lambda data: gzip.compress(flipped(gzip.decompress(data), 0)), "length checksum"),
        (lambda data: gzip.compress(flipped(gzip.decompress(data), 12)), "data checksum"),
    ],
)
def test_other_damage(
    small: bytes, tmp_path: Path, damage: Callable[[bytes], bytes], damage_type: str
) -> None:
    path = tmp_path / "general-00000-of-00001"
    path.write_bytes(damage(small))
    with pytest.raises(CorruptShardError) as caught:
        list(read_records(path))
    assert caught.value.damage_type == damage_type


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "flipped"
    good = [b"one", b"", np.random.default_rng(0).bytes(700)]  # no repeats: those can be encoded in two ways
    write_shard(path, good)
    small = path.read_bytes()
    header = range(3, 10)  # text flag, time, compressor, system: they say nothing of the content
    for at in set(range(len(small))) - set(header):
        path.write_bytes(flipped(small, at))
        with pytest.raises(CorruptShardError):
            pytest.fail(f"byte {at} made {list(read_records(path))}")


def test_a_senseless_length_is_refused_before_it_is_read(tmp_path: Path) -> None:
    length = struct.pack("<Q", MAX_RECORD_BYTES + 1)
    path = tmp_path / "long"
    path.write_bytes(gzip.compress(length + _masked_crc32c(length)))
    with pytest.raises(CorruptShardError, match="length of the record: got"):
        list(read_records(path))


def test_the_writer_frames_as_tensorflow_does(tmp_path: Path) -> None:
    for shard in EXPECTED:
        write_shard(tmp_path / "shard", read_records(FIXTURE / shard))
        written = (tmp_path / "shard").read_bytes()
        assert gzip.decompress(written) == gzip.decompress((FIXTURE / shard).read_bytes())
        write_shard(tmp_path / "again", read_records(FIXTURE / shard))
        assert (tmp_path / "again").read_bytes() == written


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def records():
        yield b"one"
        raise KeyError("the source failed")

    with pytest.raises(KeyError):
        write_shard(tmp_path / "shard", records())
    assert list(tmp_path.iterdir()) == []


def test_two_gzip_members_are_one_shard(small: bytes, tmp_path: Path) -> None:
    (tmp_path / "two").write_bytes(small + small)
    assert len(list(read_records(tmp_path / "two"))) == 6


def test_zeros_behind_the_stream_are_padding_as_gzip_has_it(small: bytes, tmp_path: Path) -> None:
    (tmp_path / "padded").write_bytes(small + bytes(100_000))
    assert [len(record) for record in read_records(tmp_path / "padded")] == [3, 0, 5000]


def test_a_shard_that_is_cut_off_gives_every_record_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    good = [rng.bytes(int(size)) for size in rng.integers(0, 40_000, 30)]
    write_shard(tmp_path / "whole", good)
    for left in rng.integers(20, (tmp_path / "whole").stat().st_size, 40):
        (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:left])
        with pytest.raises(CorruptShardError) as caught:
            list(read_records(tmp_path / "cut"))
        framed = len(inflated(tmp_path / "cut"))
        ends = np.cumsum([len(record) + 16 for record in good])
        assert caught.value.record_index == int((ends <= framed).sum())


def inflated(path: Path) -> bytes:
    """All that can be had of a gzip file that is cut off, by zlib itself."""
    return zlib.decompressobj(31).decompress(path.read_bytes())


def test_records_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    large = [bytes(3_000_000), np.random.default_rng(0).bytes(2_500_000), b"end"]
    write_shard(tmp_path / "large", large)
    assert list(read_records(tmp_path / "large")) == large


def test_errors_cross_process_borders() -> None:
    for error in (
        CorruptShardError("shard", 3, "not gzip", "why"),
        CorruptRecordError("shard", 3, "step_id", "why"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.record_index, type(again)) == (str(error), 3, type(error))

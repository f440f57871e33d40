"""The TFRecord and Example readers against shards that TensorFlow wrote, and against every kind of damage."""

import gzip
import hashlib
import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.aitw import SCREEN, BadRecord, parse_record, to_example
from data_prep.example import make_example, parse_example
from data_prep.record import Record
from data_prep.tfrecord import MAX_RECORD, DamagedShard, _checksum, read_records, write_shard
from uivlm.episode import Element, annotations

FIXTURE = Path(os.environ.get("UIVLM_GOLDEN") or Path(__file__).parent / "golden") / "aitw_fixture"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


def as_aitw(record: Record) -> dict[str, object]:
    """A Record under AITW's own names, as expected.json has them."""
    pixels = record.pixels
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
        "image/ui_annotations_ui_types": [e.kind for e in record.annotations.elements],
        "results/action_type": record.action_type,
        "results/yx_touch": list(record.touch),
        "results/yx_lift": list(record.lift),
        "results/type_action": record.text,
    }


@pytest.mark.parametrize("shard", EXPECTED)
def test_every_field_of_every_record(shard: str) -> None:
    records = [as_aitw(parse_record(data)) for data in read_records(FIXTURE / shard)]
    assert len(records) == len(EXPECTED[shard]) > 0
    for record, expected in zip(records, EXPECTED[shard], strict=True):
        assert record == expected


def test_the_fixture_is_all_there() -> None:
    assert sum(map(len, EXPECTED.values())) == 37


@pytest.mark.parametrize(
    ("name", "kind", "record"),
    [
        ("truncated_gzip", "truncated gzip", 11),
        ("truncated_record", "truncated record", 16),
        ("bad_data_crc", "data checksum", 0),
        ("bad_length", "length checksum", 0),
        ("not_gzipped", "not gzip", 0),
    ],
)
def test_each_damaged_shard_has_its_own_error(name: str, kind: str, record: int) -> None:
    path = FIXTURE / "damaged" / f"general-{name}"
    with pytest.raises(DamagedShard) as caught:
        list(read_records(path))
    assert (caught.value.kind, caught.value.record) == (kind, record)
    assert str(path) in str(caught.value)


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
    ("damage", "kind"),
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
def test_other_damage(small: bytes, tmp_path: Path, damage: Callable[[bytes], bytes], kind: str) -> None:
    path = tmp_path / "general-00000-of-00001"
    path.write_bytes(damage(small))
    with pytest.raises(DamagedShard) as caught:
        list(read_records(path))
    assert caught.value.kind == kind


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "flipped"
    good = [b"one", b"", np.random.default_rng(0).bytes(700)]  # no repeats: those can be said in two ways
    write_shard(path, good)
    small = path.read_bytes()
    header = range(3, 10)  # text flag, time, compressor, system: they say nothing of the content
    for at in set(range(len(small))) - set(header):
        path.write_bytes(flipped(small, at))
        with pytest.raises(DamagedShard):
            pytest.fail(f"byte {at} made {list(read_records(path))}")


def test_a_senseless_length_is_refused_before_it_is_read(tmp_path: Path) -> None:
    length = struct.pack("<Q", MAX_RECORD + 1)
    path = tmp_path / "long"
    path.write_bytes(gzip.compress(length + _checksum(length)))
    with pytest.raises(DamagedShard, match="more than"):
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
        with pytest.raises(DamagedShard) as caught:
            list(read_records(tmp_path / "cut"))
        framed = len(inflated(tmp_path / "cut"))
        ends = np.cumsum([len(record) + 16 for record in good])
        assert caught.value.record == int((ends <= framed).sum())


def inflated(path: Path) -> bytes:
    """All that can be had of a gzip file that is cut off, by zlib itself."""
    return zlib.decompressobj(31).decompress(path.read_bytes())


def test_records_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    large = [bytes(3_000_000), np.random.default_rng(0).bytes(2_500_000), b"end"]
    write_shard(tmp_path / "large", large)
    assert list(read_records(tmp_path / "large")) == large


def test_errors_cross_process_borders() -> None:
    for error in (DamagedShard("shard", 3, "not gzip", "why"), BadRecord("shard", 3, "step_id", "why")):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.record, type(again)) == (str(error), 3, type(error))


# --- Example and Record -------------------------------------------------------------------------------------------


def first_features() -> dict[str, list]:
    shard = next(iter(EXPECTED))
    return parse_example(next(read_records(FIXTURE / shard)))


def test_a_record_becomes_the_example_it_came_from() -> None:
    for shard in EXPECTED:
        for data in read_records(FIXTURE / shard):
            features = parse_example(data)
            for name in ("positions", "text", "ui_types"):
                features.setdefault(f"image/ui_annotations_{name}", [])
            assert parse_example(to_example(parse_record(data))) == features


def test_unpacked_numbers_are_read() -> None:
    """By hand: Example{1: Features{1: entry{1: name, 2: Feature{2 or 3: list{1: value, 1: value}}}}}."""

    def field(number: int, wire: int, payload: bytes) -> bytes:
        size = bytes([len(payload)]) if wire == 2 else b""
        return bytes([number << 3 | wire]) + size + payload

    def example(name: bytes, kind: int, values: bytes) -> bytes:
        entry = field(1, 2, name) + field(2, 2, field(kind, 2, values))
        return field(1, 2, field(1, 2, entry))

    floats = struct.pack("<f", 0.25), struct.pack("<f", -1)
    assert parse_example(example(b"f", 2, field(1, 5, floats[0]) + field(1, 5, floats[1]))) == {
        "f": [0.25, -1.0]
    }
    assert parse_example(example(b"f", 2, field(1, 2, b"".join(floats)))) == {"f": [0.25, -1.0]}
    minus_two = b"\xfe" + b"\xff" * 8 + b"\x01"
    assert parse_example(example(b"i", 3, field(1, 0, b"\x07") + field(1, 0, minus_two))) == {"i": [7, -2]}
    assert parse_example(example(b"i", 3, field(1, 2, b"\x07" + minus_two))) == {"i": [7, -2]}


def outcome(data: bytes, large: str = "") -> str:
    """All that is read of an Example, or that it is malformed."""
    try:
        features = parse_example(data, large)
    except ValueError:
        return "malformed"
    return repr(sorted((name, [bytes(v) if isinstance(v, memoryview) else v for v in values])
                       for name, values in features.items()))  # fmt: skip


def test_a_screen_as_tensorflow_writes_it_is_not_copied() -> None:
    for shard in EXPECTED:
        for data in read_records(FIXTURE / shard):
            (screen,) = parse_example(data, large=SCREEN)[SCREEN]
            assert isinstance(screen, memoryview)
            assert screen.obj is data
            assert outcome(data, SCREEN) == outcome(data)


def wire(tag: int, *content: bytes) -> bytes:
    """A field that has a length, of less than 128 bytes."""
    data = b"".join(content)
    return bytes([tag, len(data)]) + data


KEY, BYTES = (
    wire(10, b"s"),
    wire(10, wire(10, b"screen")),
)  # tag 10: field 1, here a list of bytes, and its value
PLAIN = wire(10, KEY, wire(18, BYTES))
NUMBER = wire(10, wire(10, b"n"), wire(18, wire(26, b"\x08\x07")))


@pytest.mark.parametrize(
    "data",
    [
        wire(10, NUMBER, PLAIN, PLAIN.replace(b"screen", b"second")),  # the last one counts
        wire(10, PLAIN, wire(10, KEY, wire(18))),  # and has nothing
        wire(10, PLAIN) + wire(10, NUMBER),  # two Features are one
        wire(10, NUMBER) + wire(10, PLAIN),
        wire(10, wire(10, wire(18, BYTES), KEY)),  # value before key
        wire(10, wire(10, KEY, wire(18, BYTES), wire(10, b"t"))),  # another key behind: it counts
        wire(10, wire(10, KEY, wire(18, BYTES), wire(18, BYTES))),  # two Features of one entry are merged
        wire(10, wire(10, KEY, wire(18, wire(10, wire(10, b"a"), wire(10, b"b"))))),  # two values
        wire(10, wire(10, KEY, wire(18, BYTES, wire(26, b"\x08\x07")))),  # two lists: the last one counts
        wire(10, wire(10, KEY, wire(18, wire(26, b"\x08\x07")))),  # numbers
        wire(10, wire(10, KEY)),  # no Feature
        wire(10, wire(10, KEY), PLAIN[2:]),  # what would be its Feature lies behind it
        wire(10, PLAIN, b"\x18\x05"),  # a field nobody knows: passed over
        wire(10, PLAIN) + b"\x18\x05",
        wire(10, NUMBER[:-1], PLAIN),  # an entry shorter than its length
        wire(10, wire(10, KEY, wire(18, wire(10, b"\x0a\x07screen")))),  # a value longer than its list
        b"\x0a\x98\x80\x00" + NUMBER + PLAIN,  # a length in more bytes than it needs
        wire(10, NUMBER, wire(10, wire(10, b"\xff"), wire(18, BYTES)), PLAIN),  # a name that is not UTF-8
        wire(10, NUMBER),
        b"",
    ],
    ids=range(20),
)
def test_a_screen_that_lies_otherwise_is_what_protobuf_says(data: bytes) -> None:
    assert outcome(data, "s") == outcome(data)


def test_a_name_has_as_many_bytes_as_its_length_says() -> None:
    entry = wire(10, wire(10, "ä".encode()), wire(18, BYTES))
    (value,) = parse_example(wire(10, NUMBER, entry), large="ä")["ä"]
    assert isinstance(value, memoryview)


DATA = wire(10, NUMBER, PLAIN, wire(10, wire(10, b"f"), wire(18, wire(18, wire(10, bytes(8))))))


@settings(max_examples=2000, deadline=None)
@given(at=st.integers(0, len(DATA)), cut=st.integers(0, 6), put=st.binary(max_size=3) | st.just(PLAIN))
def test_whatever_is_changed_the_features_are_those_of_protobuf(at: int, cut: int, put: bytes) -> None:
    data = DATA[:at] + put + DATA[at + cut :]
    for changed in (data, wire(10, data[2:])):  # with the length before it right again
        assert outcome(changed, "s") == outcome(changed)


@pytest.mark.parametrize(
    ("key", "values", "says"),
    [
        ("episode_id", None, "missing"),
        ("goal_info", [b"\xff\xfe"], "UTF-8"),
        ("goal_info", [b"a", b"b"], "2 values"),
        ("step_id", [b"0"], "bytes"),
        ("step_id", [-1], "from 0"),
        ("image/encoded", [b"123"], "3 bytes"),
        ("image/height", [47], "bytes where"),
        ("image/channels", [4], "no RGB"),
        ("image/width", [0], "no RGB"),
        ("image/ui_annotations_text", [b"one"], "1 texts"),
        ("image/ui_annotations_text", [b"a", b"\xc3", b"c"], "UTF-8"),
        ("image/ui_annotations_positions", [0.5] * 11, "11 numbers"),
        ("results/action_type", [1], "action type"),
        ("results/yx_touch", [0.5], "1 values"),
        ("results/type_action", None, "missing"),
    ],
)
def test_a_bad_record_names_file_record_and_key(key: str, values: list | None, says: str) -> None:
    features = first_features()
    if values is None:
        del features[key]
    else:
        features[key] = values
    with pytest.raises(BadRecord) as caught:
        parse_record(make_example(features), "some/general-00000-of-00002", 7)
    text = str(caught.value)
    assert says in text
    assert "bad record 7 of some/general-00000-of-00002" in text
    assert caught.value.key.split("/")[0] == key.split("/")[0]


def test_bytes_that_are_no_example() -> None:
    with pytest.raises(BadRecord, match="record 2 of x"):
        parse_record(b"\xff\xff\xff", "x", 2)


def test_annotations_may_be_absent() -> None:
    features = first_features()
    for name in ("positions", "text", "ui_types"):
        del features[f"image/ui_annotations_{name}"]
    assert parse_record(make_example(features)).annotations.elements == ()


def test_whole_numbers_as_points_stay_floats() -> None:
    record = parse_record(make_example(first_features()))
    changed = replace(record, touch=(0, 1), lift=(0, 1), annotations=annotations([Element(0, 0, 1, 1)]))
    again = parse_record(to_example(changed))
    assert (again.touch, again.annotations.elements) == ((0.0, 1.0), (Element(0.0, 0.0, 1.0, 1.0),))

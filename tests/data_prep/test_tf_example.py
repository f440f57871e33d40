"""The Example parser and writer against protobuf, and records with every type of invalid field."""

import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.formats.aitw import IMAGE_KEY, CorruptRecordError, parse_record, to_example
from data_prep.tf_example import make_example, parse_example
from data_prep.tfrecord import read_records
from tests.helpers.paths import GOLDEN
from uivlm.actions.action import Point, Tap
from uivlm.episodes.episode import Element, to_annotations

FIXTURE = GOLDEN / "aitw_fixture"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["shards"]


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
            (screen,) = parse_example(data, large_feature=IMAGE_KEY)[IMAGE_KEY]
            assert isinstance(screen, memoryview)
            assert screen.obj is data
            assert outcome(data, IMAGE_KEY) == outcome(data)


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
    (value,) = parse_example(wire(10, NUMBER, entry), large_feature="ä")["ä"]
    assert isinstance(value, memoryview)


DATA = wire(10, NUMBER, PLAIN, wire(10, wire(10, b"f"), wire(18, wire(18, wire(10, bytes(8))))))


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(at=st.integers(0, len(DATA)), cut=st.integers(0, 6), put=st.binary(max_size=3) | st.just(PLAIN))
def test_whatever_is_changed_the_features_are_those_of_protobuf(at: int, cut: int, put: bytes) -> None:
    data = DATA[:at] + put + DATA[at + cut :]
    for changed in (data, wire(10, data[2:])):  # with the length before it right again
        assert outcome(changed, "s") == outcome(changed)


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("episode_id", None, "missing"),
        ("goal_info", [b"\xff\xfe"], "UTF-8"),
        ("goal_info", [b"a", b"b"], "2 values"),
        ("step_id", [b"0"], "bytes"),
        ("step_id", [-1], "from 0"),
        ("image/encoded", [b"123"], "got 3 bytes"),
        ("image/height", [9973], "expected 9973 x"),
        ("image/channels", [4], "expected an RGB"),
        ("image/width", [0], "expected an RGB"),
        ("image/ui_annotations_text", [b"one"] * 97, "97 texts"),
        ("image/ui_annotations_text", [b"a", b"\xc3", b"c"], "UTF-8"),
        ("image/ui_annotations_positions", [0.5] * 11, "11 numbers"),
        ("results/action_type", [1], "action type"),
        ("results/yx_touch", [0.5], "1 values"),
        ("results/type_action", None, "missing"),
    ],
)
def test_a_bad_record_names_file_record_and_key(key: str, values: list | None, message: str) -> None:
    features = first_features()
    if values is None:
        del features[key]
    else:
        features[key] = values
    with pytest.raises(CorruptRecordError) as caught:
        parse_record(make_example(features), "some/general-00000-of-00002", 7)
    text = str(caught.value)
    assert message in text
    assert "corrupt record 7 of some/general-00000-of-00002" in text
    assert caught.value.key.split("/")[0] == key.split("/")[0]


def test_bytes_that_are_no_example() -> None:
    with pytest.raises(CorruptRecordError, match="record 2 of x"):
        parse_record(b"\xff\xff\xff", "x", 2)


def test_annotations_may_be_absent() -> None:
    features = first_features()
    for name in ("positions", "text", "ui_types"):
        del features[f"image/ui_annotations_{name}"]
    assert parse_record(make_example(features)).annotations.elements == ()


def test_whole_numbers_as_points_stay_floats() -> None:
    record = parse_record(make_example(first_features()))
    changed = replace(record, aitw=(4, (0, 1), (0, 1), ""), annotations=to_annotations([Element(0, 0, 1, 1)]))
    again = parse_record(to_example(changed))
    assert again.aitw == (4, (0.0, 1.0), (0.0, 1.0), "")
    assert (again.action, again.annotations.elements) == (Tap(Point(0, 1)), (Element(0.0, 0.0, 1.0, 1.0),))

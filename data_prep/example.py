"""tf.train.Example without TensorFlow: bytes in, named lists out, and the other way round.

The message is described at run time, so no protoc and no generated file is needed. Numbers may be packed
(TensorFlow's way) or one by one; both are read, packed is written.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Values = list[bytes] | list[memoryview] | list[int] | list[float]

_FIRST, _SECOND = 0x0A, 0x12  # on the wire, before a message's field 1 or 2 that has a length
_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "uivlm.example"  # any name: names are not on the wire


def parse_example(data: bytes, large: str = "") -> dict[str, Values]:
    """The features of one Example by name. A feature without a list is an empty list. ValueError if malformed.

    Where the feature `large` lies as TensorFlow writes it, its one value is a view of `data`: protobuf would copy it twice,
    which for a screen takes longer than all the rest.
    """
    example, cut = _EXAMPLE(), _cut(data, large) if large else None
    try:
        if cut:
            example.features.MergeFromString(cut[0])
        else:
            example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"it is no tf.train.Example ({error})") from None
    features: dict[str, Values] = {large: [cut[1]]} if cut else {}
    for name, feature in example.features.feature.items():
        if name in features:
            return parse_example(data)  # `large` is there twice: the last one counts
        kind = feature.WhichOneof("kind")
        features[name] = list(getattr(feature, kind).value) if kind else []
    return features


def _cut(data: bytes, name: str) -> tuple[bytes, memoryview] | None:
    """The Features on the wire without the feature `name`, and its value. None unless all on the way to it is as TensorFlow
    writes it: an Example of Features alone, in it entries, and this entry a key and a list of bytes with one value."""
    told = name.encode()
    key = bytes([_FIRST, len(told)]) + told
    try:
        start, end = _inside(data, 0, _FIRST)
        at, (first, last) = start, _inside(data, start, _FIRST)
        while not data.startswith(key, first):
            at, (first, last) = last, _inside(data, last, _FIRST)
        feature = _inside(data, first + len(key), _SECOND)
        values = _inside(data, feature[0], _FIRST)
        value = _inside(data, values[0], _FIRST)
    except (IndexError, ValueError):
        return None
    if end != len(data) or last > end or {feature[1], values[1], value[1]} != {last}:
        return None
    return data[start:at] + data[last:], memoryview(data)[slice(*value)]


def _inside(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Where the content of the field at `at` begins and ends. IndexError or ValueError where there is no such field."""
    if data[at] != tag:
        raise ValueError("another field")
    size = 0
    for shift in range(0, 35, 7):
        at += 1
        size |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return at + 1, at + 1 + size
    raise ValueError("a length that no message has")


def make_example(features: Mapping[str, Values]) -> bytes:
    """The Example with these features; the kind follows the values, an empty list says nothing of its kind."""
    example = _EXAMPLE()
    for name, values in features.items():
        feature = example.features.feature[name]
        match values:
            case []:
                feature.bytes_list.SetInParent()
            case [bytes(), *_]:
                feature.bytes_list.value.extend(values)
            case [int(), *_]:
                feature.int64_list.value.extend(values)
            case _:
                feature.float_list.value.extend(values)
    return bytes(example.SerializeToString(deterministic=True))


def _message(name: str, *fields: descriptor_pb2.FieldDescriptorProto) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=fields)


def _field(
    name: str, number: int, kind: Any, *, many: bool = False, of: str = "", packed: bool = False
) -> Any:
    field = _FIELD(name=name, number=number, type=kind, type_name=f".{_PACKAGE}.{of}" if of else None)
    field.label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
    if packed:
        field.options.packed = True
    return field


def _example_class() -> Any:
    """tensorflow/core/example/example.proto and feature.proto, as descriptors."""
    message = _FIELD.TYPE_MESSAGE
    kinds = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    feature = _message("Feature", *(_field(name, i, message, of=of) for i, (name, of) in enumerate(kinds, 1)))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = _message("Features", _field("feature", 1, message, many=True, of="Features.FeatureEntry"))
    entry = _message(
        "FeatureEntry", _field("key", 1, _FIELD.TYPE_STRING), _field("value", 2, message, of="Feature")
    )
    entry.options.map_entry = True
    features.nested_type.append(entry)
    file = descriptor_pb2.FileDescriptorProto(name="uivlm/example.proto", package=_PACKAGE, syntax="proto3")
    file.message_type.extend([
        _message("BytesList", _field("value", 1, _FIELD.TYPE_BYTES, many=True)),
        _message("FloatList", _field("value", 1, _FIELD.TYPE_FLOAT, many=True, packed=True)),
        _message("Int64List", _field("value", 1, _FIELD.TYPE_INT64, many=True, packed=True)),
        feature,
        features,
        _message("Example", _field("features", 1, message, of="Features")),
    ])  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


_EXAMPLE = _example_class()

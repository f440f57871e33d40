"""tf.train.Example without TensorFlow: bytes in, named lists out, and the reverse.

The message type is built at run time, without protoc and generated files. Packed numbers (as TensorFlow
writes) and unpacked ones are read; packed ones are written.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Values = list[bytes] | list[memoryview] | list[int] | list[float]

_FIRST, _SECOND = 0x0A, 0x12  # tags of field 1 and 2 with a length
_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "uivlm.tf_example"  # any name: names are not on the wire


def parse_example(data: bytes, large_feature: str = "") -> dict[str, Values]:
    """The features of an Example by name; a feature without values is an empty list. Raises ValueError.

    If `large_feature` is encoded as TensorFlow does, its value is a view of `data`. Protobuf would copy it
    twice, which takes longer for a screen than the rest of the parsing.
    """
    example, split = _EXAMPLE(), _split_feature(data, large_feature) if large_feature else None
    try:
        if split:
            example.features.MergeFromString(split[0])
        else:
            example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"it is not a tf.train.Example ({error})") from None
    features: dict[str, Values] = {large_feature: [split[1]]} if split else {}
    for name, feature in example.features.feature.items():
        if name in features:
            return parse_example(data)  # `large_feature` occurs twice: the last one counts
        list_name = feature.WhichOneof("kind")
        features[name] = list(getattr(feature, list_name).value) if list_name else []
    return features


def _split_feature(data: bytes, name: str) -> tuple[bytes, memoryview] | None:
    """The encoded Features without the feature `name`, and the value of that feature.

    None unless everything up to the value is encoded as by TensorFlow: an Example that holds only Features,
    which hold only entries. This entry must be a key and a list of bytes with one value.
    """
    encoded_name = name.encode()
    key = bytes([_FIRST, len(encoded_name)]) + encoded_name
    try:
        start, end = _field_span(data, 0, _FIRST)
        entry, (first, last) = start, _field_span(data, start, _FIRST)
        while not data.startswith(key, first):
            entry, (first, last) = last, _field_span(data, last, _FIRST)
        feature = _field_span(data, first + len(key), _SECOND)
        values = _field_span(data, feature[0], _FIRST)
        value = _field_span(data, values[0], _FIRST)
    except (IndexError, ValueError):
        return None
    if end != len(data) or last > end or {feature[1], values[1], value[1]} != {last}:
        return None
    return data[start:entry] + data[last:], memoryview(data)[slice(*value)]


def _field_span(data: bytes, position: int, tag: int) -> tuple[int, int]:
    """The span of a field's content at `position`. Raises IndexError or ValueError for another field."""
    if data[position] != tag:
        raise ValueError("another field")
    size = 0
    for shift in range(0, 35, 7):
        position += 1
        size |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            return position + 1, position + 1 + size
    raise ValueError("an invalid length")


def make_example(features: Mapping[str, Values]) -> bytes:
    """The Example with these features, typed by their first values; an empty list becomes a bytes list."""
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
    name: str,
    tag: int,
    field_type: Any,
    *,
    repeated: bool = False,
    message_type: str = "",
    packed: bool = False,
) -> Any:
    field = _FIELD(
        name=name,
        number=tag,
        type=field_type,
        type_name=f".{_PACKAGE}.{message_type}" if message_type else None,
    )
    field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    if packed:
        field.options.packed = True
    return field


def _example_class() -> Any:
    """tensorflow/core/example/example.proto and feature.proto, as descriptors."""
    message = _FIELD.TYPE_MESSAGE
    lists = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    feature = _message(
        "Feature", *(_field(name, i, message, message_type=of) for i, (name, of) in enumerate(lists, 1))
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = _message(
        "Features", _field("feature", 1, message, repeated=True, message_type="Features.FeatureEntry")
    )
    entry = _message(
        "FeatureEntry",
        _field("key", 1, _FIELD.TYPE_STRING),
        _field("value", 2, message, message_type="Feature"),
    )
    entry.options.map_entry = True
    features.nested_type.append(entry)
    file = descriptor_pb2.FileDescriptorProto(name="uivlm/example.proto", package=_PACKAGE, syntax="proto3")
    file.message_type.extend([
        _message("BytesList", _field("value", 1, _FIELD.TYPE_BYTES, repeated=True)),
        _message("FloatList", _field("value", 1, _FIELD.TYPE_FLOAT, repeated=True, packed=True)),
        _message("Int64List", _field("value", 1, _FIELD.TYPE_INT64, repeated=True, packed=True)),
        feature,
        features,
        _message("Example", _field("features", 1, message, message_type="Features")),
    ])  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


_EXAMPLE = _example_class()

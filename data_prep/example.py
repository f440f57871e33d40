"""tf.train.Example without TensorFlow: bytes in, named lists out, and the other way round.

The message is described at run time, so no protoc and no generated file is needed. Numbers may be packed
(TensorFlow's way) or one by one; both are read, packed is written.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Values = list[bytes] | list[int] | list[float]

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "uivlm.example"  # any name: names are not on the wire


def parse_example(data: bytes) -> dict[str, Values]:
    """The features of one Example by name. A feature without a list is an empty list. ValueError if malformed."""
    example = _EXAMPLE()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"it is no tf.train.Example ({error})") from None
    features: dict[str, Values] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        features[name] = list(getattr(feature, kind).value) if kind else []
    return features


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

"""Tables of JSON become frozen dataclasses: in a type and a value, out the value as that type.

Strict: an unknown field, a missing one or another type is refused by its name, never converted; only a whole number may
stand for a float. Of several dataclasses the field `kind` chooses.
"""

import dataclasses
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints


class TreeError(ValueError):
    """A value that is not of its type; the text says where."""


def build(kind: Any, value: Any, where: str) -> Any:
    """`value` (from JSON) as `kind`; refuses unknown fields, missing fields and other types by name."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TreeError(f"{where} must be a table, not {value!r}")
        hints = get_type_hints(kind)
        if unknown := set(value) - set(hints):
            raise TreeError(f"{where} has no field {sorted(unknown)[0]!r} (fields: {', '.join(hints)})")
        try:
            return kind(**{name: build(hints[name], v, f"{where}.{name}") for name, v in value.items()})  # type: ignore[operator]
        except TypeError as error:
            raise TreeError(f"{where}: {error}") from error
    if get_origin(kind) is Literal:
        if not any(value == each and type(value) is type(each) for each in get_args(kind)):  # True == 1
            raise TreeError(f"{where} is {value!r}: it must be one of {', '.join(map(repr, get_args(kind)))}")
        return value
    if get_origin(kind) is tuple:  # tuple[int, ...]
        if not isinstance(value, list | tuple):
            raise TreeError(f"{where} is {value!r}: it must be a list")
        return tuple(build(get_args(kind)[0], each, where) for each in value)
    if isinstance(kind, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        return build(_chosen([k for k in get_args(kind) if k is not NoneType], value, where), value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise TreeError(f"{where} is {value!r}: it must be of type {kind.__name__}")
    return value


def _chosen(kinds: list[Any], value: Any, where: str) -> Any:
    """Which of several tables the value is, by its `kind`."""
    if len(kinds) == 1 or not isinstance(value, dict):
        return kinds[0]
    by_name = {get_args(get_type_hints(each)["kind"])[0]: each for each in kinds}
    if value.get("kind") not in by_name:
        raise TreeError(
            f"{where}.kind is {value.get('kind')!r}: it must be one of {', '.join(map(repr, by_name))}"
        )
    return by_name[value["kind"]]

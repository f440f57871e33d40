"""JSON values, taken strictly: whatever is missing, left over, of the wrong type or too large is a WireError that says where."""

import base64
import binascii
import json
import math
from typing import Any, NoReturn

MOST_CHARACTERS = 20_000  # of one text
MOST_VALUES = 5_000_000  # of a body: 201 screens of 2,000 elements have 2.8 million


class WireError(ValueError):
    """What came over the wire is not what it has to be."""


def read_json(text: str | bytes) -> object:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if sum(data.count(mark) for mark in (b"{", b"[", b",")) > MOST_VALUES:
        raise WireError(f"this JSON has more than {MOST_VALUES} values")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 are a ValueError too
        raise WireError(f"this is no JSON: {error}") from None


def fields_of(message: object, names: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        refuse(where, f"is {kind_of(message)}: it must be an object")
    missing, extra = set(names) - set(message), set(message) - set(names)
    if missing:
        refuse(where, f"lacks {', '.join(sorted(missing))}")
    if extra:
        refuse(where, f"has {', '.join(sorted(extra))[:80]}, which nobody reads")
    return message


def list_of(value: object, where: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        refuse(where, f"is {kind_of(value)}: it must be a list")
    if len(value) > most:
        refuse(where, f"has {len(value)} entries: at most {most} are read")
    return value


def str_of(value: object, where: str) -> str:
    if not isinstance(value, str):
        refuse(where, f"is {kind_of(value)}: it must be a string")
    if len(value) > MOST_CHARACTERS:
        refuse(where, f"has {len(value)} characters: at most {MOST_CHARACTERS} are read")
    return value


def number_of(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(where, f"is {kind_of(value)}: it must be a number")
    if abs(value) > 1e6 or not math.isfinite(value):
        refuse(where, "is no finite number near a screen")
    return float(value)


def kind_of(value: object) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def refuse(where: str, what: str) -> NoReturn:
    raise WireError(f"{where} {what}")


def base64_of(value: object, where: str) -> bytes:
    if not isinstance(value, str):  # of any length: the request's is limited
        refuse(where, f"is {kind_of(value)}: it must be a string of base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        refuse(where, f"is no base64: {error}")

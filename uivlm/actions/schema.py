"""Strict JSON by pydantic for the project's frozen dataclasses, and the one JSON of actions and gestures.

{"type": "tap", "at": {"y": 0.5, "x": 0.25}}              fractions of the screen
{"type": "invalid", "text": "...", "reason": "..."}
{"type": "touch", "points": [[20, 50]], "duration_ms": 60}   (x, y) pixels

Nothing is converted. An unknown, missing or repeated field, another type and a number that is not finite are
errors.
"""

import json
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import pydantic_core
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from uivlm.actions.action import Action as AnyAction
from uivlm.actions.action import Finish, InvalidAction, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Gesture as AnyGesture
from uivlm.actions.gesture import PressKey, Touch, TypeText

T = TypeVar("T")
JsonText = str | bytes | bytearray

KIND = ": 'kind' of uivlm 0.1 is now 'type' (of an element: 'ui_type')"  # the remedy for old JSON
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

MAX_FIELDS = 1_000  # of one object: pydantic keeps an error for each unknown field

# The discriminated unions are for fields of other dataclasses; the adapters for single values.
Action = Annotated[Tap | Swipe | Type | Press | Finish, Field(discriminator="type")]
ActionOrInvalid = Annotated[Tap | Swipe | Type | Press | Finish | InvalidAction, Field(discriminator="type")]
Gesture = Annotated[Touch | TypeText | PressKey, Field(discriminator="type")]

ACTION: TypeAdapter[AnyAction] = TypeAdapter(Action, config=STRICT)
ACTION_OR_INVALID: TypeAdapter[AnyAction | InvalidAction] = TypeAdapter(ActionOrInvalid, config=STRICT)
GESTURE: TypeAdapter[AnyGesture] = TypeAdapter(Gesture, config=STRICT)


class SchemaError(ValueError):
    """A value that does not fit its schema: the message has the field, the value and what is expected."""


def parse_json(adapter: TypeAdapter[T], data: JsonText, location: str) -> T:
    """The value in a JSON text. Raises SchemaError."""
    _check_objects(data, location)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        tree = None if first["type"] == "json_invalid" else pydantic_core.from_json(data)
        raise SchemaError(_describe(first, location, tree)) from None


def from_json(adapter: TypeAdapter[T], value: object, location: str) -> T:
    """The value of a parsed JSON tree. Raises SchemaError."""
    try:
        text = json.dumps(value)  # strict validation of a Python value would reject a list for a tuple
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"{location}: not a JSON value ({error})") from None
    _check_objects(text, location)
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise SchemaError(_describe(error.errors(include_url=False)[0], location, value)) from None


def _check_objects(data: JsonText, location: str) -> None:
    """Refuse what pydantic lets pass: of two equal keys it takes the last one, unseen."""

    def check(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) > MAX_FIELDS:
            raise SchemaError(f"{location}: an object has {len(pairs)} fields; expected at most {MAX_FIELDS}")
        if len(dict(pairs)) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise SchemaError(
                f"{location}: an object has the field {repeated[:80]!a} twice; expected it once"
            )

    try:
        json.loads(data, object_pairs_hook=check, parse_int=str)  # int() refuses some that pydantic names
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{location}: invalid JSON: {error}") from None


def dump_json(adapter: TypeAdapter[T], value: T, exclude_none: bool = False) -> bytes:
    """The JSON text of a value. NumPy's numbers are written as Python's, half a surrogate pair as U+FFFD.

    Raises ValueError for a number that is not finite.
    """
    try:
        data = adapter.dump_json(value, exclude_none=exclude_none, warnings=False, fallback=float)
    except PydanticSerializationError:  # half a surrogate pair
        return _dump_json_slowly(adapter, value, exclude_none)
    # Pydantic writes null for a number that is not finite, which json.dumps refuses.
    return _dump_json_slowly(adapter, value, exclude_none) if b"null" in data else data


def _dump_json_slowly(adapter: TypeAdapter[T], value: T, exclude_none: bool) -> bytes:
    tree = adapter.dump_python(value, exclude_none=exclude_none, warnings=False)
    text = json.dumps(tree, default=float, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _describe(first: ErrorDetails, location: str, tree: object) -> str:
    """One sentence on the first mistake: the field, what is expected, the value.

    `tree` is the parsed JSON. With it, the path is without the tags that pydantic adds for unions.
    """
    context, value = first.get("ctx", {}), first["input"]
    path = location + "".join(map(_path_part, _keys(first["loc"], tree)))
    match first["type"]:
        case "value_error":  # a check of ours: it names the field itself
            return first["msg"].removeprefix("Value error, ")
        case "missing":
            return f"{path}: field required{_kind_remedy(value)}"
        case "unexpected_keyword_argument":
            return f"{path}: unknown field, got {_summary(value)}{KIND if first['loc'][-1] == 'kind' else ''}"
        case "union_tag_not_found":
            tag = context["discriminator"].strip("'")
            return f"{path}.{tag}: field required{_kind_remedy(value)}"
        case "union_tag_invalid":
            tag = context["discriminator"].strip("'")
            return (
                f"{path}.{tag}: expected one of {context['expected_tags']}; got {str(context['tag'])[:80]!a}"
            )
        case "too_long":
            return f"{path}: expected at most {context['max_length']} items, got {context['actual_length']}"
        case "json_invalid":
            return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    message = first["msg"].replace("Input should be", "expected").replace("a valid array", "a list")
    message = message.replace("a valid ", "a ").replace("a integer", "an integer")
    return f"{path}: {message}, got {_summary(value)}"


def _kind_remedy(value: object) -> str:
    return KIND if isinstance(value, dict) and "kind" in value else ""


def _path_part(key: int | str) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key:.80}" if key.isidentifier() else f".{key[:80]!a}"


def _summary(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return f"{value[:80]!a}"
    return f"{value!a:.80}"


def _keys(parts: tuple[int | str, ...], tree: object) -> list[int | str]:
    """The path of an error without the tag that pydantic adds where a union is chosen by `type` or `role`."""
    keys: list[int | str] = []
    at_tag = True  # a tag is given once, right after its object
    for part in parts:
        if at_tag and isinstance(tree, dict) and part in (tree.get("type"), tree.get("role")):
            at_tag = False
            continue
        keys.append(part)
        try:
            tree, at_tag = tree[part], True  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            tree = None
    return keys


def action_to_json(value: AnyAction | InvalidAction | AnyGesture) -> dict[str, Any]:
    """Its type, then its fields; the same for actions and gestures."""
    fields = asdict(value)
    return {"type": fields.pop("type"), **fields}


def action_from_json(value: object, location: str = "action") -> AnyAction | InvalidAction:
    """The action that `action_to_json` wrote. Raises SchemaError for anything else."""
    return from_json(ACTION_OR_INVALID, value, location)


def gesture_from_json(value: object, location: str = "gesture") -> AnyGesture:
    """The gesture that `action_to_json` wrote. Raises SchemaError for anything else."""
    return from_json(GESTURE, value, location)

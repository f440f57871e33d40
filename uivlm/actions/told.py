"""Actions and gestures as plain JSON values, and back: what traces hold, and training data is read from.

{"kind": "Tap", "at": {"y": 0.5, "x": 0.25}}       fractions of the screen
{"kind": "NotAnAction", "words": "...", "reason": "..."}
{"kind": "Touch", "path": [[20, 50]], "ms": 60}    (x, y) pixels
"""

from dataclasses import asdict
from typing import Any

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.actions.language import NotAnAction


class UnknownKindError(ValueError):
    """It is told whole, but it is none of our actions or gestures."""


def told(thing: Action | NotAnAction | Gesture) -> dict[str, Any]:
    """Its kind, then its fields."""
    return {"kind": type(thing).__name__, **asdict(thing)}


def untold(value: object) -> Action | NotAnAction:
    """The action that `told` told. ValueError with one sentence for anything else."""
    match value:
        case {"kind": "Tap", "at": at}:
            return Tap(_point(at))
        case {"kind": "Swipe", "start": start, "end": end}:
            return Swipe(_point(start), _point(end))
        case {"kind": "Type", "text": text}:
            return Type(_text(text))
        case {"kind": "Press", "key": "back" | "home" | "enter" as key}:
            return Press(key)
        case {"kind": "Finish", "status": "complete" | "impossible" as status}:
            return Finish(status)
        case {"kind": "NotAnAction", "words": words, "reason": reason}:
            return NotAnAction(_text(words), _text(reason))
    raise _none_of(value, "action")


def untold_gesture(value: object) -> Gesture:
    """The gesture that `told` told. ValueError with one sentence for anything else."""
    match value:
        case {"kind": "Touch", "path": [_, *_] as path, "ms": ms}:
            return Touch(tuple(_pixel(place) for place in path), _whole(ms))
        case {"kind": "Keys", "text": text}:
            return Keys(_text(text))
        case {"kind": "Button", "name": "back" | "home" | "enter" as name}:
            return Button(name)
    raise _none_of(value, "gesture")


def _none_of(value: object, wanted: str) -> ValueError:
    match value:
        case {"kind": str(kind)}:
            return UnknownKindError(f"{kind[:40]!a} is no {wanted} that is known here, or it is not whole")
    return ValueError(f"{type(value).__name__} stands where the object of one {wanted} belongs")


def _point(value: object) -> Point:
    match value:
        case {"y": y, "x": x}:
            return Point(_number(y), _number(x))
    raise ValueError("a point is no object of y and x")


def _number(value: object) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{type(value).__name__} stands where a number belongs")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError("a huge number stands where a fraction of the screen belongs") from None


def _pixel(value: object) -> tuple[int, int]:
    match value:
        case [x, y]:
            return _whole(x), _whole(y)
    raise ValueError("a touch leads through something that is no pixel (x, y)")


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{type(value).__name__} stands where a whole number belongs")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} stands where a text belongs")
    return value

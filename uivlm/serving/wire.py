"""Histories and decisions as JSON, screens as PNG in base64; and back, strictly.

    history   {"goal": str, "steps": [{"screen": SCREEN, "action": ACTION}, ...], "screen": SCREEN}
    SCREEN    {"png": base64, "elements": [{"y", "x", "height", "width", "text", "kind"}, ...]}
    ACTION    {"kind": "tap", "at": {"y", "x"}} | {"kind": "swipe", "start", "end"} | {"kind": "type", "text"}
              | {"kind": "press", "key"} | {"kind": "finish", "status"}
    decision  {"action": ACTION or {"kind": "not an action", "words", "reason"}, "words": str, "confidence": number
              or null}

Whatever is missing, left over, of the wrong type or too large is a WireError that says where.
"""

import base64
import binascii
import io
import json
import math
import struct
from typing import Any, NoReturn

import numpy as np
from PIL import Image

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Decision
from uivlm.episode import Element, History, Screen, Step

MOST_PIXELS = 16_000_000  # of one screen; 1440 x 3120 has 4.5 million
MOST_STEPS = 200
MOST_CHARACTERS = 20_000  # of one text
MOST_ELEMENTS = 2_000  # of one screen
PNG_HEAD = struct.Struct(">8sI4sII")  # signature, length of the first chunk, its name, width, height


class WireError(ValueError):
    """What came over the wire is no history or no decision."""


def write_history(history: History, screens: dict[int, str] | None = None) -> str:
    """`screens`: PNGs made before, by the identity of the screen; new ones are added."""
    made = {} if screens is None else screens
    steps = [{"screen": _screen(step.screen, made), "action": _action(step.action)} for step in history.steps]
    return json.dumps({"goal": history.goal, "steps": steps, "screen": _screen(history.screen, made)})


def read_history(text: str | bytes) -> History:
    message = _fields(_json(text), ("goal", "steps", "screen"), "the history")
    goal = _str(message["goal"], "goal")
    if not goal.isascii() and any("\ud800" <= letter <= "\udfff" for letter in goal):
        _refuse("goal", "holds half of a surrogate pair")
    steps = _list(message["steps"], "steps", MOST_STEPS)
    return History(
        goal,
        tuple(_read_step(step, f"steps[{i}]") for i, step in enumerate(steps)),
        _read_screen(message["screen"], "screen"),
    )


def write_decision(decision: Decision) -> str:
    match decision.action:
        case NotAnAction(words, reason):
            action: dict[str, Any] = {"kind": "not an action", "words": words, "reason": reason}
        case known:
            action = _action(known)
    confidence = None if decision.confidence is None else float(decision.confidence)
    return json.dumps({"action": action, "words": decision.words, "confidence": confidence}, allow_nan=False)


def read_decision(text: str | bytes) -> Decision:
    message = _fields(_json(text), ("action", "words", "confidence"), "the decision")
    confidence = message["confidence"]
    if confidence is not None and not 0 <= (confidence := _number(confidence, "confidence")) <= 1:
        _refuse("confidence", f"is {confidence}: it must lie in [0, 1]")
    match message["action"]:
        case {"kind": "not an action", **rest}:
            fields = _fields(rest, ("words", "reason"), "action")
            action: Action | NotAnAction = NotAnAction(
                _str(fields["words"], "action.words"), _str(fields["reason"], "action.reason")
            )
        case other:
            action = _read_action(other, "action")
    return Decision(action, _str(message["words"], "words"), confidence)


def _screen(screen: Screen, made: dict[int, str]) -> dict[str, Any]:
    if id(screen) not in made:
        png = io.BytesIO()
        Image.fromarray(screen.pixels).save(png, "PNG", compress_level=1)
        made[id(screen)] = base64.b64encode(png.getvalue()).decode()
    elements = [
        {
            "y": float(element.y),
            "x": float(element.x),
            "height": float(element.height),
            "width": float(element.width),
            "text": element.text,
            "kind": element.kind,
        }
        for element in screen.elements
    ]
    return {"png": made[id(screen)], "elements": elements}


def _action(action: Action) -> dict[str, Any]:
    match action:
        case Tap(at):
            return {"kind": "tap", "at": _point(at)}
        case Swipe(start, end):
            return {"kind": "swipe", "start": _point(start), "end": _point(end)}
        case Type(text):
            return {"kind": "type", "text": text}
        case Press(key):
            return {"kind": "press", "key": key}
        case Finish(status):
            return {"kind": "finish", "status": status}


def _point(point: Point) -> dict[str, float]:
    return {"y": float(point.y), "x": float(point.x)}


def _read_step(message: object, where: str) -> Step:
    fields = _fields(message, ("screen", "action"), where)
    return Step(
        _read_screen(fields["screen"], f"{where}.screen"), _read_action(fields["action"], f"{where}.action")
    )


def _read_action(message: object, where: str) -> Action:
    match message:
        case {"kind": "tap", **rest}:
            return Tap(_read_point(_fields(rest, ("at",), where)["at"], f"{where}.at"))
        case {"kind": "swipe", **rest}:
            ends = _fields(rest, ("start", "end"), where)
            return Swipe(
                _read_point(ends["start"], f"{where}.start"), _read_point(ends["end"], f"{where}.end")
            )
        case {"kind": "type", **rest}:
            return Type(_str(_fields(rest, ("text",), where)["text"], f"{where}.text"))
        case {"kind": "press", "key": ("back" | "home" | "enter") as key, **rest}:
            _fields(rest, (), where)
            return Press(key)
        case {"kind": "finish", "status": ("complete" | "impossible") as status, **rest}:
            _fields(rest, (), where)
            return Finish(status)
    raise WireError(f"{where} is no action: {str(message)[:80]}")


def _read_point(message: object, where: str) -> Point:
    fields = _fields(message, ("y", "x"), where)
    return Point(_number(fields["y"], f"{where}.y"), _number(fields["x"], f"{where}.x"))


def _read_screen(message: object, where: str) -> Screen:
    fields = _fields(message, ("png", "elements"), where)
    png = fields["png"]
    if not isinstance(png, str):
        _refuse(f"{where}.png", f"is {_kind(png)}: it must be a string of base64")
    try:
        data = base64.b64decode(png, validate=True)
    except (binascii.Error, ValueError) as error:
        _refuse(f"{where}.png", f"is no base64: {error}")
    elements = _list(fields["elements"], f"{where}.elements", MOST_ELEMENTS)
    return Screen(
        _read_png(data, f"{where}.png"),
        tuple(_read_element(element, f"{where}.elements[{i}]") for i, element in enumerate(elements)),
    )


def _read_png(data: bytes, where: str) -> Any:
    """Pixels uint8 [H, W, 3]. The size is checked in the header, before anything is unpacked."""
    if len(data) < PNG_HEAD.size:
        _refuse(where, f"is no PNG: {len(data)} bytes")
    signature, _, chunk, width, height = PNG_HEAD.unpack_from(data)
    if signature != b"\x89PNG\r\n\x1a\n" or chunk != b"IHDR":
        _refuse(where, "is no PNG")
    if not 0 < width * height <= MOST_PIXELS:
        _refuse(where, f"has {width} x {height} pixels: at most {MOST_PIXELS} are read")
    try:
        return np.array(Image.open(io.BytesIO(data), formats=["PNG"]).convert("RGB"))
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError) as error:
        _refuse(where, f"is damaged: {error}")


def _read_element(message: object, where: str) -> Element:
    fields = _fields(message, ("y", "x", "height", "width", "text", "kind"), where)
    y, x, height, width = (_number(fields[name], f"{where}.{name}") for name in ("y", "x", "height", "width"))
    return Element(
        y, x, height, width, _str(fields["text"], f"{where}.text"), _str(fields["kind"], f"{where}.kind")
    )


def _json(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 are a ValueError too
        raise WireError(f"this is no JSON: {error}") from None


def _fields(message: object, names: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        _refuse(where, f"is {_kind(message)}: it must be an object")
    missing, extra = set(names) - set(message), set(message) - set(names)
    if missing:
        _refuse(where, f"lacks {', '.join(sorted(missing))}")
    if extra:
        _refuse(where, f"has {', '.join(sorted(extra))[:80]}, which nobody reads")
    return message


def _list(value: object, where: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        _refuse(where, f"is {_kind(value)}: it must be a list")
    if len(value) > most:
        _refuse(where, f"has {len(value)} entries: at most {most} are read")
    return value


def _str(value: object, where: str) -> str:
    if not isinstance(value, str):
        _refuse(where, f"is {_kind(value)}: it must be a string")
    if len(value) > MOST_CHARACTERS:
        _refuse(where, f"has {len(value)} characters: at most {MOST_CHARACTERS} are read")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, f"is {_kind(value)}: it must be a number")
    if abs(value) > 1e6 or not math.isfinite(value):
        _refuse(where, "is no finite number near a screen")
    return float(value)


def _kind(value: object) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _refuse(where: str, what: str) -> NoReturn:
    raise WireError(f"{where} {what}")

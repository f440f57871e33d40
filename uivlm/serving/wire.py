"""Histories and decisions as JSON, screens as PNG in base64; and back, strictly.

    history   {"goal": str, "steps": [{"screen": SCREEN, "action": ACTION}, ...], "screen": SCREEN}
    SCREEN    {"png": base64 or "sha256": of a PNG that was sent lately, "elements": [{"y", "x", "height", "width", "text",
              "kind"}, ...]}
    ACTION    {"kind": "tap", "at": {"y", "x"}} | {"kind": "swipe", "start", "end"} | {"kind": "type", "text"}
              | {"kind": "press", "key"} | {"kind": "finish", "status"}
    decision  {"action": ACTION or {"kind": "not an action", "words", "reason"}, "words": str, "confidence": number
              or null, "kind_confidence": number or null, "gesture": GESTURE or null, "timings": {"waited_ms", "took_ms",
              "together"}}; where they were asked for, "likeliest": a list of the same, without timings
    GESTURE   {"kind": "touch", "path": [[x, y], ...] in pixels, "ms"} | {"kind": "keys", "text"} | {"kind": "button", "name"}

Whatever is missing, left over, of the wrong type or too large is a WireError that says where.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any

from PIL import Image

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import gesture
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Decision
from uivlm.episode import Element, History, Screen, Step
from uivlm.serving.pictures import PictureError, Pictures, Unpacking, digest
from uivlm.serving.strict import (
    WireError,
    base64_of,
    fields_of,
    list_of,
    number_of,
    read_json,
    refuse,
    str_of,
)

MOST_STEPS = 200
MOST_ELEMENTS = 2_000  # of one screen


class UnknownScreenError(WireError):
    """A screen was named that is not kept here (any more): it has to be sent."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A screen's picture as it is sent."""

    png: str  # base64
    sha256: str  # of the PNG

    @staticmethod
    def of(screen: Screen) -> "Packed":
        file = io.BytesIO()
        Image.fromarray(screen.pixels).save(file, "PNG", compress_level=1)
        return Packed(base64.b64encode(file.getvalue()).decode(), digest(file.getvalue()))


def write_history(
    history: History, packed: Callable[[Screen], Packed] = Packed.of, known: AbstractSet[str] = frozenset()
) -> str:
    """`known`: digests of pictures that the reader has; they are named, not sent."""
    steps = [
        {"screen": _screen(step.screen, packed, known), "action": _action(step.action)}
        for step in history.steps
    ]
    return json.dumps(
        {"goal": history.goal, "steps": steps, "screen": _screen(history.screen, packed, known)}
    )


def read_history(text: str | bytes, seen: Pictures) -> History:
    message = fields_of(read_json(text), ("goal", "steps", "screen"), "the history")
    goal = str_of(message["goal"], "goal")
    if not goal.isascii() and any("\ud800" <= letter <= "\udfff" for letter in goal):
        refuse("goal", "holds half of a surrogate pair")
    steps = list_of(message["steps"], "steps", MOST_STEPS)
    screens = Unpacking(seen)
    return History(
        goal,
        tuple(_read_step(step, f"steps[{i}]", screens) for i, step in enumerate(steps)),
        _read_screen(message["screen"], "screen", screens),
    )


def write_decision(
    decision: Decision,
    size: tuple[int, int],
    timings: Mapping[str, float],
    likeliest: Sequence[Decision] | None = None,
) -> str:
    """`size`: height and width of the screen that was decided on; its pixels are those of the gesture."""
    told = {**_decision(decision, size), "timings": dict(timings)}
    if likeliest is not None:
        told["likeliest"] = [_decision(one, size) for one in likeliest]
    return json.dumps(told, allow_nan=False)


def _decision(decision: Decision, size: tuple[int, int]) -> dict[str, Any]:
    match decision.action:
        case NotAnAction(words, reason):
            action: dict[str, Any] = {"kind": "not an action", "words": words, "reason": reason}
            done = None
        case known:
            action, done = _action(known), gesture(known, *size)
    return {
        "action": action,
        "words": decision.words,
        "confidence": None if decision.confidence is None else float(decision.confidence),
        "kind_confidence": None if decision.kind_confidence is None else float(decision.kind_confidence),
        "gesture": None if done is None else {"kind": type(done).__name__.lower(), **asdict(done)},
    }


def read_decision(text: str | bytes) -> Decision:
    """What follows from it, gesture and timings, is for other readers."""
    names = ("action", "words", "confidence", "kind_confidence", "gesture", "timings")
    message = fields_of(read_json(text), names, "the decision")
    confidence, kind = (_share(message[name], name) for name in ("confidence", "kind_confidence"))
    match message["action"]:
        case {"kind": "not an action", **rest}:
            fields = fields_of(rest, ("words", "reason"), "action")
            action: Action | NotAnAction = NotAnAction(
                str_of(fields["words"], "action.words"), str_of(fields["reason"], "action.reason")
            )
        case other:
            action = _read_action(other, "action")
    return Decision(action, str_of(message["words"], "words"), confidence, kind)


def _share(value: object, where: str) -> float | None:
    if value is not None and not 0 <= number_of(value, where) <= 1:
        refuse(where, f"is {value}: it must lie in [0, 1]")
    return None if value is None else number_of(value, where)


def _screen(screen: Screen, packed: Callable[[Screen], Packed], known: AbstractSet[str]) -> dict[str, Any]:
    picture = packed(screen)
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
    named = {"sha256": picture.sha256} if picture.sha256 in known else {"png": picture.png}
    return {**named, "elements": elements}


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


def _read_step(message: object, where: str, screens: Unpacking) -> Step:
    fields = fields_of(message, ("screen", "action"), where)
    return Step(
        _read_screen(fields["screen"], f"{where}.screen", screens),
        _read_action(fields["action"], f"{where}.action"),
    )


def _read_action(message: object, where: str) -> Action:
    match message:
        case {"kind": "tap", **rest}:
            return Tap(_read_point(fields_of(rest, ("at",), where)["at"], f"{where}.at"))
        case {"kind": "swipe", **rest}:
            ends = fields_of(rest, ("start", "end"), where)
            return Swipe(
                _read_point(ends["start"], f"{where}.start"), _read_point(ends["end"], f"{where}.end")
            )
        case {"kind": "type", **rest}:
            return Type(str_of(fields_of(rest, ("text",), where)["text"], f"{where}.text"))
        case {"kind": "press", "key": ("back" | "home" | "enter") as key, **rest}:
            fields_of(rest, (), where)
            return Press(key)
        case {"kind": "finish", "status": ("complete" | "impossible") as status, **rest}:
            fields_of(rest, (), where)
            return Finish(status)
    raise WireError(f"{where} is no action: {str(message)[:80]}")


def _read_point(message: object, where: str) -> Point:
    fields = fields_of(message, ("y", "x"), where)
    return Point(number_of(fields["y"], f"{where}.y"), number_of(fields["x"], f"{where}.x"))


def _read_screen(message: object, where: str, screens: Unpacking) -> Screen:
    known = isinstance(message, dict) and "png" not in message
    fields = fields_of(message, ("sha256" if known else "png", "elements"), where)
    listed = list_of(fields["elements"], f"{where}.elements", MOST_ELEMENTS)
    elements = tuple(_read_element(element, f"{where}.elements[{i}]") for i, element in enumerate(listed))
    name = f"{where}.{'sha256' if known else 'png'}"
    try:
        if not known:
            return screens.sent(base64_of(fields["png"], name), elements, "PNG")
        found = screens.named(str_of(fields["sha256"], name), elements)
    except PictureError as error:
        refuse(name, str(error))
    if found is None:
        raise UnknownScreenError(f"{name} names a picture that is not kept here: send it as png")
    return found


def _read_element(message: object, where: str) -> Element:
    fields = fields_of(message, ("y", "x", "height", "width", "text", "kind"), where)
    y, x, height, width = (
        number_of(fields[name], f"{where}.{name}") for name in ("y", "x", "height", "width")
    )
    return Element(
        y, x, height, width, str_of(fields["text"], f"{where}.text"), str_of(fields["kind"], f"{where}.kind")
    )

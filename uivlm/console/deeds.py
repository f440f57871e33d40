"""What the page posts: the name of a deed and a JSON object in, the deed done on the session. Nothing of it is trusted.

start {goal, step_mode}    wait_each {on}        confirm {number}   deny {number}    take_over   hand_back   stop
record {goal}              finish {status}       look
gesture {screen, touch: [y, x], lift: [y, x]}    type {screen, text}                 press {screen, key}
"""

import json
import math
from typing import Any

from uivlm.actions.action import Point, Press, Type, dual_point
from uivlm.console.session import Session

MOST_GOAL, MOST_TEXT = 2_000, 10_000  # characters


class NoDeedError(ValueError):
    """There is no such deed, or it is not whole; the text says so."""


def read(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise NoDeedError("the body is no JSON") from None
    if not isinstance(told, dict):
        raise NoDeedError("the body is no JSON object")
    return told


def do(session: Session, deed: str, told: dict[str, Any]) -> None:
    """Raises NoDeedError, and what the session raises."""
    match deed, told:
        case "start", {"goal": goal, "step_mode": bool(on)}:
            session.start(_text("goal", goal, MOST_GOAL), on)
        case "wait_each", {"on": bool(on)}:
            session.wait_each(on)
        case "confirm", {"number": int(number)}:
            session.confirm(number, "yes")
        case "deny", {"number": int(number)}:
            session.confirm(number, "no")
        case "take_over", {}:
            session.take_over()
        case "hand_back", {}:
            session.hand_back()
        case "stop", {}:
            session.stop()
        case "record", {"goal": goal}:
            session.record(_text("goal", goal, MOST_GOAL))
        case "finish", {"status": "complete" | "impossible" as status}:
            session.finish(status)
        case "look", {}:
            session.look()
        case "gesture", {"screen": int(screen), "touch": touch, "lift": lift}:
            session.act(dual_point(_point("touch", touch), _point("lift", lift)), screen)
        case "type", {"screen": int(screen), "text": text}:
            session.act(Type(_text("text", text, MOST_TEXT)), screen)
        case "press", {"screen": int(screen), "key": "back" | "home" | "enter" as key}:
            session.act(Press(key), screen)
        case _:
            raise NoDeedError(f"{deed[:40]!a} is nothing that can be done here, or not told whole")


def _text(name: str, value: object, most: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise NoDeedError(f"the {name} is empty: write some words")
    if len(value) > most:
        raise NoDeedError(f"the {name} has {len(value)} characters: at most {most} are taken")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise NoDeedError(f"the {name} holds half of a surrogate pair: no keyboard has it")
    return value


def _point(name: str, value: object) -> Point:
    match value:
        case [int() | float() as y, int() | float() as x] if _fraction(y) and _fraction(x):
            return Point(float(y), float(x))
    raise NoDeedError(f"the {name} is no [y, x] of two fractions of the screen, from 0 to 1")


def _fraction(number: float) -> bool:
    return not isinstance(number, bool) and math.isfinite(number) and 0 <= number <= 1

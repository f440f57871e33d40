"""The bodies of `POST /act`: a history in, a decision out. Pydantic checks them and writes them.

    history   {"goal", "steps": [{"screen": SCREEN, "action": ACTION}, ...], "screen": SCREEN}
    SCREEN    {"png": base64, "elements": [{"y", "x", "height", "width", "text", "ui_type"}, ...]}
              or, for a PNG that was sent lately, its "sha256" instead of "png"
    ACTION    {"type": "tap", "at": {"y", "x"}} | {"type": "swipe", "start", "end"} | {"type": "type", "text"}
              | {"type": "press", "key"} | {"type": "finish", "status"}
    decision  {"action": ACTION or {"type": "invalid", "text", "reason"}, "text", "confidence",
              "action_type_confidence", "gesture": GESTURE,
              "timings": {"queue_ms", "inference_ms", "batch_size"}, "candidates"}
    GESTURE   {"type": "touch", "points": [[x, y], ...], "duration_ms"} | {"type": "text", "text"}
              | {"type": "key", "key"}, or null where nothing is touched

The server sends the gesture for clients in other languages, which then need no geometry of ours.
`RemoteAgent` ignores it.
"""

import base64
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, TypeAdapter, with_config
from pydantic_core import PydanticCustomError

from uivlm.actions import schema
from uivlm.actions.action import Action, InvalidAction, Point, Swipe, Tap, Type
from uivlm.actions.decision import Decision, finite_or_none
from uivlm.actions.gesture import Gesture, to_gesture
from uivlm.actions.schema import STRICT, JsonText, SchemaError, dump_json, parse_json
from uivlm.episodes.episode import Element, History, Screen, Step
from uivlm.serving.screen_cache import InvalidImageError, ScreenDecoder, decode_base64, digest

VERSION = 2  # of the bodies; `/health` reports it

MAX_STEPS = 200
MAX_ELEMENTS = 2_000  # of one screen
MAX_CHARACTERS = 20_000  # of one text
MAX_COORDINATE = 1e6  # a fraction of the screen; elements may lie outside it, but not this far
MAX_VALUES = 5_000_000  # of one body: 201 screens of 2,000 elements have 2.8 million

ActionType = TypeVar("ActionType", bound=Action | InvalidAction)
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Probability = Annotated[float, Field(ge=0, le=1)]


class UnknownScreenError(SchemaError):
    """A request names a screen that is not cached here; the client must send it."""


def _check_text(name: str, text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        context = {"name": name, "length": len(text), "limit": MAX_CHARACTERS}
        raise PydanticCustomError(
            "text_too_long", "{name} has {length} characters; expected at most {limit}", context
        )


def _check_numbers(*numbers: float) -> None:
    if any(abs(number) > MAX_COORDINATE for number in numbers):
        context = {"limit": MAX_COORDINATE}
        raise PydanticCustomError("coordinate", "expected coordinates within +-{limit}", context)


def _check_action(action: ActionType) -> ActionType:
    points: tuple[Point, ...] = ()
    match action:
        case Tap(at):
            points = (at,)
        case Swipe(start, end):
            points = (start, end)
        case Type(text) | InvalidAction(text):
            _check_text("text", text)
    _check_numbers(*(number for point in points for number in (point.y, point.x)))
    return action


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class ElementMessage:
    """An Element of which every field is required: a client sends what its screen has."""

    y: Coordinate
    x: Coordinate
    height: Coordinate
    width: Coordinate
    text: Text
    ui_type: Text


ONE_IMAGE: dict[str, JsonValue] = {"oneOf": [{"required": ["png"]}, {"required": ["sha256"]}]}
PNG = {"contentEncoding": "base64", "contentMediaType": "image/png"}


@with_config(ConfigDict(**STRICT, json_schema_extra=ONE_IMAGE))
@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenMessage:
    """A screen: its PNG, or the SHA-256 of one that was sent lately."""

    png: Annotated[str | None, Field(json_schema_extra=PNG)] = None
    sha256: Annotated[str | None, Field(description="SHA-256 of the PNG, in hexadecimal")] = None
    elements: Annotated[tuple[ElementMessage, ...], Field(max_length=MAX_ELEMENTS, fail_fast=True)]

    def __post_init__(self) -> None:
        if (self.png is None) == (self.sha256 is None):
            raise PydanticCustomError("one_image", "expected one of png and sha256")


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class StepMessage:
    screen: ScreenMessage
    action: Annotated[schema.Action, AfterValidator(_check_action)]


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """The goal, the steps so far (oldest first), the screen now."""

    goal: Text
    steps: Annotated[tuple[StepMessage, ...], Field(max_length=MAX_STEPS, fail_fast=True)]
    screen: ScreenMessage


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class CandidateMessage:
    """A decision and its gesture, in pixels of the last screen."""

    action: Annotated[schema.ActionOrInvalid, AfterValidator(_check_action)]
    text: Text
    confidence: Probability | None
    action_type_confidence: Probability | None
    gesture: schema.Gesture | None


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Timings:
    queue_ms: float  # until inference began
    inference_ms: float  # of the whole batch
    batch_size: int  # histories


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class DecisionMessage:
    """The decision; with `?top_k=K` also the K most likely ones, most likely first."""

    action: Annotated[schema.ActionOrInvalid, AfterValidator(_check_action)]
    text: Text
    confidence: Probability | None
    action_type_confidence: Probability | None
    gesture: schema.Gesture | None
    timings: Timings
    candidates: tuple[CandidateMessage, ...]  # empty unless requested


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Health:
    status: Literal["ok"]
    protocol_version: int
    checkpoint: str  # name of the first
    prompt_format: dict[str, Any]  # the recipe's part `prompt`


HISTORY = TypeAdapter(HistoryMessage)
DECISION = TypeAdapter(DecisionMessage)
HEALTH = TypeAdapter(Health)


@dataclass(frozen=True, slots=True)
class EncodedScreen:
    """A screen's PNG as it is sent."""

    png: str  # base64
    sha256: str  # of the PNG

    @staticmethod
    def from_screen(screen: Screen) -> "EncodedScreen":
        return EncodedScreen(base64.b64encode(screen.png).decode(), digest(screen.png))


def check_size(body: JsonText) -> None:
    """Refuse a body of too many values unparsed. Raises SchemaError."""
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    num_values = sum(data.count(mark) for mark in (b"{", b"[", b","))
    if num_values > MAX_VALUES:
        raise SchemaError(f"body: more than {MAX_VALUES} JSON values")


def write_history(
    history: History,
    encode_screen: Callable[[Screen], EncodedScreen] = EncodedScreen.from_screen,
    known_digests: AbstractSet[str] = frozenset(),
) -> bytes:
    """The JSON body. `known_digests`: of screens that the server has; they are named, not sent."""

    def to_message(screen: Screen) -> ScreenMessage:
        encoded = encode_screen(screen)
        elements = tuple(
            ElementMessage(e.y, e.x, e.height, e.width, e.text, e.ui_type) for e in screen.elements
        )
        if encoded.sha256 in known_digests:
            return ScreenMessage(sha256=encoded.sha256, elements=elements)
        return ScreenMessage(png=encoded.png, elements=elements)

    steps = tuple(StepMessage(to_message(step.screen), step.action) for step in history.steps)
    message = HistoryMessage(history.goal, steps, to_message(history.screen))
    return dump_json(HISTORY, message, exclude_none=True)


def read_history(body: JsonText, screens: ScreenDecoder) -> History:
    """Raises SchemaError; UnknownScreenError where a screen must be sent."""
    with screens.turn():
        check_size(body)
        message = parse_json(HISTORY, body, "history")
    steps = tuple(
        Step(_read_screen(step.screen, f"steps[{i}].screen", screens), step.action)
        for i, step in enumerate(message.steps)
    )
    return History(message.goal, steps, _read_screen(message.screen, "screen", screens))


def _read_screen(message: ScreenMessage, location: str, screens: ScreenDecoder) -> Screen:
    name = "sha256" if message.png is None else "png"
    elements = tuple(Element(e.y, e.x, e.height, e.width, e.text, e.ui_type) for e in message.elements)
    try:
        if message.png is not None:
            return screens.decode(decode_base64(message.png), elements, "PNG")
        assert message.sha256 is not None
        screen = screens.find_cached(message.sha256, elements)
    except InvalidImageError as error:
        raise SchemaError(f"history.{location}.{name}: {error}") from None
    if screen is None:
        raise UnknownScreenError(f"history.{location}.sha256: this screen is not cached; send it as 'png'")
    return screen


def write_decision(
    decision: Decision,
    screen_size: tuple[int, int],  # height and width of the last screen: pixels of the gesture
    timings: Timings,
    candidates: Sequence[Decision] = (),
) -> bytes:
    message = DecisionMessage(
        decision.action,
        decision.text,
        finite_or_none(decision.confidence),
        finite_or_none(decision.action_type_confidence),
        _gesture(decision, screen_size),
        timings,
        tuple(_to_candidate(candidate, screen_size) for candidate in candidates),
    )
    return dump_json(DECISION, message)


def _to_candidate(decision: Decision, screen_size: tuple[int, int]) -> CandidateMessage:
    return CandidateMessage(
        decision.action,
        decision.text,
        finite_or_none(decision.confidence),
        finite_or_none(decision.action_type_confidence),
        _gesture(decision, screen_size),
    )


def _gesture(decision: Decision, screen_size: tuple[int, int]) -> Gesture | None:
    return None if isinstance(decision.action, InvalidAction) else to_gesture(decision.action, *screen_size)


def read_decision(body: str | bytes) -> Decision:
    """The decision alone. Raises SchemaError."""
    message = parse_json(DECISION, body, "decision")
    return Decision(message.action, message.text, message.confidence, message.action_type_confidence)

"""The commands of the console's page: a JSON object in, a validated command out. Nothing in it is trusted.

POST /commands {"type": "start", "goal": "open the clock", "step_mode": false}
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from uivlm.actions.action import Key, Point, Press, Status, Type, dual_point
from uivlm.actions.schema import STRICT, parse_json
from uivlm.console.session import Session
from uivlm.console.supervised_run import ConfirmationAnswer

MAX_GOAL_CHARS, MAX_TEXT_CHARS = 2_000, 10_000


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("goal or text: got no visible character; write some words")
    return text


NotBlank = AfterValidator(_check_not_blank)
Goal = Annotated[str, Field(max_length=MAX_GOAL_CHARS), NotBlank]
Fraction = Annotated[float, Field(ge=0, le=1)]  # of the screen
PointYX = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Start:
    """Run the agent."""

    goal: Goal
    step_mode: bool  # each gesture needs confirmation
    type: Literal["start"] = field(default="start", kw_only=True)


@dataclass(frozen=True, slots=True)
class SetStepMode:
    on: bool
    type: Literal["set_step_mode"] = field(default="set_step_mode", kw_only=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """Confirm or deny the pending gesture; or confirm it and do not ask for its kind here again."""

    type: Literal["confirm", "deny", "always"]
    request_id: int


@dataclass(frozen=True, slots=True)
class Record:
    """Begin a demonstration."""

    goal: Goal
    type: Literal["record"] = field(default="record", kw_only=True)


@dataclass(frozen=True, slots=True)
class FinishRecording:
    status: Status
    type: Literal["finish"] = field(default="finish", kw_only=True)


@dataclass(frozen=True, slots=True)
class Simple:
    """A command without arguments."""

    type: Literal["take_over", "hand_back", "stop", "refresh"]


@dataclass(frozen=True, slots=True)
class PerformTouch:
    """A person's tap or swipe; points are [y, x]."""

    screen_id: int
    touch: PointYX
    lift: PointYX
    type: Literal["touch"] = field(default="touch", kw_only=True)


@dataclass(frozen=True, slots=True)
class PerformType:
    screen_id: int
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARS), NotBlank]
    type: Literal["type"] = field(default="type", kw_only=True)


@dataclass(frozen=True, slots=True)
class PerformPress:
    screen_id: int
    key: Key
    type: Literal["press"] = field(default="press", kw_only=True)


Command = (
    Start
    | SetStepMode
    | Answer
    | Record
    | FinishRecording
    | Simple
    | PerformTouch
    | PerformType
    | PerformPress
)
ANSWERS: dict[str, ConfirmationAnswer] = {"confirm": "yes", "deny": "no", "always": "always"}
COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="type")], config=STRICT)


def parse_command(body: bytes) -> Command:
    """Raises SchemaError, which names the field."""
    return parse_json(COMMAND, body, "command")


def run_command(session: Session, command: Command) -> None:
    """Raises what the session raises."""
    match command:
        case Start(goal, step_mode):
            session.start(goal, step_mode)
        case SetStepMode(on):
            session.set_step_mode(on)
        case Answer(answer, request_id):
            session.confirm(request_id, ANSWERS[answer])
        case Record(goal):
            session.record(goal)
        case FinishRecording(status):
            session.finish(status)
        case Simple("take_over"):
            session.take_over()
        case Simple("hand_back"):
            session.hand_back()
        case Simple("stop"):
            session.stop()
        case Simple():
            session.refresh_screen()
        case PerformTouch(screen_id, touch, lift):
            session.perform(dual_point(Point(*touch), Point(*lift)), screen_id)
        case PerformType(screen_id, text):
            session.perform(Type(text), screen_id)
        case PerformPress(screen_id, key):
            session.perform(Press(key), screen_id)

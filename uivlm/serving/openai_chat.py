"""OpenAI-compatible chat: messages as a history, a decision as the assistant's message.

    {"model", "messages": [MESSAGE, ...], "stream": bool}
    MESSAGE  {"role": "user", "content": text or [{"type": "text", "text"} or
              {"type": "image_url", "image_url": {"url"}}, ...]}
             | {"role": "assistant", "content": text of an action} | {"role": "system" or "developer", ...}

The user's first text is the goal. Each screen is a data URL of a PNG or JPEG, followed by the text of the
action that was done on it; the decision is for the last screen. System messages and later texts of the user
are ignored, because the model was not trained on any. So are other fields (temperature, tools).
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, with_config

from uivlm.actions.action import InvalidAction
from uivlm.actions.decision import Decision
from uivlm.actions.schema import JsonText, SchemaError, dump_json, parse_json
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import History, Screen, Step
from uivlm.serving.protocol import MAX_STEPS, Text, check_size
from uivlm.serving.screen_cache import InvalidImageError, ScreenDecoder, decode_base64

MAX_MESSAGES = 4 * MAX_STEPS
DATA_URL_PREFIXES = ("data:image/png;base64,", "data:image/jpeg;base64,", "data:image/jpg;base64,")
LENIENT = ConfigDict(
    strict=True, extra="ignore", allow_inf_nan=False
)  # clients send fields that mean nothing here


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class TextPart:
    type: Literal["text"]
    text: Text


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class ImageUrl:
    url: Annotated[str, Field(description="a data URL of a PNG or JPEG in base64")]


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class ImagePart:
    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Parts = Annotated[tuple[Part, ...], Field(max_length=MAX_STEPS, fail_fast=True)]
Content = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Parts, Tag("parts")],
    Discriminator(lambda content: "text" if isinstance(content, str) else "parts"),
]


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class UserMessage:
    role: Literal["user"]
    content: Content


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class AssistantMessage:
    role: Literal["assistant"]
    content: Content


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Ignored."""

    role: Literal["system", "developer"]
    content: Any = None


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


@with_config(LENIENT)
@dataclass(frozen=True, slots=True)
class ChatMessages:
    """The body of a request."""

    model: Text
    messages: Annotated[tuple[Message, ...], Field(max_length=MAX_MESSAGES, fail_fast=True)]
    stream: bool | None = False
    n: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class AssistantText:
    content: str
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class Choice:
    message: AssistantText
    index: int = 0
    finish_reason: str = "stop"
    logprobs: None = None


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    id: str
    created: int  # seconds since 1970
    model: str
    choices: tuple[Choice, ...]
    object: Literal["chat.completion"] = "chat.completion"


@dataclass(frozen=True, slots=True)
class ChunkChoice:
    delta: AssistantText | dict[str, str]  # empty in the last chunk
    finish_reason: str | None
    index: int = 0
    logprobs: None = None


@dataclass(frozen=True, slots=True)
class ChatCompletionChunk:
    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class ModelCard:
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "uivlm"


@dataclass(frozen=True, slots=True)
class ModelList:
    data: tuple[ModelCard, ...]
    object: Literal["list"] = "list"


@dataclass(frozen=True, slots=True)
class ChatError:
    message: str
    type: str


@dataclass(frozen=True, slots=True)
class ChatErrorMessage:
    error: ChatError


MESSAGES = TypeAdapter(ChatMessages)
COMPLETION = TypeAdapter(ChatCompletion)
CHUNK = TypeAdapter(ChatCompletionChunk)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: str
    history: History
    stream: bool


@dataclass(slots=True)
class _ChatState:
    """What the messages so far say."""

    action_text: ActionText
    screen_decoder: ScreenDecoder
    goal: str | None = None
    steps: list[Step] = field(default_factory=list)
    screen: Screen | None = None  # with no action yet


def read_chat(body: JsonText, screens: ScreenDecoder, action_text: ActionText) -> ChatRequest:
    """Raises SchemaError, which names the message."""
    with screens.turn():
        check_size(body)
        request = parse_json(MESSAGES, body, "chat")
    state = _ChatState(action_text, screens)
    for i, message in enumerate(request.messages):
        match message:
            case UserMessage(content=content):
                _read_user(state, content, f"messages[{i}]")
            case AssistantMessage(content=content):
                _read_assistant(state, content, f"messages[{i}]")
    if state.goal is None:
        raise SchemaError("messages: no text of the user; expected the goal")
    if state.screen is None:
        raise SchemaError("messages: no screen after the last action; expected one to act on")
    history = History(state.goal, tuple(state.steps), state.screen)
    return ChatRequest(request.model, history, bool(request.stream))


def _read_user(state: _ChatState, content: str | tuple[TextPart | ImagePart, ...], location: str) -> None:
    for part in (TextPart("text", content),) if isinstance(content, str) else content:
        match part:
            case TextPart(text=text):
                state.goal = text if state.goal is None else state.goal
            case ImagePart(image_url=image_url):
                if state.screen is not None:
                    raise SchemaError(f"{location}: second screen without an action between the two")
                state.screen = _read_url(image_url.url, location, state.screen_decoder)


def _read_assistant(
    state: _ChatState, content: str | tuple[TextPart | ImagePart, ...], location: str
) -> None:
    parts = (TextPart("text", content),) if isinstance(content, str) else content
    if not all(isinstance(part, TextPart) for part in parts):
        raise SchemaError(f"{location}.content: got an image; expected the text of an action")
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    if state.screen is None:
        raise SchemaError(f"{location}: action without a screen before it")
    # an answer may begin with a thought, and an action is one line
    action = state.action_text.parse(text.strip("\n").rpartition("\n")[2])
    if isinstance(action, InvalidAction):
        raise SchemaError(f"{location}.content: got {text[:80]!r}; expected an action ({action.reason})")
    if len(state.steps) >= MAX_STEPS:
        raise SchemaError(f"{location}: more than {MAX_STEPS} steps")
    state.steps.append(Step(state.screen, action))
    state.screen = None


def _read_url(url: str, location: str, screen_decoder: ScreenDecoder) -> Screen:
    """Data URLs alone: the server opens no file and no address that a request names."""
    prefix = next((prefix for prefix in DATA_URL_PREFIXES if url[: len(prefix)].lower() == prefix), None)
    if prefix is None:
        raise SchemaError(
            f"{location}.image_url: got {url[:40]!r}; expected a data URL of a PNG or JPEG in base64"
        )
    try:
        return screen_decoder.decode(decode_base64(url[len(prefix) :]), (), "PNG", "JPEG")
    except InvalidImageError as error:
        raise SchemaError(f"{location}.image_url: {error}") from None


def write_chat(decision: Decision, model: str) -> bytes:
    choices = (Choice(AssistantText(decision.text)),)
    return dump_json(COMPLETION, ChatCompletion(_completion_id(), int(time.time()), model, choices))


def stream_chat(decision: Decision, model: str) -> Iterator[bytes]:
    """Server-sent events. An action is short: its whole text is one event."""
    completion_id, created = _completion_id(), int(time.time())
    for choice in (ChunkChoice(AssistantText(decision.text), None), ChunkChoice({}, "stop")):
        chunk = ChatCompletionChunk(completion_id, created, model, (choice,))
        yield b"data: " + dump_json(CHUNK, chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def list_models(names: Sequence[str], created: int) -> ModelList:
    return ModelList(tuple(ModelCard(name, created) for name in names))


def _completion_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"

"""OpenAI's chat messages as histories, decisions as their answers: so that clients that exist can ask our agents.

    {"model": NAME, "messages": [MESSAGE, ...], "stream": bool}
    MESSAGE  {"role": "user", "content": str or [{"type": "text", "text"} or {"type": "image_url", "image_url": {"url"}}, ...]}
             | {"role": "assistant", "content": WORDS} | {"role": "system" or "developer", ...}

The first text of a user is the goal; each screen, a data URL of a PNG or JPEG, is followed by the words of the action that was done
on it; the last screen is the one to act on. System messages and later texts of the user (other agents' instructions) are read by nobody:
the model was never trained on any. What else a request asks for (temperature, tools) changes nothing.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from uivlm.actions.language import Language, NotAnAction
from uivlm.agents.agent import Decision
from uivlm.episode import History, Screen, Step
from uivlm.serving.pictures import PictureError, Pictures, Unpacking
from uivlm.serving.strict import base64_of, list_of, read_json, refuse, str_of
from uivlm.serving.wire import MOST_STEPS

MOST_MESSAGES = 4 * MOST_STEPS
URLS = ("data:image/png;base64,", "data:image/jpeg;base64,", "data:image/jpg;base64,")


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    history: History
    stream: bool


@dataclass(slots=True)
class _Reading:
    """What was said so far."""

    language: Language
    screens: Unpacking
    goal: str | None = None
    steps: list[Step] = field(default_factory=list)
    screen: Screen | None = None  # on which nothing was done yet


def read_chat(text: str | bytes, language: Language, seen: Pictures) -> Asked:
    """WireError says which message cannot be read."""
    request = read_json(text)
    if not isinstance(request, dict):
        refuse("the request", "must be an object")
    if request.get("n", 1) != 1:
        refuse("n", f"is {str(request['n'])[:20]}: there is one answer")
    so_far = _Reading(language, Unpacking(seen))
    for i, message in enumerate(list_of(request.get("messages"), "messages", MOST_MESSAGES)):
        _read_message(so_far, message, f"messages[{i}]")
    if so_far.goal is None:
        refuse("messages", "have no text of the user: it is the goal")
    if so_far.screen is None:
        refuse("messages", "end without a screen to act on")
    history = History(so_far.goal, tuple(so_far.steps), so_far.screen)
    return Asked(str_of(request.get("model"), "model"), history, request.get("stream") is True)


def _read_message(so_far: _Reading, message: object, where: str) -> None:
    if not isinstance(message, dict):
        refuse(where, "must be an object")
    match message.get("role"):
        case "system" | "developer":
            return
        case "user":
            for part in _parts(message.get("content"), f"{where}.content"):
                _read_part(so_far, part, f"{where}.content")
        case "assistant":
            words = "".join(
                str_of(part.get("text"), f"{where}.content")
                for part in _parts(message.get("content"), f"{where}.content")
            )
            if so_far.screen is None:
                refuse(where, "is an action without a screen before it")
            action = so_far.language.parse(words.strip("\n"))
            if isinstance(action, NotAnAction):
                refuse(f"{where}.content", f"is no action ({action.reason}): {words[:80]!r}")
            if len(so_far.steps) >= MOST_STEPS:
                refuse(where, f"is one step too many: at most {MOST_STEPS} are read")
            so_far.steps.append(Step(so_far.screen, action))
            so_far.screen = None
        case other:
            refuse(f"{where}.role", f"is {str(other)[:40]!r}: it must be user, assistant or system")


def _parts(content: object, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = list_of(content, where, MOST_STEPS)
    for part in parts:
        if not isinstance(part, dict):
            refuse(where, "must be a text, or a list of objects")
    return parts


def _read_part(so_far: _Reading, part: dict[str, Any], where: str) -> None:
    match part:
        case {"type": "text", "text": text}:
            goal = str_of(text, where)
            if any("\ud800" <= letter <= "\udfff" for letter in goal):
                refuse(where, "holds half of a surrogate pair")
            if so_far.goal is None:
                so_far.goal = goal
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            if so_far.screen is not None:
                refuse(where, "has a second screen, and no action between the two")
            so_far.screen = _read_url(url, where, so_far.screens)
        case _:
            refuse(where, "must hold texts and image_urls")


def _read_url(url: str, where: str, screens: Unpacking) -> Screen:
    """Data URLs alone: no name of a file or an address is ever opened."""
    head = next((head for head in URLS if url[: len(head)].lower() == head), None)
    if head is None:
        refuse(where, "has an image_url that is no data URL of a PNG or JPEG in base64: nothing else is read")
    try:
        return screens.sent(base64_of(url[len(head) :], where), (), "PNG", "JPEG")
    except PictureError as error:
        refuse(where, f"has an image that {error}")


def write_chat(decision: Decision, model: str) -> str:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": decision.words},
        "finish_reason": "stop",
        "logprobs": None,
    }
    return json.dumps({**_head(model, "chat.completion"), "choices": [choice]})


def stream_chat(decision: Decision, model: str) -> Iterator[str]:
    """Server-sent events: an action is short, so all its words come at once."""
    head = _head(model, "chat.completion.chunk")
    for delta, reason in (({"role": "assistant", "content": decision.words}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"


def models(names: Sequence[str], since: int) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": since, "owned_by": "uivlm"} for name in names],
    }


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}

"""What `/openapi.json` says of the bodies, as JSON schemas; `wire.py` and `chat.py` read and write them, and are stricter."""

from typing import Any

from uivlm.serving.strict import MOST_CHARACTERS
from uivlm.serving.wire import MOST_ELEMENTS, MOST_STEPS

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _kind(called: str, /, **properties: Schema) -> Schema:
    return _object(kind={"const": called}, **properties)


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


_TEXT: Schema = {"type": "string", "maxLength": MOST_CHARACTERS}
_NUMBER: Schema = {"type": "number", "minimum": -1e6, "maximum": 1e6}
_POINT = _object(y=_NUMBER, x=_NUMBER)
_ELEMENT = _object(y=_NUMBER, x=_NUMBER, height=_NUMBER, width=_NUMBER, text=_TEXT, kind=_TEXT)
_ELEMENTS = _list(_ELEMENT, MOST_ELEMENTS)
_PNG: Schema = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}
_DIGEST: Schema = {"type": "string", "description": "SHA-256, in hexadecimal, of a PNG that was sent lately"}
_SCREEN: Schema = {
    "oneOf": [_object(png=_PNG, elements=_ELEMENTS), _object(sha256=_DIGEST, elements=_ELEMENTS)]
}
_ACTION: Schema = {
    "oneOf": [
        _kind("tap", at=_POINT),
        _kind("swipe", start=_POINT, end=_POINT),
        _kind("type", text=_TEXT),
        _kind("press", key={"enum": ["back", "home", "enter"]}),
        _kind("finish", status={"enum": ["complete", "impossible"]}),
    ]
}
_PATH = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
_GESTURE: Schema = {
    "oneOf": [
        {"type": "null"},
        _kind("touch", path=_PATH, ms={"type": "integer"}),
        _kind("keys", text=_TEXT),
        _kind("button", name={"type": "string"}),
    ]
}
_TIMINGS = _object(waited_ms={"type": "number"}, took_ms={"type": "number"}, together={"type": "integer"})

HISTORY = _object(
    goal=_TEXT, steps=_list(_object(screen=_SCREEN, action=_ACTION), MOST_STEPS), screen=_SCREEN
)
_CONFIDENCE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_DECIDED = {
    "action": {"oneOf": [*_ACTION["oneOf"], _kind("not an action", words=_TEXT, reason=_TEXT)]},
    "words": _TEXT,
    "confidence": _CONFIDENCE,
    "kind_confidence": _CONFIDENCE,
    "gesture": _GESTURE,
}
DECISION = _object(**_DECIDED, timings=_TIMINGS)
DECISION["properties"]["likeliest"] = {"type": "array", "items": _object(**_DECIDED)}
_PART: Schema = {
    "oneOf": [
        _object(type={"const": "text"}, text=_TEXT),
        _object(type={"const": "image_url"}, image_url=_object(url={"type": "string"})),
    ]
}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant"]},
        "content": {"oneOf": [_TEXT, _list(_PART, MOST_STEPS)]},
    },
    "required": ["role", "content"],
}
CHAT: Schema = {
    "type": "object",
    "properties": {
        "model": _TEXT,
        "messages": {"type": "array", "items": _MESSAGE},
        "stream": {"type": "boolean"},
        "n": {"const": 1},
    },
    "required": ["model", "messages"],
}


def asked(schema: Schema) -> Schema:
    """Of a request, for FastAPI's `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_WHY = {
    400: "the request is broken, or its Host is not this server",
    401: "the token is missing or wrong",
    404: "no such model",
    408: "the body did not come in time",
    409: "a screen was named that is not kept here: send it",
    413: "the body is too large",
    415: "the body is no application/json",
    422: "the body cannot be read: one sentence says why",
    500: "the agent failed",
    503: "too many requests, too long a wait, or the server is stopping",
}
_SENTENCE: Schema = {"text/plain": {"schema": {"type": "string"}}}
_ERROR = _object(error=_object(message={"type": "string"}, type={"type": "string"}))
REFUSED: dict[int | str, Schema] = {
    status: {"description": why, "content": _SENTENCE} for status, why in _WHY.items()
}
REFUSED_CHAT: dict[int | str, Schema] = {
    status: {"description": why, "content": {"application/json": {"schema": _ERROR}}}
    for status, why in _WHY.items()
}

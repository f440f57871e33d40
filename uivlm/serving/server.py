"""An agent behind HTTP: histories in, decisions out. Caches between requests only save time.

    POST /act                   a history -> the decision (`protocol.py`); `?model=NAME` chooses the model
    POST /v1/chat/completions   the same as OpenAI's chat (`openai_chat.py`); GET /v1/models lists the models
    GET  /health                protocol version, name of the first checkpoint, its prompt format
    GET  /metrics               for Prometheus
    GET  /openapi.json          the description of all of these

An error is one sentence: plain text, or OpenAI's error object under /v1. 4xx: the request is wrong;
500: the agent failed; 503: overloaded or stopping.
"""

import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from uivlm.actions.text import ActionText
from uivlm.agents.agent import Agent, RankingAgent
from uivlm.serving.handler import RequestHandler
from uivlm.serving.listen import LOOPBACK_HOSTS, LimitedServer, open_listener, run_in_thread, socket_url
from uivlm.serving.middleware import LimitsMiddleware, error_response
from uivlm.serving.openai_chat import (
    MESSAGES,
    ChatCompletion,
    ChatErrorMessage,
    ModelList,
    list_models,
    read_chat,
    stream_chat,
    write_chat,
)
from uivlm.serving.protocol import (
    HISTORY,
    VERSION,
    DecisionMessage,
    Health,
    read_history,
    write_decision,
)
from uivlm.serving.screen_cache import MAX_PIXELS_WITHOUT_KEY, MAX_REQUEST_PIXELS

MAX_REQUESTS = 128  # POST requests in flight
KNOWN_PATHS = frozenset(
    {"/act", "/v1/chat/completions", "/v1/models", "/health", "/metrics", "/openapi.json"}
)
TopK = Annotated[int, Query(ge=0, le=10, description="Number of candidates: the most likely decisions.")]
ModelName = Annotated[str | None, Query(max_length=200, description="Which model; default: the first.")]

# FastAPI would read a body without limits, so the routes read it themselves and name its type here.
REQUEST_SCHEMAS, REQUEST_DEFINITIONS = TypeAdapter.json_schemas(
    [("history", "validation", HISTORY), ("chat", "validation", MESSAGES)],
    ref_template="#/components/schemas/{model}",
)
STATUS_DESCRIPTIONS = {
    400: "malformed request, or a Host header that does not name this server",
    401: "missing or invalid API key",
    404: "unknown model",
    408: "the body did not arrive in time",
    409: "a screen is named that is not cached: send it",
    413: "the body is too large",
    415: "Content-Type is not application/json",
    422: "the body does not fit its schema",
    429: "requests of this address hold too much memory",
    500: "the agent failed",
    503: "overloaded, timed out or stopping",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"text/plain": {"schema": {"type": "string"}}}}
    for status, text in STATUS_DESCRIPTIONS.items()
}
CHAT_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": ChatErrorMessage} for status, text in STATUS_DESCRIPTIONS.items()
}


def create_app(
    agents: Mapping[str, Agent],
    prompt_format: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The application that serves agents of one prompt format by their names; the first is the default.

    `api_key`: required from clients. `hosts`: accepted Host headers; None accepts all.
    """
    handler = RequestHandler(agents, MAX_REQUEST_PIXELS if api_key else MAX_PIXELS_WITHOUT_KEY)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for batcher in handler.batchers.values():
            await to_thread.run_sync(batcher.close)

    server = FastAPI(
        title=f"uivlm {handler.default_model}",
        version=str(VERSION),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    if hosts is not None:  # DNS rebinding: a web page whose name resolves here sends its own name
        server.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    server.add_middleware(
        LimitsMiddleware,
        metrics=handler.metrics,
        paths=KNOWN_PATHS,
        api_key=api_key,
        max_requests=MAX_REQUESTS,
    )
    num_bins = (prompt_format or {}).get("num_bins")
    _add_status_routes(server, handler, dict(prompt_format or {}))
    _add_decision_routes(server, handler, ActionText() if num_bins is None else ActionText(num_bins))
    _add_error_handlers(server)
    server.openapi = lambda: _openapi(server)  # type: ignore[method-assign]
    server.state.batchers = tuple(handler.batchers.values())
    return server


def _openapi(server: FastAPI) -> dict[str, Any]:
    """FastAPI's description, with the types of the bodies that the routes read themselves."""
    description = FastAPI.openapi(server)
    description["components"]["schemas"].update(REQUEST_DEFINITIONS["$defs"])
    return description


def _request_body(name: str) -> dict[str, Any]:
    schema = REQUEST_SCHEMAS[name, "validation"]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _add_status_routes(server: FastAPI, handler: RequestHandler, prompt_format: dict[str, Any]) -> None:
    """Routes that need no inference."""
    health = Health("ok", VERSION, handler.default_model, prompt_format)
    models = list_models(list(handler.batchers), created=int(time.time()))

    @server.get("/health", responses={500: ERROR_RESPONSES[500]})
    async def get_health() -> Health:  # without a thread, so that it is answered even under overload
        if not all(batcher.is_alive for batcher in handler.batchers.values()):
            raise HTTPException(500, "the agent's thread has died: restart the server")
        return health

    @server.get("/metrics", response_class=PlainTextResponse, responses={401: ERROR_RESPONSES[401]})
    def get_metrics() -> Response:
        return Response(generate_latest(handler.metrics.registry), media_type="text/plain; version=0.0.4")

    @server.get("/v1/models", responses={401: CHAT_ERROR_RESPONSES[401]})
    def get_models() -> ModelList:
        return models


def _add_decision_routes(server: FastAPI, handler: RequestHandler, action_text: ActionText) -> None:
    """Routes that call an agent."""

    @server.post(
        "/act",
        openapi_extra=_request_body("history"),
        responses={200: {"description": "the decision", "model": DecisionMessage}, **ERROR_RESPONSES},
    )
    async def post_act(request: Request, top_k: TopK = 0, model: ModelName = None) -> Response:
        batcher = handler.batcher_for(handler.default_model if model is None else model)
        if top_k and not isinstance(batcher.agent, RankingAgent):
            raise HTTPException(422, f"top_k: got {top_k}; expected 0, because this agent cannot rank")
        with handler.share_memory(request) as share:
            history = await handler.read(request, share, read_history)
            reply = await handler.decide(request, share, batcher, history, top_k)
        height, width = history.screen.pixels.shape[:2]
        candidates = reply.candidates if top_k else ()
        body = write_decision(reply.candidates[0], (height, width), reply.timings, candidates)
        return Response(body, media_type="application/json")

    @server.post(
        "/v1/chat/completions",
        openapi_extra=_request_body("chat"),
        responses={200: {"description": "the action", "model": ChatCompletion}, **CHAT_ERROR_RESPONSES},
    )
    async def post_chat(request: Request) -> Response:
        with handler.share_memory(request) as share:
            chat = await handler.read(request, share, partial(read_chat, action_text=action_text))
            reply = await handler.decide(request, share, handler.batcher_for(chat.model), chat.history)
        decision = reply.candidates[0]
        if chat.stream:
            return StreamingResponse(stream_chat(decision, chat.model), media_type="text/event-stream")
        return Response(write_chat(decision, chat.model), media_type="application/json")


def _add_error_handlers(server: FastAPI) -> None:
    @server.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        return error_response(request.url.path, error.status_code, str(error.detail), error.headers)

    @server.exception_handler(RequestValidationError)
    async def invalid_parameter(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        message = f"{first['loc'][-1]}: {first['msg']}, got {str(first['input'])[:80]!r}"
        return error_response(request.url.path, 422, message)


def serve(
    agents: Mapping[str, Agent],
    prompt_format: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until Ctrl-C. Port 0 takes a free one; `ready` gets the URL once requests are accepted.

    Raises ValueError for an address beyond this machine without an API key.
    """
    if host not in LOOPBACK_HOSTS and not api_key:
        raise ValueError(
            f"--host: got {host}, which other machines can reach; set UIVLM_API_KEY to a secret that clients"
            " must send, or omit --host"
        )
    with open_listener(host, port) as listener, suppress(KeyboardInterrupt):
        (ready or _announce)(socket_url(listener))
        hosts = LOOPBACK_HOSTS if host in LOOPBACK_HOSTS else None
        _AgentServer(create_app(agents, prompt_format, api_key, hosts)).run(sockets=[listener])


def _announce(url: str) -> None:
    print(f"serving at {url}", flush=True)  # another process may read this line from a pipe


@contextmanager
def serve_in_thread(
    agents: Mapping[str, Agent], prompt_format: Mapping[str, Any] | None = None, api_key: str | None = None
) -> Iterator[str]:
    """The URL of a server on a free port, in a thread that ends with the block."""
    app = create_app(agents, prompt_format, api_key, LOOPBACK_HOSTS)
    with run_in_thread(_AgentServer(app), "serving") as url:
        yield url


class _AgentServer(LimitedServer):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for batcher in self.config.app.state.batchers:  # type: ignore[union-attr]
            batcher.stop()  # queued requests get their 503 before uvicorn waits for them
        await super().shutdown(sockets)

"""An agent behind HTTP: histories in, decisions out; nothing is kept between two requests but what saves time.

    POST /act                   a history -> the decision (`wire.py`); of several agents `?model=NAME` says whose
    POST /v1/chat/completions   the same as OpenAI's chat (`chat.py`); GET /v1/models names them
    GET  /health                {"status": "ok", "checkpoint": name of the first, "grammar": {...}}
    GET  /metrics               counts and times for Prometheus; GET /openapi.json describes it all

Errors are one sentence (plain text; of /v1 in OpenAI's form): 4xx where the request is wrong, 500 where the agent failed, 503 where there is too much to do.
"""

import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated

import uvicorn
from anyio import to_thread
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from uivlm.actions.language import Language
from uivlm.agents.agent import Agent, Ranking
from uivlm.listening import LOOPBACK, in_thread, listening, url_of
from uivlm.serving.chat import models, read_chat, stream_chat, write_chat
from uivlm.serving.desk import Desk
from uivlm.serving.schema import CHAT, DECISION, HISTORY, REFUSED, REFUSED_CHAT, asked
from uivlm.serving.walls import Walls, refusal
from uivlm.serving.wire import read_history, write_decision

MOST_REQUESTS = 128  # at once; more are told to come again
PATHS = frozenset({"/act", "/v1/chat/completions", "/v1/models", "/health", "/metrics", "/openapi.json"})
Likeliest = Annotated[
    int, Query(ge=0, le=10, description="how many of the likeliest decisions are told, too")
]
Model = Annotated[
    str | None, Query(max_length=200, description="whose decision; left out: the first agent's")
]


def app(
    agents: Mapping[str, Agent],
    grammar: Mapping[str, object] | None = None,
    token: str | None = None,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The application of agents of one grammar, by their names; the first answers where none is named. `token`: what clients
    have to bring; `hosts`: the only names by which it is called."""
    told, desk = dict(grammar or {}), Desk(agents)
    language = Language(int(str(told["bins"]))) if "bins" in told else Language()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for turns in desk.turns.values():
            await to_thread.run_sync(turns.close)

    server = FastAPI(title=f"uivlm {desk.first}", docs_url=None, redoc_url=None, lifespan=lifespan)
    if hosts is not None:  # a web page whose name was bent to this address says its own name
        server.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    server.add_middleware(Walls, counts=desk.counts, paths=PATHS, token=token, most=MOST_REQUESTS)

    _look(server, desk, told)
    _ask(server, desk, language)
    server.state.turns = tuple(desk.turns.values())
    _refuse_in_a_sentence(server)
    return server


def _look(server: FastAPI, desk: Desk, grammar: Mapping[str, object]) -> None:
    """What asks the agent nothing."""
    health = json.dumps({"status": "ok", "checkpoint": desk.first, "grammar": grammar})
    since = int(time.time())

    @server.get("/health", responses={500: REFUSED[500]})
    def get_health() -> Response:
        if not all(turns.working for turns in desk.turns.values()):
            raise HTTPException(500, "the agent's thread has ended: start the server again")
        return Response(health, media_type="application/json")

    @server.get("/metrics", response_class=PlainTextResponse, responses={401: REFUSED[401]})
    def get_metrics() -> Response:
        return Response(generate_latest(desk.counts.registry), media_type="text/plain; version=0.0.4")

    @server.get("/v1/models", responses={401: REFUSED_CHAT[401]})
    def get_models() -> dict[str, object]:
        return models(list(desk.turns), since)


def _ask(server: FastAPI, desk: Desk, language: Language) -> None:
    """What asks the agent."""
    described = {"description": "the decision", "content": {"application/json": {"schema": DECISION}}}

    @server.post("/act", openapi_extra=asked(HISTORY), responses={200: described, **REFUSED})
    async def post_act(request: Request, likeliest: Likeliest = 0, model: Model = None) -> Response:
        turns = desk.turns_of(desk.first if model is None else model)
        if likeliest and not isinstance(turns.agent, Ranking):
            raise HTTPException(422, "likeliest: this agent cannot tell what else it might have done")
        history = await desk.read(request, lambda body: read_history(body, desk.pictures))
        answer = await desk.decide(request, turns, history, likeliest)
        timings = {
            "waited_ms": round(1000 * answer.waited, 3),
            "took_ms": round(1000 * answer.took, 3),
            "together": answer.together,
        }
        height, width = history.screen.pixels.shape[:2]
        written = write_decision(
            answer.decision, (height, width), timings, answer.likeliest if likeliest else None
        )
        return Response(written, media_type="application/json")

    @server.post("/v1/chat/completions", openapi_extra=asked(CHAT), responses=REFUSED_CHAT)
    async def post_chat(request: Request) -> Response:
        chat = await desk.read(request, lambda body: read_chat(body, language, desk.pictures))
        answer = await desk.decide(request, desk.turns_of(chat.model), chat.history)
        if chat.stream:
            return StreamingResponse(stream_chat(answer.decision, chat.model), media_type="text/event-stream")
        return Response(write_chat(answer.decision, chat.model), media_type="application/json")


def _refuse_in_a_sentence(server: FastAPI) -> None:
    @server.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        return refusal(request.url.path, error.status_code, str(error.detail), error.headers)

    @server.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return refusal(request.url.path, 422, f"{first['loc'][-1]}: {first['msg']}")


def serve(
    agents: Mapping[str, Agent],
    grammar: Mapping[str, object] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until Ctrl-C. Port 0 takes a free one; `ready` gets the URL as soon as requests may come.

    ValueError where it would listen beyond this machine without a token.
    """
    if host not in LOOPBACK and not token:
        raise ValueError(
            f"{host} can be reached by others, who could then ask this agent: set UIVLM_TOKEN to a secret that clients have to "
            "bring, or leave --host out"
        )
    with listening(host, port) as line, suppress(KeyboardInterrupt):
        (ready or _announce)(url_of(line))
        hosts = LOOPBACK if host in LOOPBACK else None
        _uvicorn(app(agents, grammar, token, hosts)).run(sockets=[line])


def _announce(url: str) -> None:
    print(f"serving at {url}", flush=True)  # who waits for this line reads a pipe


@contextmanager
def serving(
    agents: Mapping[str, Agent], grammar: Mapping[str, object] | None = None, token: str | None = None
) -> Iterator[str]:
    """The URL of a server on a free port, in a thread that ends with the block."""
    with in_thread(_uvicorn(app(agents, grammar, token, LOOPBACK)), "serving") as url:
        yield url


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for turns in self.config.app.state.turns:  # type: ignore[union-attr]
            turns.stop()  # before it waits for requests: they are told
        await super().shutdown(sockets)


def _uvicorn(server: FastAPI) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=5, server_header=False)
    )

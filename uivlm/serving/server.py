"""An agent behind HTTP: histories in, decisions out; nothing is kept between two requests but what saves time.

    POST /act                   a history -> the decision (`wire.py`)
    POST /v1/chat/completions   the same as OpenAI's chat (`chat.py`); GET /v1/models names the model
    GET  /health                {"status": "ok", "checkpoint": name, "grammar": {...}}
    GET  /metrics               counts and times for Prometheus; GET /openapi.json describes it all

Errors are one sentence (plain text; of /v1 in OpenAI's form): 4xx where the request is wrong, 500 where the agent failed, 503 where there is too much to do.
"""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated, Any, TypeVar

import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from uivlm.actions.language import Language
from uivlm.agents.agent import Agent, Ranking
from uivlm.episode import History, HistoryError
from uivlm.serving.chat import models, read_chat, stream_chat, write_chat
from uivlm.serving.pictures import Pictures, weight
from uivlm.serving.schema import CHAT, DECISION, HISTORY, REFUSED, REFUSED_CHAT, asked
from uivlm.serving.strict import WireError
from uivlm.serving.turns import Answer, Turns
from uivlm.serving.walls import Counts, Walls, refusal
from uivlm.serving.wire import UnknownScreenError, read_history, write_decision

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024 * 1024  # of one request
BODY_S, ANSWER_S = 60, 120  # seconds for a body to come, and for a decision
MOST_REQUESTS = 128  # at once; more are told to come again
READERS, READ_S = 2, 60  # bodies that are read at once, and seconds for it: their pictures may be large
MOST_HELD = 4 << 30  # bytes of the histories that wait
RETRY = {"retry-after": "10"}
PATHS = frozenset({"/act", "/v1/chat/completions", "/v1/models", "/health", "/metrics", "/openapi.json"})
LOOPBACK = ("127.0.0.1", "localhost")
Read = TypeVar("Read")
Likeliest = Annotated[
    int, Query(ge=0, le=10, description="how many of the likeliest decisions are told, too")
]


def app(
    agent: Agent,
    name: str,
    grammar: Mapping[str, object] | None = None,
    token: str | None = None,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The application of one agent. `token`: what clients have to bring; `hosts`: the only names by which it is called."""
    told = dict(grammar or {})
    desk = _Desk(agent)
    language = Language(int(str(told["bins"]))) if "bins" in told else Language()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await to_thread.run_sync(desk.turns.close)

    server = FastAPI(title=f"uivlm {name}", docs_url=None, redoc_url=None, lifespan=lifespan)
    if hosts is not None:  # a web page whose name was bent to this address says its own name
        server.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    server.add_middleware(Walls, counts=desk.counts, paths=PATHS, token=token, most=MOST_REQUESTS)

    _look(server, desk, name, told)
    _ask(server, desk, name, language)
    server.state.turns = desk.turns
    _refuse_in_a_sentence(server)
    return server


def _look(server: FastAPI, desk: "_Desk", name: str, grammar: Mapping[str, object]) -> None:
    """What asks the agent nothing."""
    health = json.dumps({"status": "ok", "checkpoint": name, "grammar": grammar})
    since = int(time.time())

    @server.get("/health", responses={500: REFUSED[500]})
    def get_health() -> Response:
        if not desk.turns.working:
            raise HTTPException(500, "the agent's thread has ended: start the server again")
        return Response(health, media_type="application/json")

    @server.get("/metrics", response_class=PlainTextResponse, responses={401: REFUSED[401]})
    def get_metrics() -> Response:
        return Response(generate_latest(desk.counts.registry), media_type="text/plain; version=0.0.4")

    @server.get("/v1/models", responses={401: REFUSED_CHAT[401]})
    def get_models() -> dict[str, object]:
        return models(name, since)


def _ask(server: FastAPI, desk: "_Desk", name: str, language: Language) -> None:
    """What asks the agent."""
    described = {"description": "the decision", "content": {"application/json": {"schema": DECISION}}}

    @server.post("/act", openapi_extra=asked(HISTORY), responses={200: described, **REFUSED})
    async def post_act(request: Request, likeliest: Likeliest = 0) -> Response:
        if likeliest and not isinstance(desk.turns.agent, Ranking):
            raise HTTPException(422, "likeliest: this agent cannot tell what else it might have done")
        history = await desk.read(request, lambda body: read_history(body, desk.pictures))
        answer = await desk.decide(request, history, likeliest)
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
        if chat.model != name:
            raise HTTPException(404, f"there is no model {chat.model[:80]!r} here: it is called {name!r}")
        answer = await desk.decide(request, chat.history)
        if chat.stream:
            return StreamingResponse(stream_chat(answer.decision, name), media_type="text/event-stream")
        return Response(write_chat(answer.decision, name), media_type="application/json")


def _refuse_in_a_sentence(server: FastAPI) -> None:
    @server.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        return refusal(request.url.path, error.status_code, str(error.detail), error.headers)

    @server.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return refusal(request.url.path, 422, f"{first['loc'][-1]}: {first['msg']}")


class _Desk:
    """Where requests are read and wait for their decision."""

    def __init__(self, agent: Agent) -> None:
        self.turns, self.pictures, self.counts = Turns(agent), Pictures(), Counts()
        self.readers, self.held = CapacityLimiter(READERS), 0

    async def read(self, request: Request, reader: Callable[[bytes], Read]) -> Read:
        body = await _body(request)
        try:
            async with asyncio.timeout(READ_S):
                return await to_thread.run_sync(reader, body, limiter=self.readers, abandon_on_cancel=True)
        except TimeoutError:
            raise HTTPException(503, f"the body was not read within {READ_S} seconds", RETRY) from None
        except UnknownScreenError as error:
            raise HTTPException(409, str(error)) from None
        except WireError as error:
            raise HTTPException(422, str(error)) from None

    @contextmanager
    def holding(self, history: History) -> Iterator[None]:
        """While it waits: all histories together hold so many bytes at most."""
        screens = {id(screen): screen for screen in (*(s.screen for s in history.steps), history.screen)}
        mine = sum(map(weight, screens.values()))
        if self.held + mine > MOST_HELD:
            raise HTTPException(503, "the histories that are here already fill the memory", RETRY)
        self.held += mine
        try:
            yield
        finally:
            self.held -= mine

    async def decide(self, request: Request, history: History, most: int = 0) -> Answer:
        with self.holding(history):
            answer = await _answer(request, self.turns.ask(history, most))
        self.counts.decisions.labels(type(answer.decision.action).__name__).inc()
        self.counts.waited.observe(answer.waited)
        self.counts.took.observe(answer.took / answer.together)
        self.counts.together.observe(answer.together)
        return answer


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # also keeps web pages of other origins out
        raise HTTPException(415, "the body has to come as application/json")
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                parts += part
                if len(parts) > MOST_BYTES:
                    raise HTTPException(413, f"the body has more than {MOST_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {BODY_S} seconds") from None
    except ClientDisconnect:
        raise HTTPException(499, "the client has gone") from None  # for the counts: nobody reads it
    return bytes(parts)


async def _answer(request: Request, asked: "Future[Answer]") -> Answer:
    """When its turn has come. Who hangs up is thought of no more."""
    answer = asyncio.wrap_future(asked)
    gone = asyncio.ensure_future(_gone(request))
    try:
        waited_for: set[asyncio.Future[Any]] = {answer, gone}
        await asyncio.wait(waited_for, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if not answer.done():
        answer.cancel()
        if gone.done():
            raise HTTPException(499, "the client has gone")  # for the counts: nobody reads it
        raise HTTPException(503, f"there was no decision within {ANSWER_S} seconds", RETRY)
    try:
        return answer.result()
    except asyncio.CancelledError:
        raise HTTPException(503, "the server is stopping", RETRY) from None
    except HistoryError as error:
        raise HTTPException(422, str(error)) from None
    except Exception as error:  # the sentence must not leak paths; the log has the rest
        log.exception("the agent failed")
        raise HTTPException(500, f"the agent failed ({type(error).__name__}): see the server's log") from None


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def serve(
    agent: Agent,
    name: str,
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
    with _listening(host, port) as line, suppress(KeyboardInterrupt):
        (ready or _announce)(_url(line))
        hosts = LOOPBACK if host in LOOPBACK else None
        _uvicorn(app(agent, name, grammar, token, hosts)).run(sockets=[line])


def _announce(url: str) -> None:
    print(f"serving at {url}", flush=True)  # who waits for this line reads a pipe


@contextmanager
def serving(
    agent: Agent, name: str, grammar: Mapping[str, object] | None = None, token: str | None = None
) -> Iterator[str]:
    """The URL of a server on a free port, in a thread that ends with the block."""
    with _listening("127.0.0.1", 0) as line:
        server = _uvicorn(app(agent, name, grammar, token, LOOPBACK))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]}, name="serving")
        thread.start()
        try:
            yield _url(line)
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.turns.stop()  # type: ignore[union-attr]  # before it waits for requests: they are told
        await super().shutdown(sockets)


def _uvicorn(server: FastAPI) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=5, server_header=False)
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=256)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot serve at {host}:{port}: {reason}; choose another --port") from error


def _url(line: socket.socket) -> str:
    host, port = line.getsockname()[:2]
    return f"http://{host}:{port}"

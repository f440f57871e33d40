"""An agent behind HTTP, on this machine only: histories in, decisions out.

    POST /act      a history as JSON -> the decision as JSON; nothing is kept between two requests
    GET  /health   {"status": "ok", "checkpoint": name, "grammar": {...}}

Errors are one sentence of plain text: 4xx where the request is wrong, 500 where the agent failed.
"""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from uivlm.agents.agent import Agent
from uivlm.serving.wire import WireError, read_history, write_decision

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024 * 1024  # of one request


def app(agent: Agent, name: str, grammar: Mapping[str, object] | None = None) -> FastAPI:
    """The application of one agent. Requests wait for each other: an agent decides one thing at a time."""
    server = FastAPI(title=f"uivlm {name}", docs_url=None, redoc_url=None, openapi_url=None)
    turn = threading.Lock()
    health = json.dumps({"status": "ok", "checkpoint": name, "grammar": dict(grammar or {})})

    def decide(body: bytes) -> str:
        try:
            history = read_history(body)
        except WireError as error:
            raise HTTPException(422, str(error)) from None
        try:
            with turn:
                agent.reset()  # no request knows of another
                return write_decision(agent.act(history))
        except Exception as error:  # the sentence must not leak paths; the log has the rest
            log.exception("the agent failed")
            raise HTTPException(
                500, f"the agent failed ({type(error).__name__}): see the server's log"
            ) from None

    @server.get("/health")
    def get_health() -> Response:
        return Response(health, media_type="application/json")

    @server.post("/act")
    async def post_act(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # also keeps web pages of other origins out
            raise HTTPException(415, "the history has to come as application/json")
        decision = await run_in_threadpool(decide, await _body(request))
        return Response(decision, media_type="application/json")

    @server.exception_handler(StarletteHTTPException)
    async def sentence(request: Request, error: StarletteHTTPException) -> Response:
        return PlainTextResponse(
            str(error.detail).encode("utf-8", "backslashreplace"), error.status_code, error.headers
        )

    return server


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MOST_BYTES:
            raise HTTPException(413, f"the history has more than {MOST_BYTES} bytes")
    return bytes(parts)


def serve(
    agent: Agent,
    name: str,
    grammar: Mapping[str, object] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until Ctrl-C. Port 0 takes a free one; `ready` gets the URL as soon as requests may come."""
    with _listening(host, port) as line, suppress(KeyboardInterrupt):
        (ready or _announce)(_url(line))
        _uvicorn(app(agent, name, grammar)).run(sockets=[line])


def _announce(url: str) -> None:
    print(f"serving at {url}", flush=True)  # who waits for this line reads a pipe


@contextmanager
def serving(agent: Agent, name: str, grammar: Mapping[str, object] | None = None) -> Iterator[str]:
    """The URL of a server on a free port, in a thread that ends with the block."""
    with _listening("127.0.0.1", 0) as line:
        server = _uvicorn(app(agent, name, grammar))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]}, name="serving")
        thread.start()
        try:
            yield _url(line)
        finally:
            server.should_exit = True
            thread.join()


def _uvicorn(server: FastAPI) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=5, server_header=False)
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=64)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot serve at {host}:{port}: {reason}; choose another --port") from error


def _url(line: socket.socket) -> str:
    host, port = line.getsockname()[:2]
    return f"http://{host}:{port}"

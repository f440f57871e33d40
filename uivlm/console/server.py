"""The console behind HTTP, on this machine alone: one page, and what it asks for.

    GET  /, /page.js, /draw.js, /point.js, /replay.js, /page.css
    GET  /events              the view as JSON, at once and whenever it changes (server-sent events)
    GET  /screen/NUMBER       the screen on show, a JPEG; 404 where it has changed
    GET  /steps/TRACE/T       a small picture of a step of what is on show
    GET  /traces?start=0      the list; /traces/NAME one trace; /traces/NAME/T its screen, a PNG
    POST /do/DEED             `deeds.py`

Errors are one sentence: 4xx where the page asks wrongly, 409 where it asks for what cannot be done now, 502 where the phone
fails.
"""

import asyncio
import io
import json
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from anyio import to_thread
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from numpy.typing import NDArray
from PIL import Image
from starlette.exceptions import HTTPException as StarletteHTTPException

from uivlm.agents.agent import Agent
from uivlm.console import deeds, traces
from uivlm.console.session import Session
from uivlm.console.steered import NotNowError
from uivlm.console.view import to_json
from uivlm.console.walls import Walls
from uivlm.devices.device import Device, DeviceError
from uivlm.listening import LOOPBACK, in_thread, listening, url_of
from uivlm.safety.policy import Policy
from uivlm.trace_read import Run

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024  # of a body
MOST_WATCHERS = 16  # pages that are told of changes
EVERY_S, BEAT_S = 0.04, 15.0  # how often changes are looked for, and told that there are none
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
SCRIPTS = ("page.js", "draw.js", "point.js", "replay.js", "page.css")


def app(session: Session) -> FastAPI:
    token = secrets.token_urlsafe(32)
    server = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    server.add_middleware(Walls, token=token, hosts=LOOPBACK)
    _page(server, token)
    _live(server, session)
    _past(server, session)

    @server.post("/do/{deed}")
    async def post(deed: str, request: Request) -> Response:
        body = await _body(request)
        try:
            await to_thread.run_sync(lambda: deeds.do(session, deed, deeds.read(body)))
        except NotNowError as error:
            raise HTTPException(409, str(error)) from None
        except DeviceError as error:
            raise HTTPException(502, str(error)) from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except OSError as error:
            log.exception("the console cannot write")
            raise HTTPException(500, f"the console cannot write its trace: {error}") from None
        return Response(status_code=204)

    @server.exception_handler(StarletteHTTPException)
    async def refused(_: Request, error: StarletteHTTPException) -> Response:
        return PlainTextResponse(str(error.detail).encode("utf-8", "backslashreplace"), error.status_code)

    @server.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return PlainTextResponse("there is nothing of that name: look at the list", 404)

    return server


def _page(server: FastAPI, token: str) -> None:
    """The page's own files."""
    texts = {
        name: files("uivlm.console").joinpath(name).read_text("utf-8") for name in (*SCRIPTS, "page.html")
    }

    @server.get("/")
    def get_page() -> Response:
        return Response(texts["page.html"].replace("{token}", token), media_type=KINDS["html"])

    def give(name: str) -> Callable[[], Response]:
        return lambda: Response(texts[name], media_type=KINDS[name.rpartition(".")[2]])

    for name in SCRIPTS:
        server.get(f"/{name}")(give(name))


def _live(server: FastAPI, session: Session) -> None:
    """What is on now."""
    watchers = 0

    async def events() -> AsyncIterator[str]:
        nonlocal watchers
        watchers += 1
        told, silent = -1, 0.0
        try:
            while not session.closed:
                view = session.view
                if view.version != told:
                    told, silent = view.version, 0.0
                    yield f"data: {to_json(view)}\n\n"
                elif silent >= BEAT_S:
                    silent = 0.0
                    yield ": nothing new\n\n"
                await asyncio.sleep(EVERY_S)
                silent += EVERY_S
        finally:
            watchers -= 1

    @server.get("/events")
    async def get_events() -> Response:
        if watchers >= MOST_WATCHERS:
            raise HTTPException(503, f"{MOST_WATCHERS} pages watch already: close one")
        return StreamingResponse(events(), media_type="text/event-stream")

    @server.get("/screen/{number}")
    def get_screen(number: int) -> Response:
        view = session.view
        if view.screen is None or number != view.num_screens:
            raise HTTPException(404, "the screen has changed since")
        return _jpeg(view.screen.pixels)

    @server.get("/steps/{trace}/{t}")
    def get_step(trace: str, t: int) -> Response:
        view = session.view
        if trace != view.trace or not 0 <= t < len(view.steps):
            raise HTTPException(404, "this step is not on show any more")
        return _jpeg(view.steps[t].small)


def _past(server: FastAPI, session: Session) -> None:
    """What was."""

    def found(name: str) -> Run:
        try:
            return traces.opened(session.traces, name)
        except FileNotFoundError as error:
            raise HTTPException(404, str(error)) from None
        except (ValueError, OSError) as error:
            raise HTTPException(422, f"this trace cannot be shown: {error}") from None

    @server.get("/traces")
    def get_traces(start: int = 0) -> Response:
        running = session.view.trace if session.view.phase != "idle" else ""
        return _json(traces.listed(session.traces, max(0, start), running))

    @server.get("/traces/{name}")
    def get_trace(name: str) -> Response:
        return _json(traces.to_json(found(name)))

    @server.get("/traces/{name}/{t}")
    def get_trace_screen(name: str, t: int) -> Response:
        rows = found(name).rows
        if not 0 <= t < len(rows) or rows[t].picture.is_symlink():
            raise HTTPException(404, f"the trace has no screen {t}")
        return FileResponse(rows[t].picture, media_type="image/png")


def _json(told: dict[str, Any]) -> Response:
    return Response(json.dumps(told), media_type="application/json")  # ASCII: texts may hold half of a pair


def _jpeg(pixels: "NDArray[Any]") -> Response:
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "JPEG", quality=90)
    return Response(packed.getvalue(), media_type="image/jpeg")


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MOST_BYTES:
            raise HTTPException(413, f"the body has more than {MOST_BYTES} bytes")
    return bytes(parts)


def console(
    agent: Agent,
    device: Device,
    policy: Policy,
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    ready: Callable[[str], None] = print,
) -> None:
    """The console until Ctrl-C; traces go into `folder`. Port 0 takes a free one; `ready` gets the URL as soon as requests may
    come. ValueError where the policy cannot be kept on this phone, or the address is not this machine's own."""
    if host not in LOOPBACK:
        raise ValueError(
            f"{host} can be reached by others, who could then use the phone: leave --host out, and from another machine come "
            f"through ssh -L {port}:127.0.0.1:{port}"
        )
    session = Session(agent, device, policy, folder)
    with listening(host, port) as line, suppress(KeyboardInterrupt):
        ready(url_of(line))
        _Server(session).run(sockets=[line])


@contextmanager
def consoling(session: Session) -> Iterator[str]:
    """The URL of a console on a free port, in a thread that ends with the block."""
    with in_thread(_Server(session), "console") as url:
        yield url


class _Server(uvicorn.Server):
    def __init__(self, session: Session) -> None:
        options: dict[str, Any] = {
            "log_level": "warning",
            "timeout_graceful_shutdown": 5,
            "server_header": False,
        }
        super().__init__(uvicorn.Config(app(session), **options))
        self.session = session

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await to_thread.run_sync(self.session.close)  # first: it ends the streams that pages wait at
        await super().shutdown(sockets)

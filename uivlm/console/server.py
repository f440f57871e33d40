"""The console over HTTP, on this machine only: one page and its requests.

    GET  /, /page.js, /draw.js, /point.js, /replay.js, /page.css
    GET  /events              the state as JSON, immediately and after each change (server-sent events)
    GET  /screens/ID          the current screen, a JPEG; 404 if it has changed
    GET  /steps/TRACE/T       the thumbnail of a step of the current run
    GET  /traces?start=0      the list; /traces/NAME one trace; /traces/NAME/T its screen, a PNG
    POST /commands            see `commands.py`

An error is one sentence. 409: impossible in the current state; 502: the phone failed; other 4xx: a wrong
request.
"""

import asyncio
import io
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from numpy.typing import NDArray
from PIL import Image
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import Receive, Scope, Send

from uivlm.agents.agent import Agent
from uivlm.console import commands, traces
from uivlm.console.middleware import SameOriginMiddleware
from uivlm.console.session import Session
from uivlm.console.state import state_to_json
from uivlm.console.supervised_run import InvalidStateError
from uivlm.devices.device import Device, DeviceError
from uivlm.rollout.trace_reader import RecordedRun
from uivlm.safety.policy import Policy
from uivlm.safety.secrets import Secrets
from uivlm.serving.listen import LOOPBACK_HOSTS, LimitedServer, open_listener, run_in_thread, socket_url

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
MAX_EVENT_STREAMS = 16  # concurrent pages
POLL_INTERVAL_S, HEARTBEAT_S = (
    0.04,
    15.0,
)  # seconds between looks for a change, and between comments without one
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
SCRIPTS = ("page.js", "draw.js", "point.js", "replay.js", "page.css")


def create_app(session: Session) -> FastAPI:
    token = token_urlsafe(32)
    server = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    server.add_middleware(SameOriginMiddleware, token=token, hosts=LOOPBACK_HOSTS)
    _add_page_routes(server, token)
    _add_live_routes(server, session)
    _add_trace_routes(server, session)

    @server.post("/commands")
    async def post_command(request: Request) -> Response:
        body = await _read_body(request)
        try:
            command = commands.parse_command(body)
            await to_thread.run_sync(lambda: commands.run_command(session, command))
        except InvalidStateError as error:
            raise HTTPException(409, str(error)) from None
        except DeviceError as error:
            raise HTTPException(502, str(error)) from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except OSError as error:
            log.exception("cannot write the trace")
            raise HTTPException(500, f"cannot write the trace: {error}") from None
        return Response(status_code=204)

    @server.exception_handler(StarletteHTTPException)
    async def http_error(_: Request, error: StarletteHTTPException) -> Response:
        return PlainTextResponse(str(error.detail).encode("utf-8", "backslashreplace"), error.status_code)

    @server.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> Response:
        return PlainTextResponse("no such screen, step or trace: refresh the list", 404)

    return server


def _add_page_routes(server: FastAPI, token: str) -> None:
    """The page and its files."""
    texts = {
        name: files("uivlm.console").joinpath(name).read_text("utf-8") for name in (*SCRIPTS, "page.html")
    }

    @server.get("/")
    def get_page() -> Response:
        return Response(texts["page.html"].replace("{token}", token), media_type=MEDIA_TYPES["html"])

    def file_route(name: str) -> Callable[[], Response]:
        return lambda: Response(texts[name], media_type=MEDIA_TYPES[name.rpartition(".")[2]])

    for name in SCRIPTS:
        server.get(f"/{name}")(file_route(name))


def _add_live_routes(server: FastAPI, session: Session) -> None:
    """The current state."""
    streams = asyncio.Semaphore(MAX_EVENT_STREAMS)

    async def events() -> AsyncIterator[str]:
        sent_version, silent_s = -1, 0.0
        while not session.closed:
            state = session.state
            if state.version != sent_version:
                sent_version, silent_s = state.version, 0.0
                yield f"data: {state_to_json(state)}\n\n"
            elif silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield ": no change\n\n"
            await asyncio.sleep(POLL_INTERVAL_S)
            silent_s += POLL_INTERVAL_S

    @server.get("/events")
    async def get_events() -> Response:
        if streams.locked():
            raise HTTPException(503, f"{MAX_EVENT_STREAMS} pages are open, the maximum: close one")
        await streams.acquire()  # without waiting; counted from here on, before the stream begins
        return _EventStream(events(), streams)

    @server.get("/screens/{screen_id}")
    def get_screen(screen_id: int) -> Response:
        state = session.state
        if state.screen is None or screen_id != state.screen_id:
            raise HTTPException(404, "the screen has changed")
        return _jpeg_response(state.screen.pixels)

    @server.get("/steps/{trace}/{t}")
    def get_step(trace: str, t: int) -> Response:
        state = session.state
        if trace != state.trace or not 0 <= t < len(state.steps):
            raise HTTPException(404, "the current run has no such step")
        return _jpeg_response(state.steps[t].thumbnail)


class _EventStream(StreamingResponse):
    """Releases its place at its end, also if it never begins to stream."""

    def __init__(self, events: AsyncIterator[str], place: asyncio.Semaphore) -> None:
        super().__init__(events, media_type="text/event-stream")
        self.place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.place.release()


def _add_trace_routes(server: FastAPI, session: Session) -> None:
    """Recorded runs."""

    def open_trace(name: str) -> RecordedRun:
        try:
            return traces.open_trace(session.trace_dir, name)
        except FileNotFoundError as error:
            raise HTTPException(404, str(error)) from None
        except (ValueError, OSError) as error:
            raise HTTPException(422, f"cannot show this trace: {error}") from None

    @server.get("/traces")
    def get_traces(start: int = 0) -> Response:
        running = session.state.trace if session.state.phase != "idle" else ""
        return _json_response(traces.list_traces(session.trace_dir, max(0, start), running))

    @server.get("/traces/{name}")
    def get_trace(name: str) -> Response:
        return _json_response(traces.run_to_json(open_trace(name)))

    @server.get("/traces/{name}/{t}")
    def get_trace_screen(name: str, t: int) -> Response:
        run = open_trace(name)
        if not 0 <= t < len(run.steps) or run.image_path(run.steps[t]).is_symlink():
            raise HTTPException(404, f"the trace has no screen {t}")
        return FileResponse(run.image_path(run.steps[t]), media_type="image/png")


def _json_response(payload: dict[str, Any]) -> Response:
    return Response(json.dumps(payload), media_type="application/json")  # ASCII


def _jpeg_response(pixels: "NDArray[Any]") -> Response:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return Response(file.getvalue(), media_type="image/jpeg")


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES} bytes, the maximum")
    return bytes(body)


def console(
    agent: Agent,
    device: Device,
    policy: Policy,
    secrets: Secrets,
    trace_dir: Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the console until Ctrl-C; traces go into `trace_dir`. Port 0 takes a free one; `ready` gets the
    URL.

    Raises ValueError if the phone cannot support the policy, or if the host is not a loopback address.
    """
    if host not in LOOPBACK_HOSTS:
        raise ValueError(
            f"host: got {host}; expected a loopback address, because other machines could use the phone. "
            f"From another machine, use ssh -L {port}:127.0.0.1:{port}"
        )
    session = Session(agent, device, policy, secrets, trace_dir)
    with open_listener(host, port) as listener, suppress(KeyboardInterrupt):
        ready(socket_url(listener))
        _ConsoleServer(session).run(sockets=[listener])


@contextmanager
def console_in_thread(session: Session) -> Iterator[str]:
    """Serve a console on a free port, in a thread that ends with the block. Yields its URL."""
    with run_in_thread(_ConsoleServer(session), "console") as url:
        yield url


class _ConsoleServer(LimitedServer):
    def __init__(self, session: Session) -> None:
        super().__init__(create_app(session))
        self.session = session

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await to_thread.run_sync(self.session.close)  # first: it ends the open event streams
        await super().shutdown(sockets)

"""Request handling: read the body within limits, wait for the decision, turn errors into one sentence."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from uivlm.actions.schema import SchemaError
from uivlm.agents.agent import Agent
from uivlm.episodes.episode import History, HistoryError
from uivlm.serving.batching import Batcher, Reply
from uivlm.serving.metrics import ServerMetrics
from uivlm.serving.protocol import UnknownScreenError
from uivlm.serving.screen_cache import ScreenCache, screen_bytes

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 128 * 1024 * 1024  # of one request
BODY_TIMEOUT_S = 60  # for a body to arrive
MAX_CONCURRENT_READS = 2  # bodies that are parsed at once: their images may be large
READ_TIMEOUT_S = 60  # for a body to be parsed
DECISION_TIMEOUT_S = 120
MAX_HELD_BYTES = 4 << 30  # of all queued histories
RETRY_HEADERS = {"retry-after": "10"}
CLIENT_CLOSED_REQUEST = 499  # nginx's status for the metrics; nobody receives it
Parsed = TypeVar("Parsed")


class RequestHandler:
    """Shared by all requests of a server."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self.batchers = {name: Batcher(agent) for name, agent in agents.items()}
        self.default_model = next(iter(agents))
        self.screen_cache, self.metrics = ScreenCache(), ServerMetrics()
        self.read_limiter, self.held_bytes = CapacityLimiter(MAX_CONCURRENT_READS), 0

    def batcher_for(self, name: str) -> Batcher:
        if name not in self.batchers:
            available = ", ".join(map(repr, self.batchers))
            raise HTTPException(404, f"model: got {name[:80]!r}; expected one of {available}")
        return self.batchers[name]

    async def read(self, request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
        body = await _read_body(request)
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await to_thread.run_sync(
                    parse, body, limiter=self.read_limiter, abandon_on_cancel=True
                )
        except TimeoutError:
            message = f"parsing the body took more than {READ_TIMEOUT_S} s"
            raise HTTPException(503, message, RETRY_HEADERS) from None
        except UnknownScreenError as error:
            raise HTTPException(409, str(error)) from None
        except SchemaError as error:
            raise HTTPException(422, str(error)) from None

    @contextmanager
    def reserve_memory(self, history: History) -> Iterator[None]:
        """Count the history's bytes while it is queued; reject it when MAX_HELD_BYTES are reached."""
        screens = {id(screen): screen for screen in (*(s.screen for s in history.steps), history.screen)}
        num_bytes = sum(map(screen_bytes, screens.values()))
        if self.held_bytes + num_bytes > MAX_HELD_BYTES:
            message = (
                f"server overloaded: queued histories hold {self.held_bytes >> 20} MiB; retry after 10 s"
            )
            raise HTTPException(503, message, RETRY_HEADERS)
        self.held_bytes += num_bytes
        try:
            yield
        finally:
            self.held_bytes -= num_bytes

    async def decide(self, request: Request, batcher: Batcher, history: History, top_k: int = 0) -> Reply:
        with self.reserve_memory(history):
            reply = await _wait_for_decision(request, batcher.submit(history, top_k))
        self.metrics.decisions.labels(reply.candidates[0].action.type).inc()
        timings = reply.timings
        self.metrics.queue_time.observe(timings.queue_ms / 1000)
        self.metrics.inference_time.observe(timings.inference_ms / timings.batch_size / 1000)
        self.metrics.batch_size.observe(timings.batch_size)
        return reply


async def _read_body(request: Request) -> bytes:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":  # also keeps out web pages of other origins
        raise HTTPException(415, f"Content-Type: got {content_type[:80]!r}; expected application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"body: more than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"body: not received within {BODY_TIMEOUT_S} s") from None
    except ClientDisconnect:
        raise HTTPException(CLIENT_CLOSED_REQUEST, "client disconnected") from None
    return bytes(body)


async def _wait_for_decision(request: Request, future: "Future[Reply]") -> Reply:
    """The reply. If the client disconnects, its request is cancelled."""
    reply = asyncio.wrap_future(future)
    disconnected = asyncio.ensure_future(_client_disconnected(request))
    try:
        either: set[asyncio.Future[Any]] = {reply, disconnected}
        await asyncio.wait(either, timeout=DECISION_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnected.cancel()
    if not reply.done():
        reply.cancel()
        if disconnected.done():
            raise HTTPException(CLIENT_CLOSED_REQUEST, "client disconnected")
        raise HTTPException(503, f"no decision within {DECISION_TIMEOUT_S} s", RETRY_HEADERS)
    try:
        return reply.result()
    except asyncio.CancelledError:
        raise HTTPException(503, "the server is stopping", RETRY_HEADERS) from None
    except HistoryError as error:
        raise HTTPException(422, str(error)) from None
    except Exception as error:  # the log has the rest: an exception's text may contain paths
        log.exception("the agent failed")
        raise HTTPException(500, f"the agent failed ({type(error).__name__}): see the server's log") from None


async def _client_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""Request handling: read the body within limits, wait for the decision, turn errors into one sentence."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from uivlm.actions.schema import SchemaError
from uivlm.agents.agent import Agent
from uivlm.episodes.episode import History, HistoryError
from uivlm.serving.batching import Batcher, Reply
from uivlm.serving.fair_slots import FairSlots
from uivlm.serving.memory import MemoryBudget, MemoryLimitError, MemoryShare
from uivlm.serving.metrics import ServerMetrics
from uivlm.serving.protocol import UnknownScreenError
from uivlm.serving.screen_cache import MAX_REQUEST_PIXELS, ScreenCache, ScreenDecoder, screen_bytes

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 128 * 1024 * 1024  # of one request
BODY_TIMEOUT_S = 60  # for a body to arrive
CROWDED_BODY_TIMEOUT_S = 10  # the same while more than MAX_QUIET_BODIES arrive: they take others' places
MAX_QUIET_BODIES = 64
MAX_CONCURRENT_READS = 2  # bodies that are parsed, or screens that are decoded, at once
READ_TIMEOUT_S = 60  # for a body to be parsed
DECISION_TIMEOUT_S = 120
MAX_HELD_BYTES = 4 << 30  # of all requests: bodies, decoded screens, queued histories
MAX_ADDRESS_BYTES = 2 << 30  # of the requests of one client address
BODY_COPIES = 2  # the body itself, and its texts once it is parsed
RETRY_HEADERS = {"retry-after": "10"}
CLIENT_CLOSED_REQUEST = 499  # nginx's status for the metrics; nobody receives it
Parsed = TypeVar("Parsed")


class RequestHandler:
    """Shared by all requests of a server. `max_pixels`: of the screens of one request."""

    def __init__(self, agents: Mapping[str, Agent], max_pixels: int = MAX_REQUEST_PIXELS) -> None:
        self.batchers = {name: Batcher(agent) for name, agent in agents.items()}
        self.default_model = next(iter(agents))
        self.max_pixels = max_pixels
        self.screen_cache, self.metrics = ScreenCache(), ServerMetrics()
        self.slots, self.read_limiter = FairSlots(MAX_CONCURRENT_READS), CapacityLimiter(math.inf)
        self.memory = MemoryBudget(MAX_HELD_BYTES, MAX_ADDRESS_BYTES)
        self.metrics.held_bytes.set_function(lambda: self.memory.num_bytes)
        self._arriving: dict[asyncio.Timeout, float] = {}  # bodies, and since when (the loop's seconds)

    def batcher_for(self, name: str) -> Batcher:
        if name not in self.batchers:
            available = ", ".join(map(repr, self.batchers))
            raise HTTPException(404, f"model: got {name[:80]!r}; expected one of {available}")
        return self.batchers[name]

    @contextmanager
    def share_memory(self, request: Request) -> Iterator[MemoryShare]:
        """What the request holds is counted until the block ends."""
        try:
            with self.memory.share(request.client.host if request.client else "unknown") as share:
                yield share
        except MemoryLimitError as error:
            raise HTTPException(error.status, str(error), RETRY_HEADERS) from None

    async def read(
        self, request: Request, share: MemoryShare, parse: Callable[[bytearray, ScreenDecoder], Parsed]
    ) -> Parsed:
        body = await self._read_body(request, share)
        screens = ScreenDecoder(
            self.screen_cache, self.max_pixels, lambda: self.slots.slot(share.num_bytes), share.grow
        )
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await to_thread.run_sync(
                    parse, body, screens, limiter=self.read_limiter, abandon_on_cancel=True
                )
        except TimeoutError:
            message = f"parsing the body took more than {READ_TIMEOUT_S} s"
            raise HTTPException(503, message, RETRY_HEADERS) from None
        except UnknownScreenError as error:
            raise HTTPException(409, str(error)) from None
        except SchemaError as error:
            raise HTTPException(422, str(error)) from None

    async def _read_body(self, request: Request, share: MemoryShare) -> bytearray:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":  # also keeps out web pages of other origins
            raise HTTPException(415, f"Content-Type: got {content_type[:80]!r}; expected application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S) as timeout, self._arrival(timeout):
                async for chunk in request.stream():
                    share.grow(BODY_COPIES * len(chunk))
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise HTTPException(413, f"body: more than {MAX_BODY_BYTES} bytes")
        except TimeoutError:
            raise HTTPException(408, "body: not received in time") from None
        except ClientDisconnect:
            raise HTTPException(CLIENT_CLOSED_REQUEST, "client disconnected") from None
        return body

    @asynccontextmanager
    async def _arrival(self, timeout: asyncio.Timeout) -> AsyncIterator[None]:
        """Count the body as arriving. Too many at once shorten the time of all of them."""
        self._arriving[timeout] = asyncio.get_running_loop().time()
        if len(self._arriving) > MAX_QUIET_BODIES:
            for each, since in self._arriving.items():
                if not each.expired():
                    each.reschedule(min(each.when() or math.inf, since + CROWDED_BODY_TIMEOUT_S))
        try:
            yield
        finally:
            del self._arriving[timeout]

    async def decide(
        self, request: Request, share: MemoryShare, batcher: Batcher, history: History, top_k: int = 0
    ) -> Reply:
        share.resize(_history_bytes(history))  # the body and its texts are gone
        reply = await _wait_for_decision(request, batcher.submit(history, top_k))
        self.metrics.decisions.labels(reply.candidates[0].action.type).inc()
        timings = reply.timings
        self.metrics.queue_time.observe(timings.queue_ms / 1000)
        self.metrics.inference_time.observe(timings.inference_ms / timings.batch_size / 1000)
        self.metrics.batch_size.observe(timings.batch_size)
        return reply


def _history_bytes(history: History) -> int:
    screens = {id(screen): screen for screen in (*(s.screen for s in history.steps), history.screen)}
    return sum(map(screen_bytes, screens.values()))


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

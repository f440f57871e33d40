"""Where requests are read and wait for the agent's decision: their bodies in, answers out, and refusals in one sentence."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from uivlm.agents.agent import Agent
from uivlm.episode import History, HistoryError
from uivlm.serving.pictures import Pictures, weight
from uivlm.serving.strict import WireError
from uivlm.serving.turns import Answer, Turns
from uivlm.serving.walls import Counts
from uivlm.serving.wire import UnknownScreenError

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024 * 1024  # of one request
BODY_S, ANSWER_S = 60, 120  # seconds for a body to come, and for a decision
READERS, READ_S = 2, 60  # bodies that are read at once, and seconds for it: their pictures may be large
MOST_HELD = 4 << 30  # bytes of the histories that wait
RETRY = {"retry-after": "10"}
Read = TypeVar("Read")


class Desk:
    """Where requests are read and wait for their decision."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self.turns = {name: Turns(agent) for name, agent in agents.items()}
        self.first = next(iter(agents))
        self.pictures, self.counts = Pictures(), Counts()
        self.readers, self.held = CapacityLimiter(READERS), 0

    def turns_of(self, name: str) -> Turns:
        if name not in self.turns:
            there = ", ".join(map(repr, self.turns))
            raise HTTPException(404, f"there is no model {name[:80]!r} here: there is {there}")
        return self.turns[name]

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

    async def decide(self, request: Request, turns: Turns, history: History, most: int = 0) -> Answer:
        with self.holding(history):
            answer = await _answer(request, turns.ask(history, most))
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

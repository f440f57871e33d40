"""What every request passes: a token where one is asked for, a limit of requests at once; and what is counted of it."""

import hmac
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = ("/health",)  # needs no token
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Counts:
    """What `/metrics` tells, in Prometheus's words."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        told: dict[str, Any] = {"registry": self.registry, "namespace": "uivlm"}
        self.requests = Counter("requests", "Requests by path and status.", ["path", "status"], **told)
        self.seconds = Histogram(
            "request_seconds", "Until the answer was sent.", ["path"], buckets=SECONDS, **told
        )
        self.here = Gauge("requests_here", "Histories that are not answered yet.", **told)
        self.decisions = Counter("decisions", "Decisions by kind of action.", ["kind"], **told)
        self.waited = Histogram("waited_seconds", "Until the agent was asked.", buckets=SECONDS, **told)
        self.took = Histogram(
            "took_seconds", "That the agent thought, shared by those it thought of.", buckets=SECONDS, **told
        )
        self.together = Histogram(
            "together", "Histories that were thought of with one.", buckets=(1, 2, 4, 8, 16), **told
        )


def refusal(path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """One sentence; where OpenAI's clients ask, in the form in which they look for it."""
    told = sentence.encode("utf-8", "backslashreplace").decode()
    if path.startswith("/v1/"):
        return JSONResponse({"error": {"message": told, "type": "invalid_request_error"}}, status, headers)
    return PlainTextResponse(told, status, dict(headers or {}))


class Walls:
    """ASGI middleware. `token`: what every request but those of OPEN has to bring as `Authorization: Bearer TOKEN`; `most`: of
    all others at once."""

    def __init__(
        self,
        app: ASGIApp,
        counts: Counts,
        paths: frozenset[str],
        token: str | None,
        most: int,
    ) -> None:
        self.app, self.counts, self.paths, self.token, self.most = app, counts, paths, token, most
        self.here = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else "other"
        status, began = 500, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        asks = scope["method"] == "POST"  # who only looks is answered even where there is too much to do
        self.here += asks
        self.counts.here.inc(asks)
        try:
            await (self._refusal(scope) or self.app)(scope, receive, watched)
        finally:
            self.here -= asks
            self.counts.here.dec(asks)
            self.counts.requests.labels(path, status).inc()
            self.counts.seconds.labels(path).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> Response | None:
        if self.token and scope["path"] not in OPEN:
            brought = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(brought, b"Bearer " + self.token.encode()):
                sentence = "this server asks for its token: Authorization: Bearer TOKEN"
                return refusal(scope["path"], 401, sentence, {"www-authenticate": "Bearer"})
        if self.here > self.most and scope["method"] == "POST":
            sentence = f"{self.most} requests are here already: come again in a second"
            return refusal(scope["path"], 503, sentence, {"retry-after": "1"})
        return None

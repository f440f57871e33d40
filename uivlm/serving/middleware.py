"""What every request passes: the API key, the limit of requests in flight, the metrics."""

import hmac
import time
from collections.abc import Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uivlm.serving.metrics import ServerMetrics

PUBLIC_PATHS = ("/health",)  # need no API key


def error_response(
    path: str, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """One sentence: plain text, or OpenAI's error object for paths of its API."""
    sentence = message.encode("utf-8", "backslashreplace").decode()
    if path.startswith("/v1/"):
        error = {"message": sentence, "type": "invalid_request_error"}
        return JSONResponse({"error": error}, status, headers)
    return PlainTextResponse(sentence, status, dict(headers or {}))


class LimitsMiddleware:
    """ASGI middleware.

    `api_key`: required as `Authorization: Bearer KEY`, except for PUBLIC_PATHS.
    `max_requests`: POST requests in flight; one more is rejected with 503.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        paths: frozenset[str],  # those that the metrics name; all others count as "other"
        api_key: str | None,
        max_requests: int,
    ) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths
        self.api_key, self.max_requests = api_key, max_requests
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else "other"
        status, start_time = 500, time.perf_counter()

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        counted = scope["method"] == "POST"  # GET requests are answered even under overload
        self.in_flight += counted
        self.metrics.requests_running.inc(counted)
        try:
            await (self._rejection(scope) or self.app)(scope, receive, send_and_note_status)
        finally:
            self.in_flight -= counted
            self.metrics.requests_running.dec(counted)
            self.metrics.requests.labels(path, status).inc()
            self.metrics.request_latency.labels(path).observe(time.perf_counter() - start_time)

    def _rejection(self, scope: Scope) -> Response | None:
        if self.api_key and scope["path"] not in PUBLIC_PATHS:
            header = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(header, b"Bearer " + self.api_key.encode()):
                message = "missing or invalid API key: send 'Authorization: Bearer KEY'"
                return error_response(scope["path"], 401, message, {"www-authenticate": "Bearer"})
        if self.in_flight > self.max_requests and scope["method"] == "POST":
            message = f"server overloaded: {self.max_requests} requests in flight; retry after 1 s"
            return error_response(scope["path"], 503, message, {"retry-after": "1"})
        return None

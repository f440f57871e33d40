"""Every request passes this: only the console's own page may send commands, and no other page may read
responses.

A page of another site can send requests to this machine. So a POST must carry the token that only our page
can read. A request that a browser marks as cross-site gets only the page itself, which no site may frame or
read.
"""

import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-console-token"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class SameOriginMiddleware:
    """ASGI middleware. `hosts`: the accepted Host headers; any other name is DNS rebinding."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        self.app, self.token, self.hosts = app, token, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await (self._rejection(scope) or self.app)(scope, receive, send_with_headers)

    def _rejection(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in self.hosts and host not in self.hosts:
            return _error_response(400, f"Host: got {host!a:.80}; open the address that the console printed")
        reads = scope["method"] in ("GET", "HEAD")
        cross_site = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if cross_site and not (reads and scope["path"] == "/"):
            return _error_response(403, "cross-site request rejected: open the console's own page")
        if reads:
            return None
        if urlsplit(headers.get("origin", f"http://{host}")).netloc != host:
            return _error_response(403, "cross-site request rejected: open the console's own page")
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            return _error_response(403, "missing or invalid token: reload the page")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _error_response(415, "content-type: expected application/json")
        return None


def _error_response(status: int, message: str) -> Response:
    return PlainTextResponse(message, status)

"""What every request passes: only the console's own page may ask, and answers go into no other page.

A web page elsewhere can send requests to this machine. So a post must bring the token that only our page can read, and a
request that a browser says to be of another site gets nothing but the page itself, which no site may frame or read.
"""

import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "x-console-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAID = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Walls:
    """ASGI middleware. `hosts`: the only names by which this server is called (a name bent to this machine is another)."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        self.app, self.token, self.hosts = app, token, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def walled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAID)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, walled)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in self.hosts and host not in self.hosts:
            return _refusal(
                400, "this console is called by its own address alone: open the one that it printed"
            )
        looks = scope["method"] in ("GET", "HEAD")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not (
            looks and scope["path"] == "/"
        ):
            return _refusal(403, "another site asks: open the console's own page")
        if looks:
            return None
        if urlsplit(headers.get("origin", f"http://{host}")).netloc != host:
            return _refusal(403, "another site asks: open the console's own page")
        if not hmac.compare_digest(headers.get(TOKEN, "").encode(), self.token.encode()):
            return _refusal(403, "the page is of a console that has ended: load it again")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refusal(415, "the body has to come as application/json")
        return None


def _refusal(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence, status)

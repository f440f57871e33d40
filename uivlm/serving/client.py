"""RemoteAgent: an agent behind HTTP. It sends each history to a server and is an `Agent` like any other.

The server is not trusted: an answer has a maximum size, and a deadline that a slow answer does not extend.
"""

import asyncio
import ssl
from weakref import WeakKeyDictionary

import httpx

from uivlm.actions.decision import Decision
from uivlm.actions.schema import SchemaError, parse_json
from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import History, Screen
from uivlm.serving.protocol import HEALTH, VERSION, EncodedScreen, Health, read_decision, write_history

UNKNOWN_SCREEN_STATUS = 409  # a screen was named that is not in the server's cache
MAX_ANSWER_BYTES = 1 << 20  # ten candidates with texts of 20,000 characters fit


class RemoteAgent:
    """The agent that `uivlm serve` put behind a URL. Each screen is sent once; later requests name it."""

    def __init__(self, url: str, timeout_s: float = 300.0, api_key: str | None = None) -> None:
        """`url` may end with `?model=NAME` to choose one of several models.

        `timeout_s`: of a whole request, from its first byte to the last of its answer.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"server URL: got {url!r}; expected http://... or https://...")
        base_url, _, query = url.partition("?")
        if query and not query.startswith("model="):
            raise ValueError(f"server URL: got {url!r}; expected nothing but model=NAME after the '?'")
        self.url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self._act_path = f"/act?{query}" if query else "/act"
        headers = {"accept-encoding": "identity"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        # The system's certificates, or those that OpenSSL's SSL_CERT_FILE names.
        verify = ssl.create_default_context() if url.startswith("https://") else False
        try:
            # The server is the user's own, so no proxy of the environment is used.
            self._http = httpx.AsyncClient(
                base_url=self.url, timeout=None, trust_env=False, headers=headers, verify=verify
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"server URL: got {url!r} ({error}); expected http://HOST:PORT") from None
        self._runner = asyncio.Runner()  # a task can be ended at its deadline, whatever it waits for
        self._encoded_screens: WeakKeyDictionary[Screen, EncodedScreen] = WeakKeyDictionary()
        self._known_digests: frozenset[str] = frozenset()  # of the screens that the server has

    def reset(self) -> None:
        """The server keeps no state that a decision depends on."""
        self._known_digests = frozenset()

    def act(self, history: History) -> Decision:
        body = write_history(history, self._encode_screen, self._known_digests)
        response = self._send("POST", self._act_path, body)
        if response.status_code == UNKNOWN_SCREEN_STATUS:
            response = self._send("POST", self._act_path, write_history(history, self._encode_screen))
        screens = (*(step.screen for step in history.steps), history.screen)
        try:
            decision = read_decision(self._check_status(response).content)
        except SchemaError as error:
            raise AgentError(f"invalid answer from the server at {self.url}: {error}") from error
        self._known_digests = frozenset(self._encode_screen(screen).sha256 for screen in screens)
        return decision

    def health(self) -> Health:
        """Raises AgentError for a server that is down, or speaks another version of the protocol."""
        response = self._check_status(self._send("GET", "/health"))
        try:
            health = parse_json(HEALTH, response.content, "health")
        except SchemaError as error:
            raise AgentError(
                f"{self.url} is not an agent server of protocol {VERSION} ({error}): start one with"
                " `uivlm serve` of this release"
            ) from error
        if health.protocol_version != VERSION:
            raise AgentError(
                f"{self.url}: got protocol {health.protocol_version}; expected {VERSION}. Install the same"
                " uivlm release on both sides"
            )
        return health

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()

    def __enter__(self) -> "RemoteAgent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode_screen(self, screen: Screen) -> EncodedScreen:
        if screen not in self._encoded_screens:
            self._encoded_screens[screen] = EncodedScreen.from_screen(screen)
        return self._encoded_screens[screen]

    def _send(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        try:
            return self._runner.run(self._exchange(method, path, body))
        except TimeoutError:
            raise AgentError(f"the server at {self.url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise AgentError(
                f"cannot reach a server at {self.url} ({error}): start one with `uivlm serve`"
            ) from error

    async def _exchange(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        """The whole answer. Raises TimeoutError, httpx.HTTPError, and AgentError if it is too large."""
        headers = {} if body is None else {"content-type": "application/json"}
        async with (
            asyncio.timeout(self.timeout_s),
            self._http.stream(method, path, content=body, headers=headers) as response,
        ):
            answer = bytearray()
            async for chunk in response.aiter_raw():  # unpacked, it could be a thousand times as large
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES:
                    raise AgentError(f"the server at {self.url} sent more than {MAX_ANSWER_BYTES} bytes")
            return httpx.Response(response.status_code, content=bytes(answer))

    def _check_status(self, response: httpx.Response) -> httpx.Response:
        if response.status_code != 200:
            raise AgentError(
                f"the server at {self.url} answered with status {response.status_code}: {response.text[:500]}"
            )
        return response

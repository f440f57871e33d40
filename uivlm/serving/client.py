"""An agent that is somewhere else: RemoteAgent sends each history to a server and is an Agent like any other."""

from weakref import WeakKeyDictionary

import httpx

from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import History, Screen
from uivlm.serving.strict import WireError
from uivlm.serving.wire import Packed, read_decision, write_history

UNKNOWN = 409  # a screen was named that the server has dropped


class RemoteAgent:
    """The agent that `uivlm serve` put behind a URL. Each screen is packed and sent once; later it is named."""

    def __init__(self, url: str, timeout_s: float = 300.0, token: str | None = None) -> None:
        """`url` may end with `?model=NAME`, where a server has several."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no address of a server: it must begin with http:// or https://")
        where, _, asked = url.partition("?")
        if asked and not asked.startswith("model="):
            raise ValueError(f"{url!r} is no address of an agent: after the ? may stand model=NAME alone")
        self.url = where.rstrip("/")
        self._act = f"/act?{asked}" if asked else "/act"
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            # No proxy: a server of one's own is meant.
            self._http = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False, headers=headers)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url!r} is no address of a server: {error}") from None
        self._packed: WeakKeyDictionary[Screen, Packed] = WeakKeyDictionary()
        self._known: frozenset[str] = frozenset()  # digests of the pictures that the server has

    def reset(self) -> None:
        """The server keeps nothing that matters."""
        self._known = frozenset()

    def act(self, history: History) -> Decision:
        answer = self._send("POST", self._act, write_history(history, self._pack, self._known))
        if answer.status_code == UNKNOWN:
            answer = self._send("POST", self._act, write_history(history, self._pack))
        screens = (*(step.screen for step in history.steps), history.screen)
        try:
            decision = read_decision(self._fine(answer).content)
        except WireError as error:
            raise AgentError(f"the server at {self.url} sent no decision: {error}") from error
        self._known = frozenset(self._pack(screen).sha256 for screen in screens)
        return decision

    def health(self) -> dict[str, object]:
        """{"status", "checkpoint", "grammar"} of the server."""
        answer = self._fine(self._send("GET", "/health"))
        try:
            health = answer.json()
        except ValueError:
            health = None
        if not isinstance(health, dict) or health.get("status") != "ok":
            raise AgentError(f"what answers at {self.url} is no agent: {answer.text[:200]!r}")
        return health

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "RemoteAgent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pack(self, screen: Screen) -> Packed:
        if screen not in self._packed:
            self._packed[screen] = Packed.of(screen)
        return self._packed[screen]

    def _send(self, method: str, path: str, message: str | None = None) -> httpx.Response:
        headers = {} if message is None else {"content-type": "application/json"}
        try:
            return self._http.request(method, path, content=message, headers=headers)
        except httpx.TimeoutException:
            raise AgentError(f"the agent at {self.url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise AgentError(
                f"no agent answers at {self.url} ({error}): start one with `uivlm serve`"
            ) from error

    def _fine(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code != 200:
            raise AgentError(f"the agent at {self.url} refused ({answer.status_code}): {answer.text[:500]}")
        return answer

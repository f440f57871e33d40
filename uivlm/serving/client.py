"""An agent that is somewhere else: RemoteAgent sends each history to a server and is an Agent like any other."""

import httpx

from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import History, Screen
from uivlm.serving.wire import WireError, read_decision, write_history


class RemoteAgent:
    """The agent that `uivlm serve` put behind a URL."""

    def __init__(self, url: str, timeout_s: float = 300.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no address of a server: it must begin with http:// or https://")
        self.url = url.rstrip("/")
        try:
            # No proxy: a server of one's own is meant.
            self._http = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url!r} is no address of a server: {error}") from None
        self._pictures: dict[int, str] = {}  # screen's identity -> its PNG
        self._screens: tuple[Screen, ...] = ()  # keeps those screens alive: no identity is given twice

    def reset(self) -> None:
        """The server keeps nothing: only the pictures that were made for sending are dropped."""
        self._pictures, self._screens = {}, ()

    def act(self, history: History) -> Decision:
        message = write_history(history, self._pictures)
        screens = (*(step.screen for step in history.steps), history.screen)
        self._pictures = {id(screen): self._pictures[id(screen)] for screen in screens}
        self._screens = screens
        answer = self._ask("POST", "/act", message)
        try:
            return read_decision(answer.content)
        except WireError as error:
            raise AgentError(f"the server at {self.url} sent no decision: {error}") from error

    def health(self) -> dict[str, object]:
        """{"status", "checkpoint", "grammar"} of the server."""
        answer = self._ask("GET", "/health")
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

    def _ask(self, method: str, path: str, message: str | None = None) -> httpx.Response:
        headers = {} if message is None else {"content-type": "application/json"}
        try:
            answer = self._http.request(method, path, content=message, headers=headers)
        except httpx.TimeoutException:
            raise AgentError(f"the agent at {self.url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise AgentError(
                f"no agent answers at {self.url} ({error}): start one with `uivlm serve`"
            ) from error
        if answer.status_code != 200:
            raise AgentError(f"the agent at {self.url} refused ({answer.status_code}): {answer.text[:500]}")
        return answer

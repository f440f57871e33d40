"""A server as a process, and clients: recorded episodes, disconnects, damaged bodies."""

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx

from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import Episode
from uivlm.serving.client import RemoteAgent
from uivlm.serving.protocol import write_history

JSON = {"content-type": "application/json"}


@dataclass(slots=True)
class LoadResult:
    latencies_ms: list[float] = field(default_factory=list)  # of each request
    requests_by_client: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@contextmanager
def served_checkpoint(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """The URL and the process id of `uivlm serve`."""
    command = [sys.executable, "-m", "uivlm", "serve", str(checkpoint), "--port", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    ) as process:
        assert process.stdout is not None
        try:
            url = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
            yield url, process.pid
        finally:
            process.terminate()


def memory_mb(process: int) -> float:
    (resident,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(resident) / 1000


def metric_value(text: str, name: str) -> float:
    (value,) = re.findall(rf"^uivlm_{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def run_load(url: str, episodes: Sequence[Episode], num_clients: int, seconds: float) -> LoadResult:
    """Each client plays through recorded episodes on its own."""
    load, deadline = LoadResult(), time.monotonic() + seconds

    def client(index: int) -> None:
        start = index % len(episodes)
        with RemoteAgent(url, timeout_s=60) as agent:
            for episode in cycle((*episodes[start:], *episodes[:start])):
                agent.reset()
                for t in range(len(episode.steps)):
                    if time.monotonic() > deadline:
                        return
                    start_time = time.perf_counter()
                    try:
                        agent.act(episode.history(t))
                    except AgentError as error:
                        load.errors.append(str(error))
                    load.latencies_ms.append(1000 * (time.perf_counter() - start_time))
                    load.requests_by_client[index] = load.requests_by_client.get(index, 0) + 1

    with ThreadPoolExecutor(num_clients) as pool:
        list(pool.map(client, range(num_clients)))
    return load


def disconnect(url: str, episodes: Sequence[Episode], num_requests: int) -> None:
    """Requests whose client does not wait for the answer."""

    def post_and_disconnect(index: int) -> None:
        episode = episodes[index % len(episodes)]
        body = write_history(episode.history(index % len(episode.steps)))
        with suppress(httpx.TimeoutException):
            httpx.post(f"{url}/act", content=body, headers=JSON, timeout=0.02)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(post_and_disconnect, range(num_requests)))


def send_damaged(url: str, episode: Episode, num_requests: int, num_connections: int = 8) -> dict[int, int]:
    """Count the statuses of histories with characters deleted, inserted or replaced, images included."""
    whole = write_history(episode.history(0)).decode()
    statuses: dict[int, int] = {}
    lock = threading.Lock()

    def send(seed: int) -> None:
        draw = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(num_requests // num_connections):
                status = client.post("/act", content=_damage(whole, draw), headers=JSON).status_code
                with lock:
                    statuses[status] = statuses.get(status, 0) + 1

    with ThreadPoolExecutor(num_connections) as pool:
        list(pool.map(send, range(num_connections)))
    return dict(sorted(statuses.items()))


def _damage(body: str, rng: random.Random) -> str:
    at = rng.randrange(len(body))
    edits: list[Callable[[], str]] = [
        lambda: body[:at],
        lambda: body[:at] + rng.choice('"{}[]0A') + body[at:],
        lambda: body[:at] + rng.choice(["null", "-1", "é", "\\u0000"]) + body[at + 1 :],
    ]
    return rng.choice(edits)()

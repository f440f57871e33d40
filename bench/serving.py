"""A server under load: latency, errors and memory with one client, many, disconnects and damaged bodies.

The tiny base behind `uivlm serve` answers recorded episodes of the simulated phone. Clients and server share
the machine's cores.
"""

import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from shared.episodes import episodes_of_length

from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import Episode
from uivlm.recipe import load as load_recipe
from uivlm.serving.client import RemoteAgent
from uivlm.serving.protocol import write_history
from uivlm.training.checkpoint import save_base_checkpoint

STEPS, EPISODES = 8, 16
SECONDS, NUM_CLIENTS = 60, 64
NUM_CONNECTIONS = 8  # of the damaged bodies
NUM_DISCONNECTS, NUM_FUZZED = 200, 10_000  # requests
JSON = {"content-type": "application/json"}


@dataclass(slots=True)
class LoadResult:
    latencies_ms: list[float] = field(default_factory=list)  # of each request
    requests_by_client: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def main() -> None:
    console = Console(width=110)
    episodes = episodes_of_length("test", STEPS, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        save_base_checkpoint(load_recipe("tiny"), Path(folder) / "tiny")
        with _server(Path(folder) / "tiny") as (url, process):
            _run_load(url, episodes, 1, 5)  # warm-up
            memory = [_memory_mb(process)]
            loads = []
            for clients in (1, NUM_CLIENTS):
                loads.append(_run_load(url, episodes, clients, SECONDS))
                memory.append(_memory_mb(process))
            _disconnect(url, episodes)
            memory.append(_memory_mb(process))
            statuses = _fuzz(url, episodes)
            memory.append(_memory_mb(process))
            metrics = httpx.get(f"{url}/metrics").text
    console.print(_table(loads))
    mean = _metric_value(metrics, "batch_size_sum") / _metric_value(metrics, "batch_size_count")
    console.print(f"mean batch size of a decision: {mean:.2f}")
    console.print(f"{NUM_DISCONNECTS} disconnects; {NUM_FUZZED} damaged bodies, by status: {statuses}")
    console.print(f"requests in flight at the end: {_metric_value(metrics, 'num_requests_running'):.0f}")
    phases = (
        "at start",
        "after one client",
        f"after {NUM_CLIENTS}",
        "after disconnects",
        "after damaged bodies",
    )
    console.print("MB: " + ", ".join(f"{name} {mb:.0f}" for name, mb in zip(phases, memory, strict=True)))
    if any(load.errors for load in loads):
        raise SystemExit(f"errors: {loads[0].errors[:3]} {loads[1].errors[:3]}")


@contextmanager
def _server(checkpoint: Path) -> Iterator[tuple[str, int]]:
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


def _memory_mb(process: int) -> float:
    (resident,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(resident) / 1000


def _metric_value(text: str, name: str) -> float:
    (value,) = re.findall(rf"^uivlm_{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def _run_load(url: str, episodes: list[Episode], num_clients: int, seconds: float) -> LoadResult:
    """Each client plays through recorded episodes on its own."""
    load, deadline = LoadResult(), time.monotonic() + seconds

    def client(index: int) -> None:
        with RemoteAgent(url, timeout_s=60) as agent:
            for episode in cycle(episodes[index % EPISODES :] + episodes[: index % EPISODES]):
                agent.reset()
                for t in range(STEPS):
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


def _disconnect(url: str, episodes: list[Episode]) -> None:
    def post_and_disconnect(index: int) -> None:
        body = write_history(episodes[index % EPISODES].history(index % STEPS))
        with suppress(httpx.TimeoutException):
            httpx.post(f"{url}/act", content=body, headers=JSON, timeout=0.02)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(post_and_disconnect, range(NUM_DISCONNECTS)))


def _fuzz(url: str, episodes: list[Episode]) -> dict[int, int]:
    """Count the statuses of histories with characters deleted, inserted or replaced, images included."""
    whole = write_history(episodes[0].history(0)).decode()
    statuses: dict[int, int] = {}
    lock = threading.Lock()

    def send_damaged(seed: int) -> None:
        draw = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(NUM_FUZZED // NUM_CONNECTIONS):
                status = client.post("/act", content=_damage(whole, draw), headers=JSON).status_code
                with lock:
                    statuses[status] = statuses.get(status, 0) + 1

    with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        list(pool.map(send_damaged, range(NUM_CONNECTIONS)))
    return dict(sorted(statuses.items()))


def _damage(body: str, rng: random.Random) -> str:
    at = rng.randrange(len(body))
    edits: list[Callable[[], str]] = [
        lambda: body[:at],
        lambda: body[:at] + rng.choice('"{}[]0A') + body[at:],
        lambda: body[:at] + rng.choice(["null", "-1", "é", "\\u0000"]) + body[at + 1 :],
    ]
    return rng.choice(edits)()


def _table(loads: list[LoadResult]) -> Table:
    table = Table(title=f"{SECONDS} s per row; server and clients share {os.cpu_count()} cores")
    columns = (
        "clients",
        "actions",
        "errors",
        "actions/s",
        "median ms",
        "p95 ms",
        "max ms",
        "actions per client",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for load in loads:
        percentiles = statistics.quantiles(load.latencies_ms, n=20)
        spread = f"{min(load.requests_by_client.values())} to {max(load.requests_by_client.values())}"
        latencies = statistics.median(load.latencies_ms), percentiles[-1], max(load.latencies_ms)
        rate = f"{len(load.latencies_ms) / SECONDS:.1f}"
        cells = [str(len(load.requests_by_client)), str(len(load.latencies_ms)), str(len(load.errors)), rate]
        table.add_row(*cells, *(f"{latency:.0f}" for latency in latencies), spread)
    return table


if __name__ == "__main__":
    main()

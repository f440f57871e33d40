"""A server under load: one client and many at once, clients that hang up, nonsense; errors, waits, memory.

The tiny base behind `uivlm serve`, recorded episodes of the simulated phone. Clients and server share the machine's cores.
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
from shared.episodes import of_length

from uivlm.agents.agent import AgentError
from uivlm.episode import Episode
from uivlm.recipe import load as load_recipe
from uivlm.serving.client import RemoteAgent
from uivlm.serving.wire import write_history
from uivlm.training.checkpoint import base_checkpoint

STEPS, EPISODES = 8, 16
SECONDS, MANY = 60, 64
HANGING_UP, NONSENSE = 200, 10_000  # requests
JSON = {"content-type": "application/json"}


@dataclass(slots=True)
class Load:
    took: list[float] = field(default_factory=list)  # ms a request
    most: dict[int, int] = field(default_factory=dict)  # requests of each client
    errors: list[str] = field(default_factory=list)


def main() -> None:
    console = Console(width=110)
    episodes = of_length("test", STEPS, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        base_checkpoint(load_recipe("tiny"), Path(folder) / "tiny")
        with _server(Path(folder) / "tiny") as (url, process):
            _load(url, episodes, 1, 5)  # the first requests are slower
            memory = [_memory(process)]
            loads = []
            for clients in (1, MANY):
                loads.append(_load(url, episodes, clients, SECONDS))
                memory.append(_memory(process))
            _hang_up(url, episodes)
            memory.append(_memory(process))
            statuses = _nonsense(url, episodes)
            memory.append(_memory(process))
            told = httpx.get(f"{url}/metrics").text
    console.print(_table(loads))
    mean = _told(told, "together_sum") / _told(told, "together_count")
    console.print(f"histories in a forward, mean over answers: {mean:.2f}")
    console.print(f"{HANGING_UP} that hung up; {NONSENSE} of nonsense, by status: {statuses}")
    console.print(f"still here at the end: {_told(told, 'requests_here'):.0f}")
    names = ("at first", "after one client", f"after {MANY}", "after the hanging up", "after the nonsense")
    console.print("MB: " + ", ".join(f"{n} {m:.0f}" for n, m in zip(names, memory, strict=True)))
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


def _memory(process: int) -> float:
    (resident,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(resident) / 1000


def _told(text: str, name: str) -> float:
    (value,) = re.findall(rf"^uivlm_{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def _load(url: str, episodes: list[Episode], clients: int, seconds: float) -> Load:
    """Clients that go through episodes, each on its own, with the recorded past."""
    load, until = Load(), time.monotonic() + seconds

    def client(number: int) -> None:
        with RemoteAgent(url, timeout_s=60) as agent:
            for episode in cycle(episodes[number % EPISODES :] + episodes[: number % EPISODES]):
                agent.reset()
                for t in range(STEPS):
                    if time.monotonic() > until:
                        return
                    began = time.perf_counter()
                    try:
                        agent.act(episode.history(t))
                    except AgentError as error:
                        load.errors.append(str(error))
                    load.took.append(1000 * (time.perf_counter() - began))
                    load.most[number] = load.most.get(number, 0) + 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return load


def _hang_up(url: str, episodes: list[Episode]) -> None:
    def one(number: int) -> None:
        body = write_history(episodes[number % EPISODES].history(number % STEPS))
        with suppress(httpx.TimeoutException):
            httpx.post(f"{url}/act", content=body, headers=JSON, timeout=0.02)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(HANGING_UP)))


def _nonsense(url: str, episodes: list[Episode]) -> dict[int, int]:
    """Damaged histories: letters lost, doubled or changed, also within the pictures."""
    whole = write_history(episodes[0].history(0))
    statuses: dict[int, int] = {}
    lock = threading.Lock()

    def some(seed: int) -> None:
        draw = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(NONSENSE // 8):
                status = client.post("/act", content=_damaged(whole, draw), headers=JSON).status_code
                with lock:
                    statuses[status] = statuses.get(status, 0) + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(8)))
    return dict(sorted(statuses.items()))


def _damaged(whole: str, draw: random.Random) -> str:
    at = draw.randrange(len(whole))
    ways: list[Callable[[], str]] = [
        lambda: whole[:at],
        lambda: whole[:at] + draw.choice('"{}[]0A') + whole[at:],
        lambda: whole[:at] + draw.choice(["null", "-1", "é", "\\u0000"]) + whole[at + 1 :],
    ]
    return draw.choice(ways)()


def _table(loads: list[Load]) -> Table:
    table = Table(title=f"{SECONDS} s each, {os.cpu_count()} cores for server and clients")
    for head in (
        "clients",
        "actions",
        "errors",
        "actions/s",
        "ms, median",
        "95 %",
        "most",
        "least and most of a client",
    ):
        table.add_column(head, justify="right")
    for load in loads:
        parts = statistics.quantiles(load.took, n=20)
        spread = f"{min(load.most.values())} to {max(load.most.values())}"
        numbers = statistics.median(load.took), parts[-1], max(load.took)
        rate = f"{len(load.took) / SECONDS:.1f}"
        cells = [str(len(load.most)), str(len(load.took)), str(len(load.errors)), rate]
        table.add_row(*cells, *(f"{number:.0f}" for number in numbers), spread)
    return table


if __name__ == "__main__":
    main()

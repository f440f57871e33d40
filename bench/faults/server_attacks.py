"""Attacks on `uivlm serve` of the tiny base: load, silent and slow clients, large and damaged requests."""

import base64
import io
import json
import os
import re
import resource
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from PIL import Image
from row import Attack
from shared.serving_load import (
    JSON,
    disconnect,
    memory_mb,
    metric_value,
    run_load,
    send_damaged,
    served_checkpoint,
)

from uivlm.episodes.episode import Episode
from uivlm.serving.protocol import write_history

NUM_CLIENTS, LOAD_S = 64, 30
NUM_DAMAGED, NUM_CANCELLED = 4000, 200
FILE_LIMIT, NUM_SILENT = 1024, 1020
NUM_HELD, HELD_BYTES = 24, 65 << 20  # bodies without their end
MAX_HELD_BYTES = 2 << 30  # what the server allows the requests of one address
NUM_LARGE, NUM_BLACK = 4, 99  # requests, and black screens of 2.8 megapixels in each
NUM_ENDLESS = 128
MAX_HEALTH_S = 1.0
HEAD = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    process: int
    episodes: Sequence[Episode]

    def metric(self, name: str) -> float:
        return metric_value(httpx.get(f"{self.url}/metrics", timeout=30).text, name)

    @contextmanager
    def line(self, *sent: bytes) -> Iterator[socket.socket]:
        parts = urlsplit(self.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
            for data in sent:
                connection.sendall(data)
            yield connection

    def health_s(self, seconds: float = 0) -> float:
        """The slowest answer within `seconds`, each on a new connection; infinite if one fails."""
        slowest, until = 0.0, time.monotonic() + seconds
        while True:
            start = time.monotonic()
            with self.line(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as line:
                if not line.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                    return float("inf")
            slowest = max(slowest, time.monotonic() - start)
            if time.monotonic() >= until:
                return slowest
            time.sleep(0.1)

    def is_idle(self) -> bool:
        """No request holds anything any more; the bodies of connections that ended take a moment."""
        until = time.monotonic() + 30
        while self.metric("num_requests_running") or self.metric("request_memory_bytes"):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True


def attacks(folder: Path) -> Iterator[Attack]:
    """The server has the usual limit of open files; this process has twice that."""
    from shared.episodes import episodes_of_length  # these three import torch

    from uivlm.recipe import load as load_recipe
    from uivlm.training.checkpoint import save_base_checkpoint

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    save_base_checkpoint(load_recipe("tiny"), folder / "base")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILE_LIMIT, hard))
    with served_checkpoint(folder / "base") as (url, process):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * FILE_LIMIT), hard))
        target = Target(url, process, episodes_of_length("test", 8, 16))
        run_load(url, target.episodes, 1, 3)  # warm-up
        for name, promise, measure in (
            (f"{NUM_CLIENTS} clients, {LOAD_S} s", "each is answered", load),
            (f"{NUM_SILENT} silent connections, {FILE_LIMIT} files", "/health within 1 s", silent),
            (f"{NUM_HELD} bodies of {HELD_BYTES >> 20} MiB without end", "2 GiB at most, then 429", held),
            (f"{NUM_LARGE} requests of 282 megapixels", "small ones do not wait; /health within 1 s", large),
            (f"{NUM_ENDLESS} endless bodies", "places are free in 15 s; /health within 1 s", endless),
            (f"{NUM_DAMAGED} damaged requests", "no status 5xx", damaged),
            (f"{NUM_CANCELLED} cancelled requests", "all are forgotten", cancelled),
            ("SIGTERM under 32 clients", "ends within 10 s", stopped),
        ):
            yield Attack(f"serve: {name}", promise, bound(measure, target))


def bound(measure: Callable[[Target], tuple[str, bool]], target: Target) -> Callable[[], tuple[str, bool]]:
    return lambda: measure(target)


def load(target: Target) -> tuple[str, bool]:
    before = memory_mb(target.process)
    result = run_load(target.url, target.episodes, NUM_CLIENTS, LOAD_S)
    answers, errors = len(result.latencies_ms), len(result.errors)
    half, late = statistics.median(result.latencies_ms), statistics.quantiles(result.latencies_ms, n=100)[98]
    grown = memory_mb(target.process) - before
    figures = (
        f"{answers / LOAD_S:.1f}/s, median {half / 1000:.1f} s, p99 {late / 1000:.1f} s, RSS +{grown:.0f} MB"
    )
    return f"{answers} answers, {errors} errors, {figures}", not errors and len(
        result.requests_by_client
    ) == NUM_CLIENTS


def silent(target: Target) -> tuple[str, bool]:
    with ExitStack() as lines:
        for i in range(NUM_SILENT):
            lines.enter_context(target.line(*([b"POST /act HTT"] if i % 2 else [])))
        slowest = target.health_s(5)
    return f"/health {slowest:.2f} s", slowest < MAX_HEALTH_S


def held(target: Target) -> tuple[str, bool]:
    """Each body is sent as far as the server reads it."""
    before, piece, statuses = memory_mb(target.process), b" " * (1 << 20), Counter[bytes]()
    with ExitStack() as stack:
        for _ in range(NUM_HELD):
            head = HEAD + b"Content-Length: %d\r\n\r\n" % (HELD_BYTES + 1)
            line = stack.enter_context(target.line(head))
            with suppress(OSError):  # the server has refused it
                for _ in range(HELD_BYTES >> 20):
                    line.sendall(piece)
            line.settimeout(0.1)
            with suppress(OSError):
                statuses[line.recv(12)[9:]] += 1
        slowest = target.health_s(1)
        counted, grown = target.metric("request_memory_bytes"), memory_mb(target.process) - before
    idle, refused = target.is_idle(), statuses[b"429"]
    figures = f"{counted / (1 << 30):.2f} GiB counted, {refused} refused, RSS +{grown:.0f} MB"
    bounded = 0 < counted <= MAX_HELD_BYTES and 1e6 * grown <= MAX_HELD_BYTES and refused > 0
    return f"{figures}, /health {slowest:.2f} s", bounded and idle and slowest < MAX_HEALTH_S


def large(target: Target) -> tuple[str, bool]:
    """None of their screens is cached."""
    bodies = [black_screens(i) for i in range(NUM_LARGE)]
    small = write_history(target.episodes[0].history(0))
    with ThreadPoolExecutor(NUM_LARGE + 1) as pool:
        larges = [pool.submit(post, target, body) for body in bodies]
        health = pool.submit(target.health_s, 5)
        time.sleep(1)
        status, small_s = post(target, small)
        busy = sum(not each.done() for each in larges)
        statuses = sorted(each.result()[0] for each in larges)
        slowest = health.result()
    figures = f"small one {status} after {small_s:.1f} s, before {busy} large ones ({statuses})"
    figures += f", /health {slowest:.2f} s"
    holds = status == 200 and small_s < 5 and busy > 0 and slowest < MAX_HEALTH_S
    return figures, holds and set(statuses) <= {200, 422, 429, 503} and target.is_idle()


def post(target: Target, body: bytes) -> tuple[int, float]:
    start = time.monotonic()
    status = httpx.post(f"{target.url}/act", content=body, headers=JSON, timeout=150).status_code
    return status, time.monotonic() - start


def black_screens(index: int) -> bytes:
    """A history of few bytes and many pixels. Bytes after its end make each file another one."""
    file, screens = io.BytesIO(), []
    Image.new("L", (1200, 2350)).save(file, "PNG")
    for i in range(NUM_BLACK + 1):
        data = file.getvalue() + f"{index}.{i}".encode()
        screens.append({"png": base64.b64encode(data).decode(), "elements": []})
    steps = [{"screen": each, "action": {"type": "press", "key": "back"}} for each in screens[:-1]]
    return json.dumps({"goal": "g", "steps": steps, "screen": screens[-1]}).encode()


def endless(target: Target) -> tuple[str, bool]:
    small, start = write_history(target.episodes[0].history(0)), time.monotonic()
    with ExitStack() as stack:
        for _ in range(NUM_ENDLESS):
            stack.enter_context(target.line(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"))
        slowest, refused = target.health_s(1), 0
        while post(target, small)[0] != 200 and time.monotonic() - start < 70:
            refused += 1
            time.sleep(0.5)
        free_s = time.monotonic() - start
    idle = target.is_idle()
    figures = f"answered again after {free_s:.0f} s, {refused} refused before, /health {slowest:.2f} s"
    return figures, free_s < 15 and slowest < MAX_HEALTH_S and idle


def damaged(target: Target) -> tuple[str, bool]:
    statuses = send_damaged(target.url, target.episodes[0], NUM_DAMAGED)
    text = ", ".join(f"{status}: {count}" for status, count in statuses.items())
    return text, all(status < 500 for status in statuses) and sum(statuses.values()) == NUM_DAMAGED


def cancelled(target: Target) -> tuple[str, bool]:
    disconnect(target.url, target.episodes, NUM_CANCELLED)
    idle, (status, seconds) = target.is_idle(), post(target, write_history(target.episodes[0].history(0)))
    return f"forgotten: {idle}; the next answer after {seconds:.2f} s", idle and status == 200


def stopped(target: Target) -> tuple[str, bool]:
    """The last attack: it ends the server."""
    clients = threading.Thread(target=run_load, args=(target.url, target.episodes, 32, 6))
    clients.start()
    time.sleep(2)
    start = time.monotonic()
    os.kill(target.process, signal.SIGTERM)
    while is_running(target.process) and time.monotonic() < start + 30:
        time.sleep(0.05)
    ended_s = time.monotonic() - start
    clients.join()
    return f"ended after {ended_s:.1f} s", ended_s < 10


def is_running(process: int) -> bool:
    """Until its parent asks for its status, an ended process is a zombie."""
    return re.search(r"\) Z ", Path(f"/proc/{process}/stat").read_text()) is None

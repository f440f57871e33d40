"""A server under load: latency, errors and memory with one client, many, disconnects and damaged bodies.

The tiny base behind `uivlm serve` answers recorded episodes of the simulated phone. Clients and server share
the machine's cores.
"""

import os
import statistics
import tempfile
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from shared.episodes import episodes_of_length
from shared.serving_load import (
    LoadResult,
    disconnect,
    memory_mb,
    metric_value,
    run_load,
    send_damaged,
    served_checkpoint,
)

from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import save_base_checkpoint

STEPS, EPISODES = 8, 16
SECONDS, NUM_CLIENTS = 60, 64
NUM_DISCONNECTS, NUM_FUZZED = 200, 10_000  # requests


def main() -> None:
    console = Console(width=110)
    episodes = episodes_of_length("test", STEPS, EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        save_base_checkpoint(load_recipe("tiny"), Path(folder) / "tiny")
        with served_checkpoint(Path(folder) / "tiny") as (url, process):
            run_load(url, episodes, 1, 5)  # warm-up
            memory = [memory_mb(process)]
            loads = []
            for clients in (1, NUM_CLIENTS):
                loads.append(run_load(url, episodes, clients, SECONDS))
                memory.append(memory_mb(process))
            disconnect(url, episodes, NUM_DISCONNECTS)
            memory.append(memory_mb(process))
            statuses = send_damaged(url, episodes[0], NUM_FUZZED)
            memory.append(memory_mb(process))
            metrics = httpx.get(f"{url}/metrics").text
    console.print(_table(loads))
    mean = metric_value(metrics, "batch_size_sum") / metric_value(metrics, "batch_size_count")
    console.print(f"mean batch size of a decision: {mean:.2f}")
    console.print(f"{NUM_DISCONNECTS} disconnects; {NUM_FUZZED} damaged bodies, by status: {statuses}")
    console.print(f"requests in flight at the end: {metric_value(metrics, 'num_requests_running'):.0f}")
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

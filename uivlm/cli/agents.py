"""From a checkpoint folder or a URL to an agent. Only the functions import torch: a phone's host has none."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from uivlm.cli.options import Backend, print_line

if TYPE_CHECKING:
    from uivlm.agents.agent import Agent

API_KEY = "UIVLM_API_KEY"  # environment variable: the key of servers


@contextmanager
def open_agent(checkpoint_or_url: str, fetch: bool = False) -> "Iterator[Agent]":
    """The agent behind a URL, or the agent of a checkpoint folder; `fetch` as in `fetch_bases`."""
    if checkpoint_or_url.startswith(("http://", "https://")):
        from uivlm.serving.client import RemoteAgent

        if fetch:
            raise ValueError("--fetch has no effect with a server, which has its own base: leave it out")

        with RemoteAgent(checkpoint_or_url, api_key=server_api_key()) as remote:
            remote.health()  # fail before the phone is touched
            yield remote
    else:
        fetch_bases([Path(checkpoint_or_url)], fetch)
        yield load_agent(Path(checkpoint_or_url))


def fetch_bases(checkpoints: Sequence[Path], fetch: bool) -> None:
    """With `fetch`, download the bases that the checkpoints name by hub ids; else do nothing."""
    from uivlm.inference.load import read_recipe
    from uivlm.models import base_models

    for checkpoint in checkpoints if fetch else ():
        recipe = read_recipe(checkpoint)
        for hub_id in base_models.hub_bases(recipe).values():
            print_line(f"base of {checkpoint}: {hub_id}, from the model hub")
        base_models.fetch_bases(recipe)


def server_api_key() -> str | None:
    """The key in UIVLM_API_KEY without surrounding blanks; None if it is not set."""
    if "UIVLM_TOKEN" in os.environ and API_KEY not in os.environ:  # else a server would run without its key
        raise ValueError(f"UIVLM_TOKEN is now {API_KEY}: rename the environment variable")
    key = os.environ.get(API_KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{API_KEY} must be printable ASCII: it is sent in a header")
    return key or None


def load_agent(checkpoint: Path, batch_size: int = 1, constrained: bool = True) -> "Agent":
    """The agent of a checkpoint folder, for `batch_size` episodes at once; `constrained` to valid actions."""
    from uivlm.agents.vlm import RankingVlmAgent
    from uivlm.inference.engine import MAX_CACHED_PREFIXES, TorchEngine
    from uivlm.inference.load import load_checkpoint

    return RankingVlmAgent(
        TorchEngine(
            load_checkpoint(checkpoint),
            max_cached_prefixes=max(MAX_CACHED_PREFIXES, batch_size),
            constrained=constrained,
        )
    )


def load_agents(
    checkpoints: Sequence[Path],
    max_cached_prefixes: int,
    backend: Backend = "native",
    tensor_parallel_size: int | None = None,
    gpu_memory_utilization: float | None = None,
) -> "dict[str, Agent]":
    """The agents of one checkpoint, or of several over one base, by folder name."""
    if backend == "vllm":
        from uivlm.agents.vlm import ConcurrentVlmAgent
        from uivlm.inference import vllm_engine

        engines = vllm_engine.load_vllm_engines(checkpoints, tensor_parallel_size, gpu_memory_utilization)
        return {name: ConcurrentVlmAgent(engine) for name, engine in engines.items()}
    for name, value in (
        ("tensor-parallel-size", tensor_parallel_size),
        ("gpu-memory-utilization", gpu_memory_utilization),
    ):
        if value is not None:
            raise ValueError(f"--{name}: got {value} with --backend native; only --backend vllm has it")
    if len(checkpoints) == 1:
        return {checkpoints[0].resolve().name: load_agent(checkpoints[0], max_cached_prefixes)}
    from uivlm.agents.vlm import RankingVlmAgent
    from uivlm.inference.engine import MAX_CACHED_PREFIXES, TorchEngine
    from uivlm.inference.load import load_checkpoints_shared_base

    num_prefixes = max(MAX_CACHED_PREFIXES, max_cached_prefixes)
    return {
        loaded.name: RankingVlmAgent(TorchEngine(loaded, max_cached_prefixes=num_prefixes, constrained=True))
        for loaded in load_checkpoints_shared_base(list(checkpoints))
    }


def count_gpus() -> int:
    """The number of GPUs, or 1 if there are none: processes to start."""
    import torch

    return max(1, torch.cuda.device_count())


def checkpoint_fingerprint(checkpoint: Path) -> str:
    """A digest of the training run: its recipe, its card and its log."""
    from uivlm.inference.load import read_recipe

    read_recipe(checkpoint)
    digest = hashlib.sha256()
    for name in ("recipe.json", "card.json", "log.jsonl"):
        digest.update((checkpoint / name).read_bytes())
    return digest.hexdigest()[:16]

"""Recorded data and a checkpoint in, verdicts and the card of the run out.

torch is imported inside functions, since a phone's host has none.
"""

import json
import multiprocessing
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uivlm import atomic
from uivlm.cli.agents import checkpoint_fingerprint, load_agent

if TYPE_CHECKING:
    from uivlm.agents.agent import Agent
    from uivlm.episodes.episode import Episode
    from uivlm.evaluation.metrics import Summary
    from uivlm.evaluation.offline import EvalMode, Group
    from uivlm.evaluation.published_scores import DataKind
    from uivlm.evaluation.verdict import Verdict
    from uivlm.parallel import ExecutorName


VERDICTS_FILE, REPORT_FILE, CARD_FILE, INDEX_FILE = "verdicts.jsonl", "report.html", "card.json", "index.html"


@dataclass(frozen=True, slots=True)
class RecordedData:
    """Selected episodes of prepared data."""

    episodes: "Sequence[Episode]"
    selection: "dict[str, Any]"  # fingerprint of the data, split, subset, max_episodes_per_subset
    kind: "DataKind"
    num_bins: int  # of its action texts

    @property
    def note(self) -> str:
        """What a table must say about the selection; empty for all episodes of the split."""
        limit = self.selection["max_episodes_per_subset"]
        return "" if limit is None else f"up to {limit} of each subset, chosen by a hash of their ids"


def load_recorded(
    data: Path, split: str, subset: str | None = None, max_episodes: int | None = None
) -> RecordedData:
    """The episodes of a split (and subset); at most `max_episodes` of each subset, chosen by a hash."""
    from uivlm.devices.sim.expert import SUBSET
    from uivlm.episodes.dataset import PreparedData
    from uivlm.evaluation.published_scores import data_kind

    prepared = PreparedData.open(data)
    episodes = prepared.episodes(split, subset)
    selection = {
        "data": prepared.meta["fingerprint"],
        "split": split,
        "subset": subset,
        "max_episodes_per_subset": max_episodes,
    }
    if max_episodes is not None:
        episodes = episodes.subsample(max_episodes)
    kind = data_kind(prepared.meta, simulated_subset=SUBSET)
    return RecordedData(episodes, selection, kind, int(prepared.meta["num_bins"]))


def evaluate_checkpoint(
    checkpoint: Path,
    episodes: "Sequence[Episode]",
    out: Path,
    run_info: "dict[str, Any]",
    mode: "EvalMode",
    workers: int = 1,
    executor_type: "ExecutorName" = "local",
    constrained: bool = False,
) -> "list[Verdict]":
    """Evaluate the agent of a checkpoint at every recorded step; write the verdicts to the folder `out`.

    Without `constrained`, its output may be anything, and invalid output is counted. An interrupted run is
    resumed only if it has the same `run_info` (from `make_run_info`).
    """
    from uivlm.evaluation.offline import evaluate_groups

    scorer = partial(_score_group_in_worker, checkpoint, mode, workers, constrained)
    return evaluate_groups(
        scorer, episodes, out / VERDICTS_FILE, mode, run_info, workers=workers, executor_type=executor_type
    )


def make_run_info(checkpoint: Path, recorded: RecordedData, constrained: bool = False) -> "dict[str, Any]":
    """What identifies a run: the checkpoint, the data, and whether decoding is constrained."""
    return {
        "checkpoint": checkpoint_fingerprint(checkpoint),
        **recorded.selection,
        "constrained": constrained,
    }


def write_card(folder: Path, run_info: "dict[str, Any]", summary: "Summary") -> "dict[str, Any]":
    """Write and return what the scores were made of: checkpoint, data, mode, versions; and the scores."""
    card = {
        **run_info,
        "uivlm": version("uivlm"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "scores": {
            name: asdict(score) for name, score in {**summary.subsets, "overall": summary.overall}.items()
        },
    }
    atomic.write_file(folder / CARD_FILE, json.dumps(card, indent=1))
    return card


def _score_group_in_worker(
    checkpoint: Path, mode: "EvalMode", workers: int, constrained: bool, group: "Group"
) -> "list[Verdict]":
    from uivlm.evaluation.offline import score_group

    return score_group(_worker_agent(checkpoint, mode.batch_size, workers, constrained), mode, group)


@lru_cache(maxsize=1)
def _worker_agent(checkpoint: Path, batch_size: int, workers: int, constrained: bool) -> "Agent":
    """The agent of this process. Several processes divide the GPUs, or the cores of the CPU, among them."""
    import torch

    if workers > 1 and torch.cuda.is_available():
        worker_index = (multiprocessing.current_process()._identity or (1,))[0] - 1
        torch.cuda.set_device(worker_index % torch.cuda.device_count())
    elif workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    return load_agent(checkpoint, batch_size, constrained)

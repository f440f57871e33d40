"""Processes that read and encode beside a training process.

They come from a clean process (`forkserver`), which imports once for all of them, never from the training process itself:
its threads hold locks, and a child forked among them may wait for one for ever.
"""

import multiprocessing
import os
from typing import Any

START = "forkserver"


def readers(asked: int | None) -> int:
    """The recipe's `train.readers`; where it leaves that open: half of the cores, eight at most."""
    return max(1, min(8, (os.cpu_count() or 1) // 2)) if asked is None else asked


def how(number: int, ahead: int = 2) -> dict[str, Any]:
    """What a DataLoader is told: so many readers, which each read so many batches ahead; with none, the process reads for
    itself."""
    if not number:
        return {"num_workers": 0}
    multiprocessing.get_context(START).set_forkserver_preload(["uivlm.training.collator"])
    return {
        "num_workers": number,
        "multiprocessing_context": START,
        "persistent_workers": True,  # started once, not once an epoch
        "prefetch_factor": ahead,
    }

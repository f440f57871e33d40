"""The processes of a run: their devices, their group, and that all end when one fails.

In: the environment that `torchrun` sets. Without it, a run is one process on the first GPU or the CPU.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from uivlm.models.device import local_device
from uivlm.terminal import printable

BACKENDS = {"cuda": "cuda:nccl,cpu:gloo", "cpu": "gloo"}  # gloo: for what is offloaded to the CPU
TIMEOUT = timedelta(hours=1)  # of a collective operation; process 0 may save while others wait
FAILED = "failed"  # key of the store
POLL_SECONDS, GRACE_SECONDS = 0.2, 1.0


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the run's other processes, if any; gives this process's device.

    The device is made current first: whatever named no device would go to the first GPU. If the block raises
    in one process, the others end at once, even where they wait for it in a collective operation.
    """
    device = local_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    store, rank, world_size = next(rendezvous("env://"))
    dist.init_process_group(
        BACKENDS[device.type], store=store, rank=rank, world_size=world_size, timeout=TIMEOUT
    )
    finished = threading.Event()
    watched = store.clone()  # the original may be blocked by an operation of this thread
    threading.Thread(target=_end_with_others, args=(watched, finished), daemon=True).start()
    try:
        yield device
        dist.barrier()  # process 0 may hold the store
    except InterruptedError:  # all processes stop after the same step
        raise
    except BaseException as error:
        store.set(FAILED, f"process {rank} failed ({type(error).__name__}: {error})")
        raise
    finally:
        finished.set()


def wait_for_all() -> None:
    if dist.is_initialized():
        dist.barrier()


def _end_with_others(store: Store, finished: threading.Event) -> None:
    """End this process when another one reports a failure, or when the store is gone with process 0."""
    while not finished.wait(POLL_SECONDS):
        try:
            error = store.get(FAILED).decode() if store.check([FAILED]) else ""
        except RuntimeError as lost:
            error = f"process 0 ended ({lost})"
        if error and not finished.wait(GRACE_SECONDS):  # the failing process prints its own error
            print(f"{printable(error)}: this process ends, too", file=sys.stderr, flush=True)
            os._exit(1)

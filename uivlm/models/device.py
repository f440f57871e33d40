"""The device of this process."""

import os

import torch


def local_device() -> torch.device:
    """The GPU of this process's local rank, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")

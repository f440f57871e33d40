"""DeepSpeed's configuration for a ZeRO stage; what the recipe says elsewhere is left to the Trainer ("auto")."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch


def deepspeed(stage: int, offload: bool = False) -> dict[str, Any] | None:
    """None for stage 0: then DeepSpeed is not used. `offload`: the optimizer's numbers lie in the machine's memory, with stage
    3 the weights too, and torch's own AdamW works on them there."""
    if stage == 0:
        return None
    if find_spec("deepspeed") is None:
        raise ValueError(
            f"train.zero is {stage}, but DeepSpeed is not installed here: install uivlm with its `gpu` extra, or set "
            "train.zero to 0"
        )
    if not torch.cuda.is_available():
        _without_a_compiler()
    zero: dict[str, Any] = {"stage": stage, "contiguous_gradients": True, "overlap_comm": False}
    if offload:
        zero |= {
            f"offload_{what}": {"device": "cpu"} for what in ("optimizer", "param")[: 2 if stage == 3 else 1]
        }
    return {
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,  # torch's AdamW: nothing has to be compiled
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }


def _without_a_compiler() -> None:
    """On CPUs DeepSpeed would first compile its shared-memory messages, for minutes; torch's own do as well."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False

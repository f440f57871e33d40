"""DeepSpeed's configuration for a ZeRO stage.

The Trainer fills in what the recipe sets elsewhere ("auto").
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn


def deepspeed_config(stage: int, cpu_offload: bool = False) -> dict[str, Any] | None:
    """None for stage 0, which does not use DeepSpeed.

    `cpu_offload` moves the optimizer's state to the machine's memory. torch's own AdamW then runs on the CPU.
    """
    if stage == 0:
        return None
    if find_spec("deepspeed") is None:
        raise ValueError(
            f"distributed.zero_stage: got {stage}, but DeepSpeed is not installed. "
            "Install uivlm with the extra `gpu`, or set distributed.zero_stage=0"
        )
    if not torch.cuda.is_available():
        _skip_shm_compilation()
    zero: dict[str, Any] = {"stage": stage, "contiguous_gradients": True, "overlap_comm": False}
    if cpu_offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,  # torch's AdamW: nothing needs compiling
        "bf16": {"enabled": "auto"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }


def load_master_weights(model: nn.Module) -> None:
    """Replace the trained parameters by the float32 masters of ZeRO's optimizer.

    With `train.precision` bfloat16 the parameters are rounded copies. Collective: every process must call it,
    after the last step.
    """
    full_fp32 = import_module("deepspeed.utils").safe_get_full_fp32_param
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = full_fp32(parameter)


def _skip_shm_compilation() -> None:
    """On CPUs DeepSpeed compiles shared-memory collectives for minutes; torch's own work as well."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False

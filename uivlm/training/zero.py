"""DeepSpeed's configuration for a ZeRO stage; what the recipe says elsewhere is left to the Trainer ("auto")."""

from typing import Any


def deepspeed(stage: int) -> dict[str, Any] | None:
    """None for stage 0: then DeepSpeed is not used."""
    if stage == 0:
        return None
    return {
        "zero_optimization": {"stage": stage, "contiguous_gradients": True, "overlap_comm": False},
        "zero_allow_untested_optimizer": True,  # torch's AdamW: nothing has to be compiled
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }

"""Qwen2.5-VL 7B with LoRA on the language model alone.

Screens keep their aspect ratio. Older ones are smaller, so that a long episode fits a GPU. There is no
published recipe for this task: the values are ours, or those of Qwen-VL's scripts where they apply.

    --set model.quantize=nf4                                Q-LoRA
    --set model.lora=null --set distributed.zero_stage=2    full fine-tuning of the language model
"""

from uivlm.recipe import (
    DataArgs,
    DistributedArgs,
    LoraArgs,
    OptimArgs,
    PromptArgs,
    QwenHFArgs,
    Recipe,
    TrainArgs,
)


def recipe() -> Recipe:
    return Recipe(
        name="qwen2_5vl",
        model=QwenHFArgs(
            base_model="Qwen/Qwen2.5-VL-7B-Instruct",  # ours: a visual token is 28 x 28 pixels
            lora=LoraArgs(r=64, alpha=16, dropout=0.05),  # ours: as for Qwen-VL
            max_visual_tokens=512,  # ours: a phone of 1080 x 2400 pixels takes 495 tokens
            max_visual_tokens_by_age=(256, 128),  # ours: a half and a quarter for past screens
            min_visual_tokens=64,  # ours: half a thumbnail; no screen is smaller
        ),
        prompt=PromptArgs(
            num_bins=100,  # UI-VLM: coordinates from 0 to 99
            max_screens=8,  # ours; UI-VLM: all
            max_past_actions=8,  # ours; UI-VLM: all
        ),
        data=DataArgs(path="runs/data"),  # ours: where `make data` puts it
        train=TrainArgs(
            epochs=3,  # ours
            max_packed_tokens=8192,  # ours: about five sentences of eight screens, no padding
            gradient_accumulation_steps=3,  # ours: about 16 sentences a step and GPU
            precision="bfloat16",  # as the weights are published
        ),
        optim=OptimArgs(
            lr=1e-4,  # ours, for adapters; full fine-tuning needs a tenth
            warmup_fraction=0.03,  # ours
            weight_decay=0.0,  # ours
            adam_beta2=0.95,  # ours: as for Qwen-VL
            max_grad_norm=1.0,  # ours: the default of transformers
        ),
        distributed=DistributedArgs(
            zero_stage=0,  # ours: adapters need no sharding
        ),
    )

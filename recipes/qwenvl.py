"""The paper's main model: Qwen-VL 9.6B, LoRA on the language model alone, past screens as images and text.

UI-VLM (arXiv 2404.08755) names the method; its rank, learning rate and the like are not legible in the
public text. "Scripts" are Qwen-VL's own for fine-tuning, which the paper follows; "ours" is chosen here.

    --set model.quantize=nf4    Q-LoRA (scripts: GPTQ weights, 17.0 to 19.3 GB; LoRA 23.3 to 27.3)
    --set model.lora=null --set distributed.zero_stage=2    full fine-tuning: language model and resampler
"""

from uivlm.recipe import (
    DataArgs,
    DistributedArgs,
    LoraArgs,
    OptimArgs,
    PromptArgs,
    QwenVLArgs,
    Recipe,
    TrainArgs,
)


def recipe() -> Recipe:
    return Recipe(
        name="qwenvl",
        model=QwenVLArgs(
            base_model="Qwen/Qwen-VL",  # UI-VLM; the base, not the chat model: an action is not a chat turn
            lora=LoraArgs(  # UI-VLM: the language model alone; vision tower and resampler frozen
                r=64,  # scripts; lost in the paper
                alpha=16,  # scripts; lost in the paper
                dropout=0.05,  # scripts; lost in the paper
            ),
            dynamic_ntk=False,  # ours: above 2,048 tokens the original acts with other positions
            max_length=None,  # scripts: 2,048 tokens, the base's own training length
        ),
        prompt=PromptArgs(
            num_bins=100,  # UI-VLM: coordinates from 0 to 99
            max_screens=6,  # ours; UI-VLM: all. A screen is 258 tokens: six and their text always fit 2,048
            max_past_actions=8,  # ours; UI-VLM: all
        ),
        data=DataArgs(path="runs/data"),  # ours: where `make data` puts it
        train=TrainArgs(
            epochs=5,  # scripts; lost in the paper
            max_packed_tokens=8192,  # ours: four sentences of the maximum length, no padding
            gradient_accumulation_steps=3,  # ours: about 128 sentences a step on 8 GPUs, as in the scripts
            precision="bfloat16",  # scripts
        ),
        optim=OptimArgs(
            lr=1e-5,  # scripts; lost in the paper
            warmup_fraction=0.01,  # scripts
            weight_decay=0.1,  # scripts
            adam_beta2=0.95,  # scripts
            max_grad_norm=1.0,  # scripts: the default of transformers
        ),
        distributed=DistributedArgs(
            zero_stage=0,  # ours: adapters need no sharding; scripts: 2
        ),
    )

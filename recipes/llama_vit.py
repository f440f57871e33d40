"""Llama-2 7B with SigLIP-L in a grid: the paper's second model, made to know where things are.

UI-VLM (arXiv 2404.08755) names the parts and what of them is trained; its rank, learning rate and the like are not
legible in the text that is public. One vector a screen, as the paper has it (`llama_vit_paper`), can hardly say where;
here each of 8 x 8 cells is a vector.

    --set model.quantise=nf4    Q-LoRA
"""

from uivlm.recipe import Data, GrammarPart, LlamaParts, Lora, Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        name="llama_vit",
        model=LlamaParts(
            base="meta-llama/Llama-2-7b-hf",  # UI-VLM: LLama-2, 7B
            vision="google/siglip-large-patch16-384",  # ours: 316 M parameters; UI-VLM: a ViT of 320 M, not named
            lora=Lora(r=64, alpha=16, dropout=0.05),  # ours: as for Qwen-VL; lost in the paper
            visual_tokens="grid",  # ours: 64 a screen
            grid=8,  # ours
        ),
        grammar=GrammarPart(
            bins=100,  # UI-VLM: coordinates from 0 to 99
            screens=8,  # ours; UI-VLM: all. 512 visual tokens a sentence, of Llama-2's 4,096
            before=8,  # ours; UI-VLM: all
        ),
        data=Data(folder="runs/data"),  # ours: where `make data` puts it
        train=Train(
            lr=1e-4,  # ours; lost in the paper
            epochs=5,  # ours: as for Qwen-VL; lost in the paper
            batch=1,  # ours
            accumulate=16,  # ours
            warmup=0.03,  # ours
            weight_decay=0.0,  # ours
            beta2=0.95,  # ours: as for Qwen-VL
            clip=1.0,  # ours: the default of transformers
            precision="bfloat16",  # as Llama-2 was trained
            zero=0,  # ours: adapters need no sharing out
        ),
    )

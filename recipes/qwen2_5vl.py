"""Qwen2.5-VL 7B with LoRA on the language model alone.

Screens keep their aspect ratio; older ones are shown smaller, so that a long episode fits a GPU. No published recipe
for these sentences: the values are ours, those of Qwen-VL's scripts where they carry over.

    --set model.quantise=nf4                    Q-LoRA
    --set model.lora=null --set train.zero=2    full fine-tuning of the language model
"""

from uivlm.recipe import Data, GrammarPart, Lora, QwenHF, Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        name="qwen2_5vl",
        model=QwenHF(
            base="Qwen/Qwen2.5-VL-7B-Instruct",  # ours: a visual token is 28 x 28 pixels
            lora=Lora(r=64, alpha=16, dropout=0.05),  # ours: as for Qwen-VL
            most=512,  # ours: a phone of 1080 x 2400 pixels is shown in 495 tokens
            older=(256, 128),  # ours: past screens say what was done, at a half and a quarter
            least=64,  # ours: half a thumbnail; no screen is smaller
        ),
        grammar=GrammarPart(
            bins=100,  # UI-VLM: coordinates from 0 to 99
            screens=8,  # ours; UI-VLM: all
            before=8,  # ours; UI-VLM: all
        ),
        data=Data(folder="runs/data"),  # ours: where `make data` puts it
        train=Train(
            lr=1e-4,  # ours: adapters alone are trained; full fine-tuning wants a tenth
            epochs=3,  # ours
            batch=1,  # ours: eight screens a sentence
            accumulate=16,  # ours
            warmup=0.03,  # ours
            weight_decay=0.0,  # ours
            beta2=0.95,  # ours: as for Qwen-VL
            clip=1.0,  # ours: the default of transformers
            precision="bfloat16",  # as the weights are published
            zero=0,  # ours: adapters need no sharing out
        ),
    )

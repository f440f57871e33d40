"""The paper's main model: Qwen-VL 9.6B, LoRA on the language model alone, all of the past in pictures and words.

UI-VLM (arXiv 2404.08755) names the method; its rank, learning rate and the like are not legible in the text that is
public. "Scripts" are Qwen-VL's own for fine-tuning, which the paper follows; "ours" is chosen here.

    --set model.quantise=nf4                    Q-LoRA (scripts: GPTQ weights, 17.0 to 19.3 GB; LoRA 23.3 to 27.3)
    --set model.lora=null --set train.zero=2    full fine-tuning: the language model and the resampler
"""

from uivlm.recipe import Data, GrammarPart, Lora, QwenVL, Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        name="qwenvl",
        model=QwenVL(
            base="Qwen/Qwen-VL",  # UI-VLM; the base, not the chat model: an action is no turn of a talk
            lora=Lora(  # UI-VLM: the language model alone; vision tower and resampler frozen
                r=64,  # scripts; lost in the paper
                alpha=16,  # scripts; lost in the paper
                dropout=0.05,  # scripts; lost in the paper
            ),
            long_context="none",  # ours: above 2,048 tokens the original trains and acts with unlike positions
            context=None,  # scripts: 2,048 tokens, the base's own training length
        ),
        grammar=GrammarPart(
            bins=100,  # UI-VLM: coordinates from 0 to 99
            screens=6,  # ours; UI-VLM: all. A screen is 258 tokens: with their words, six fit 2,048 in any case
            before=8,  # ours; UI-VLM: all
        ),
        data=Data(folder="runs/data"),  # ours: where `make data` puts it
        train=Train(
            lr=1e-5,  # scripts; lost in the paper
            epochs=5,  # scripts; lost in the paper
            batch=2,  # scripts: on each of 8 GPUs; lost in the paper
            accumulate=8,  # scripts: 8 GPUs x 2 x 8 = 128 sentences a step; on one GPU 64 gives the same
            warmup=0.01,  # scripts
            weight_decay=0.1,  # scripts
            beta2=0.95,  # scripts
            clip=1.0,  # scripts: the default of transformers
            precision="bfloat16",  # scripts
            zero=0,  # ours: adapters need no sharing out; scripts: 2
        ),
    )

"""Llama-2 7B with a ViT that gives one vector per screen: exactly the paper's second model.

Equation (1) of UI-VLM (arXiv 2404.08755) projects one vector of an image. The rest is as in `llama_vit`.

    --set model.quantize=nf4    Q-LoRA
"""

from dataclasses import replace
from pathlib import Path

from uivlm.recipe import LlamaPartsArgs, Recipe, load


def recipe() -> Recipe:
    grid = load(Path(__file__).with_name("llama_vit.py"))
    assert isinstance(grid.model, LlamaPartsArgs)
    model = replace(
        grid.model,
        # UI-VLM: a ViT of 320 M parameters, not named; this has 304 M
        vision_encoder="google/vit-large-patch16-384",
        visual_tokens="pooled",  # UI-VLM, equation (1): one vector of an image, times W
    )
    prompt = replace(grid.prompt, max_screens=32)  # UI-VLM: all; 32 visual tokens fit easily
    return replace(grid, name="llama_vit_paper", model=model, prompt=prompt)

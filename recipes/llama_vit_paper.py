"""Llama-2 7B with a ViT whose one vector stands for a screen: the paper's second model to the letter.

Equation (1) of UI-VLM (arXiv 2404.08755) projects one vector of an image. The rest is as in `llama_vit`.

    --set model.quantise=nf4    Q-LoRA
"""

from dataclasses import replace
from pathlib import Path

from uivlm.recipe import LlamaParts, Recipe, load


def recipe() -> Recipe:
    grid = load(Path(__file__).with_name("llama_vit.py"))
    assert isinstance(grid.model, LlamaParts)
    model = replace(
        grid.model,
        vision="google/vit-large-patch16-384",  # UI-VLM: a ViT of 320 M parameters, not named; this has 304 M
        visual_tokens="pooled",  # UI-VLM, equation (1): one vector of an image, times W
    )
    grammar = replace(grid.grammar, screens=32)  # UI-VLM: all; one visual token each, so 32 fit easily
    return replace(grid, name="llama_vit_paper", model=model, grammar=grammar)

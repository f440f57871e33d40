"""Checkpoints of several adapters over one base."""

from pathlib import Path

import torch

from uivlm.models.adapters import attach_adapters
from uivlm.models.build import build
from uivlm.recipe import Recipe
from uivlm.training import checkpoint


def saved(root: Path, name: str, wanted: Recipe, seed: int) -> Path:
    built = build(wanted)
    model = attach_adapters(built, 0)
    torch.manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.2 * torch.randn_like(value)
    checkpoint.save(root / name, model.eval(), built, wanted, None, 0.0, "")
    return root / name

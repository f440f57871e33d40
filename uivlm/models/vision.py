"""Vision encoders that a bridge looks through: ViT, SigLIP, CLIP, DINOv2, all by transformers' own classes.

In: pixels, scaled as the encoder's own files say. Out: one vector of the screen, and one of each patch.
Shapes: N screens, P patches, D width of the encoder.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Dinov2Config,
    Dinov2Model,
    PretrainedConfig,
    PreTrainedModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTModel,
)

from uivlm.models import hub
from uivlm.models.published import Three, colours, load_module, read_table

CONFIG, PIXELS = "config.json", "preprocessor_config.json"
FETCHED, WEIGHTS = [CONFIG, PIXELS], "*.safetensors*"
KINDS: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel]]] = {
    "vit": (ViTConfig, ViTModel),
    "siglip_vision_model": (SiglipVisionConfig, SiglipVisionModel),
    "clip_vision_model": (CLIPVisionConfig, CLIPVisionModel),
    "dinov2": (Dinov2Config, Dinov2Model),
}
WHOLE = {"siglip": "siglip_vision_model", "clip": "clip_vision_model"}  # with a text tower: its vision part
WHAT = "vision encoder"


def sees(name: str) -> bool:
    """Is it a weight of the part that looks at screens? By its name, in every model of the project."""
    return any(part in ("vision", "visual") for part in name.split("."))


def config_of(told: dict[str, Any]) -> PretrainedConfig:
    """The encoder's configuration of a table with its `model_type`; a table without one is a ViT's."""
    kind = told.get("model_type", "vit")
    if kind in WHOLE:
        kind, told = WHOLE[kind], told.get("vision_config", {})
    if kind not in KINDS:
        raise ValueError(
            f"the vision encoder's model_type is {kind!r}, known are {', '.join((*KINDS, *WHOLE))}"
        )
    return KINDS[kind][0](**{name: value for name, value in told.items() if name != "model_type"})


def made(config: PretrainedConfig) -> nn.Module:
    """An encoder with random weights."""
    kind = KINDS[config.model_type][1]
    return kind(config, **_options(kind))


def described(name: str | Path) -> tuple[PretrainedConfig, Three, Three]:
    """A published encoder's configuration, and mean and standard deviation of its colours (R, G, B in 0..1)."""
    root = hub.fetch(name, WHAT, FETCHED)
    config, pixels = (read_table(root / name, WHAT) for name in FETCHED)
    return config_of(config), *colours(root / PIXELS, pixels)


def load(name: str | Path, config: PretrainedConfig, dtype: torch.dtype) -> nn.Module:
    """A published encoder with its weights; `config` as `described` gives it."""
    root = hub.fetch(name, WHAT, [*FETCHED, WEIGHTS])
    kind = KINDS[config.model_type][1]
    # a text tower or a classifier may be there, too
    return load_module(kind, root, dtype, has_more=True, config=config, **_options(kind))


def states(module: nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 3, h, w] -> the screen's own vector [N, D] (CLS, or what the encoder pools), and its patches [N, P, D]."""
    seen = cast(Any, module)(pixel_values=pixels)
    all_NPD = seen.last_hidden_state
    pooled = getattr(seen, "pooler_output", None)
    if isinstance(module, SiglipVisionModel):  # no CLS state
        return (all_NPD.mean(1) if pooled is None else pooled), all_NPD
    return (all_NPD[:, 0] if pooled is None else pooled), all_NPD[:, 1:]


def _options(kind: type[PreTrainedModel]) -> dict[str, Any]:
    return {"add_pooling_layer": False} if kind is ViTModel else {}

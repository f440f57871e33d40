"""Vision encoders of a bridge: ViT, SigLIP, CLIP, DINOv2, all by transformers' own classes.

In: pixels, normalized as in the encoder's files. Out: one vector of the whole screen, and one of each patch.
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

from uivlm.models import pretrained
from uivlm.models.pretrained import (
    BICUBIC,
    BILINEAR,
    RGBFloats,
    image_mean_std,
    image_resample,
    load_pretrained,
    read_json_object,
    read_model_config,
)
from uivlm.models.stored_weights import StoredWeight, open_pretrained

CONFIG, PREPROCESSOR_CONFIG = "config.json", "preprocessor_config.json"
DOWNLOAD_FILES, WEIGHTS = [CONFIG, PREPROCESSOR_CONFIG], "*.safetensors*"
ENCODER_CLASSES: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel]]] = {
    "vit": (ViTConfig, ViTModel),
    "siglip_vision_model": (SiglipVisionConfig, SiglipVisionModel),
    "clip_vision_model": (CLIPVisionConfig, CLIPVisionModel),
    "dinov2": (Dinov2Config, Dinov2Model),
}
VISION_PART_OF = {
    "siglip": "siglip_vision_model",
    "clip": "clip_vision_model",
}  # with a text tower: its vision part
RESAMPLE = {BILINEAR: "bilinear", BICUBIC: "bicubic"}  # modes of torch's `interpolate`
WHAT = "vision encoder"


def config_from_json(payload: dict[str, Any]) -> PretrainedConfig:
    """The encoder's configuration from an object with a `model_type`; without one it is a ViT's."""
    kind = payload.get("model_type", "vit")
    if kind in VISION_PART_OF:
        kind, payload = VISION_PART_OF[kind], payload.get("vision_config", {})
    if kind not in ENCODER_CLASSES:
        raise ValueError(
            f"the vision encoder's model_type: got {kind!r}; expected one of "
            f"{', '.join((*ENCODER_CLASSES, *VISION_PART_OF))}"
        )
    return ENCODER_CLASSES[kind][0](
        **{name: value for name, value in payload.items() if name != "model_type"}
    )


def from_config(config: PretrainedConfig) -> nn.Module:
    """An encoder with random weights."""
    kind = ENCODER_CLASSES[config.model_type][1]
    return kind(config, **_encoder_options(kind))


def read_published_config(name: str | Path) -> tuple[PretrainedConfig, RGBFloats, RGBFloats, str]:
    """A published encoder's configuration, mean and std of its colors (R, G, B in 0..1), and its filter."""
    root = pretrained.find_or_download(name, WHAT, DOWNLOAD_FILES)
    config, pixels = (
        read_model_config(root / CONFIG, WHAT),
        read_json_object(root / PREPROCESSOR_CONFIG, WHAT),
    )
    file = root / PREPROCESSOR_CONFIG
    resample = image_resample(file, pixels, RESAMPLE)
    return config_from_json(config), *image_mean_std(file, pixels), resample


def open_weights(name: str | Path, module: nn.Module) -> dict[str, StoredWeight]:
    """The weights of a published encoder, which `from_config` made as `module`, in their files."""
    assert isinstance(module, PreTrainedModel)
    root = pretrained.find_or_download(name, WHAT, [*DOWNLOAD_FILES, WEIGHTS])
    return open_pretrained(module, root, allow_unexpected=True)


def load(name: str | Path, config: PretrainedConfig, dtype: torch.dtype) -> nn.Module:
    """A published encoder with its weights; `config` is that of `read_published_config`."""
    root = pretrained.find_or_download(name, WHAT, [*DOWNLOAD_FILES, WEIGHTS])
    kind = ENCODER_CLASSES[config.model_type][1]
    # the file may hold a text tower or a classifier, too
    return load_pretrained(kind, root, dtype, allow_unexpected=True, config=config, **_encoder_options(kind))


def encode_pixels(module: nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 3, h, w] -> the vector of the screen [N, D] (CLS, or the encoder's pooling) and of its patches [N,
    P, D].
    """
    outputs = cast(Any, module)(pixel_values=pixels)
    all_NPD = outputs.last_hidden_state
    pooled = getattr(outputs, "pooler_output", None)
    if isinstance(module, SiglipVisionModel):  # no CLS state
        return (all_NPD.mean(1) if pooled is None else pooled), all_NPD
    return (all_NPD[:, 0] if pooled is None else pooled), all_NPD[:, 1:]


def _encoder_options(cls: type[PreTrainedModel]) -> dict[str, Any]:
    return {"add_pooling_layer": False} if cls is ViTModel else {}

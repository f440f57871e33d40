"""A bridge as a model of the project: from one folder, or from two published models."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from uivlm.models.bridge import files
from uivlm.models.bridge.from_pretrained import (
    from_config_parts,
    from_pretrained_parts,
    new_projection_alone,
    open_parts,
)
from uivlm.models.bridge.model import (
    LORA_TARGETS,
    PROJECTION_PATTERN,
    TINY_BASE,
    TRAINABLE_PATTERN,
    LlamaVit,
)
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import has_fixed_rope, lora_pattern
from uivlm.models.pretrained import PROJECTOR_WEIGHTS, check_shapes, read_weights, shapes_of
from uivlm.models.quantize import loading_options
from uivlm.models.stored_weights import StoredWeight, StoredWeights, in_memory
from uivlm.recipe import LlamaPartsArgs, LlamaVitArgs


@dataclass(frozen=True, slots=True)
class LlamaVitLoader:
    args: LlamaVitArgs
    projector_name: ClassVar[str] = "projection"

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        folder = TINY_BASE if self.args.base_model == "tiny" else self.args.base_model
        if init_device:
            bridge, tokenizer = files.from_config(folder, dtype, init_device)
        else:
            bridge, tokenizer = files.load_base(folder, dtype)
            nn.Module.to(bridge, device)
            _load_projection(bridge, self.args.projector)
        loaded = _to_loaded(bridge, tokenizer, self.args)
        return replace(loaded, open_weights=partial(self._open_weights, folder, bridge))

    def _open_weights(self, folder: str | Path, model: LlamaVit) -> StoredWeights:
        return files.open_weights(folder, model) | _stored(_read_projection(model, self.args.projector))

    def saved_args(self, folder: Path) -> LlamaVitArgs:
        return LlamaVitArgs(str(folder), self.args.lora)


@dataclass(frozen=True, slots=True)
class LlamaPartsLoader:
    args: LlamaPartsArgs
    projector_name: ClassVar[str] = "projection"

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        args = self.args
        parts = args.base_model, args.vision_encoder, args.visual_tokens, args.grid_size, dtype
        model, tokenizer = (
            from_config_parts(*parts, init_device)
            if init_device
            else from_pretrained_parts(*parts, seed, **loading_options(args.quantize, dtype, device))
        )
        if init_device is None:
            _load_projection(model, args.projector)
        open_weights = partial(self._open_weights, model, dtype, seed)
        loaded = _to_loaded(model, tokenizer, args)
        return replace(loaded, open_weights=open_weights, quantized=args.quantize is not None)

    def _open_weights(self, model: LlamaVit, dtype: torch.dtype, seed: int) -> StoredWeights:
        args = self.args
        weights = open_parts(model, args.base_model, args.vision_encoder)
        projection = _read_projection(model, args.projector)
        if not projection:
            projection = new_projection_alone(model, weights, args.vision_encoder, dtype, seed)
        return weights | _stored(projection)

    def saved_args(self, folder: Path) -> LlamaVitArgs:
        """Once saved, the two parts are one folder."""
        return LlamaVitArgs(str(folder), self.args.lora)


def _load_projection(model: LlamaVit, checkpoint: str | None) -> None:
    """The projection of an earlier stage, if any, in float32 as that stage trained it."""
    if weights := _read_projection(model, checkpoint):
        model.projection.float().load_state_dict(weights)


def _read_projection(model: LlamaVit, checkpoint: str | None) -> dict[str, Tensor]:
    """The weights of an earlier stage's projection; none without a checkpoint."""
    if checkpoint is None:
        return {}
    file = Path(checkpoint) / PROJECTOR_WEIGHTS
    if not file.is_file():
        raise ValueError(
            f"model.projector: got {checkpoint}, which has no {PROJECTOR_WEIGHTS}; expected the checkpoint "
            "of a bridge"
        )
    weights = read_weights(file)
    check_shapes(file, shapes_of(weights), shapes_of(model.projection.state_dict()))
    return weights


def _stored(projection: dict[str, Tensor]) -> dict[str, StoredWeight]:
    return {f"projection.{name}": in_memory(value) for name, value in projection.items()}


def _to_loaded(bridge: LlamaVit, tokenizer: Tokenizer, args: LlamaVitArgs | LlamaPartsArgs) -> LoadedModel:
    def save_pretrained(model: nn.Module, folder: Path) -> None:
        assert isinstance(model, LlamaVit)
        files.save_base(folder, model, tokenizer, next(model.language.parameters()).dtype)

    return LoadedModel(
        bridge,
        BridgeProcessor(tokenizer, bridge.config),
        args.lora,
        LORA_TARGETS,
        save_pretrained,
        projector_name="projection",
        trainable_pattern=PROJECTION_PATTERN if args.freeze_language_model else TRAINABLE_PATTERN,
        freeze_language_model=args.freeze_language_model,
        # not the pooling: where patches are read, it has no gradient
        vision_lora_targets=lora_pattern(bridge, "vision", r"\.layers?\.\d+\."),
        supports_static_decoding=has_fixed_rope(bridge.language),
    )

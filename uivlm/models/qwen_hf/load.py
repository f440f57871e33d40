"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL as models of the project."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import has_fixed_rope, lora_pattern
from uivlm.models.quantize import loading_options
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import TRAINABLE_PATTERN, QwenHF, lora_targets
from uivlm.models.qwen_hf.processor import VisualTokenBudget
from uivlm.recipe import QwenHFArgs


@dataclass(frozen=True, slots=True)
class QwenHFLoader:
    args: QwenHFArgs
    projector_name: ClassVar[None] = None

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        args = self.args
        processor = files.load_processor(args.base_model, visual_token_budget(args))
        model = (
            files.from_config(args.base_model, dtype, init_device)
            if init_device
            else files.load(args.base_model, dtype, **loading_options(args.quantize, dtype, device))
        )
        return LoadedModel(
            model,
            processor,
            args.lora,
            lora_targets(model),
            self._save_pretrained,
            open_weights=partial(files.open_weights, args.base_model, model),
            trainable_pattern=TRAINABLE_PATTERN,
            vision_lora_targets=lora_pattern(model, "model.visual"),
            quantized=args.quantize is not None,
            # a sliding window would need a second mask
            supports_static_decoding=has_fixed_rope(model)
            and not getattr(model.config.text_config, "use_sliding_window", False),
        )

    def saved_args(self, folder: Path) -> QwenHFArgs:
        return replace(self.args, base_model=str(folder))

    def _save_pretrained(self, model: nn.Module, folder: Path) -> None:
        assert isinstance(model, QwenHF)
        files.save(folder, model, files.find_or_download(self.args.base_model))


def visual_token_budget(args: QwenHFArgs) -> VisualTokenBudget:
    return VisualTokenBudget(args.max_visual_tokens, args.max_visual_tokens_by_age, args.min_visual_tokens)

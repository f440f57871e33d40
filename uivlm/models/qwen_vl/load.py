"""The original Qwen-VL as a model of the project."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from uivlm.models.loaded_model import LoadedModel
from uivlm.models.quantize import loading_options
from uivlm.models.qwen_vl import files
from uivlm.models.qwen_vl.config import LongContext
from uivlm.models.qwen_vl.model import LORA_TARGETS, TRAINABLE_PATTERN, QwenVL, vision_lora_targets
from uivlm.models.qwen_vl.processor import QwenVLProcessor
from uivlm.models.qwen_vl.tokenizer import TOKENIZER_FILE
from uivlm.recipe import QwenVLArgs


@dataclass(frozen=True, slots=True)
class QwenVLLoader:
    args: QwenVLArgs
    projector_name: ClassVar[None] = None

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        args = self.args
        long_context: LongContext = "original" if args.dynamic_ntk else "none"
        tokenizer = files.load_tokenizer(args.base_model)
        model = (
            files.from_config(args.base_model, dtype, long_context, init_device)
            if init_device
            else files.load(
                args.base_model, dtype, long_context, **loading_options(args.quantize, dtype, device)
            )
        )
        return LoadedModel(
            model,
            _processor(QwenVLProcessor(tokenizer, model.config), args),
            args.lora,
            LORA_TARGETS,
            self._save_pretrained,
            open_weights=partial(files.open_weights, args.base_model),
            trainable_pattern=TRAINABLE_PATTERN,
            vision_lora_targets=vision_lora_targets(model),
            quantized=args.quantize is not None,
            supports_prefix_cache=not args.dynamic_ntk,  # it rotates keys by a factor of the prompt's length
            supports_static_decoding=not args.dynamic_ntk,
        )

    def saved_args(self, folder: Path) -> QwenVLArgs:
        return replace(self.args, base_model=str(folder))

    def _save_pretrained(self, model: nn.Module, folder: Path) -> None:
        assert isinstance(model, QwenVL)
        files.save(folder, model, files.find_or_download(self.args.base_model) / TOKENIZER_FILE)


def _processor(processor: QwenVLProcessor, args: QwenVLArgs) -> QwenVLProcessor:
    """The processor with the recipe's `max_length`."""
    if args.max_length is not None:
        positions = processor.config.max_position_embeddings
        if args.max_length > positions:
            raise ValueError(
                f"model.max_length: got {args.max_length}; {args.base_model} has positions for {positions} "
                "tokens. "
                "Lower it"
            )
        processor.max_length = args.max_length
    return processor

"""The folder of Qwen-VL's golden files, and a small random Qwen-VL with inputs."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.helpers.paths import GOLDEN
from uivlm.actions.action import Point, Tap
from uivlm.episodes.encode import encode
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece, TextPiece
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.processor import QwenVLProcessor
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer

QWENVL = GOLDEN / "qwenvl"


@cache
def bytewise() -> QwenTokenizer:
    """A tokenizer whose only ranks are the 256 bytes."""
    return QwenTokenizer({bytes([i]): i for i in range(256)})


def small_config(**changes: Any) -> QwenVLConfig:
    """Its positions are shrunk, not enlarged; its heads, widths and queries differ from the golden model."""
    visual = {"image_size": 32, "patch_size": 8, "width": 24, "layers": 2, "heads": 3, "mlp_ratio": 2.0}
    visual |= {"output_dim": 256, "n_queries": 9, "image_start_id": bytewise().special_tokens["<img>"]}
    text = {"vocab_size": 480, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8}
    text |= {"kv_channels": 32, "intermediate_size": 96, "seq_length": 256, "visual": visual}
    return QwenVLConfig(**(text | changes))


def small_qwen_vl(**changes: Any) -> QwenVL:
    torch.manual_seed(0)
    model = QwenVL(small_config(**changes))
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn_like(value)
    return model.eval()


def screen(seed: int) -> Screen:
    return Screen(np.random.default_rng(seed).integers(0, 256, (50, 20, 3), np.uint8))


def prompt(config: QwenVLConfig, num_screens: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and labels [1, T], pixels [N, 3, S, S]."""
    pieces: list[TextPiece | ScreenPiece] = [TextPiece("go <img>\n", False)]
    for i in range(num_screens):
        pieces += [ScreenPiece(screen(i)), TextPiece(f"tap at {i} 5", True, Tap(Point(0.05, 0.05)))]
    example = encode(tuple(pieces), QwenVLProcessor(bytewise(), config))
    return tuple(
        torch.from_numpy(x) for x in (example.input_ids[None], example.labels[None], np.stack(example.pixels))
    )  # type: ignore[return-value]

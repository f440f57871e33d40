"""The smallest model: bytes as tokens, one attention layer, one visual token: the mean color of a screen."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from uivlm.episodes.encode import Vocabulary
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import merge_multimodal_embeddings, select_trained_logits
from uivlm.recipe import LlamaVitArgs

EOS, PAD, IMAGE, VOCAB_SIZE = 256, 257, 258, 259  # the ids below are bytes


class SmallestProcessor:
    bos_ids: tuple[int, ...] = ()
    eos_id, pad_id, image_token_id, max_length = EOS, PAD, IMAGE, 4096
    counts_by_size, fingerprint = True, "bytes, one visual token"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(token for token in ids if token < EOS).decode("utf-8", "replace")

    def is_text_token(self, token: int) -> bool:
        return token < EOS

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(bytes([token]) for token in range(EOS)))

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        return [IMAGE]

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        return np.moveaxis(piece.screen.pixels, 2, 0)


class SmallestModel(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, width)
        self.projection = nn.Linear(3, width)  # of visual features; trained whole
        self.attention = nn.Linear(width, 3 * width)  # query, key and value; carries adapters
        self.head = nn.Linear(width, VOCAB_SIZE)

    def get_image_features(self, pixels: Tensor) -> Tensor:
        return pixels.float().mean((2, 3))[:, None] / 255  # uint8 [N, 3, h, w] -> [N, 1, 3]

    def forward(
        self,
        input_ids: Tensor,
        pixels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        trained_positions: Tensor | None = None,
        features: Tensor | None = None,
        cache: Any = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> SimpleNamespace:
        if features is None and pixels is not None:
            features = self.get_image_features(pixels)
        visual = None if features is None else self.projection(features.flatten(0, 1))
        x = merge_multimodal_embeddings(self.embedding(input_ids), input_ids == IMAGE, visual)  # [B, T, D]
        query, key, value = (part[:, None] for part in self.attention(x).chunk(3, -1))  # one head
        if cache is not None:
            key, value = cache.update(key, value, 0)
        mask = torch.ones(query.shape[2], key.shape[2]).tril(key.shape[2] - query.shape[2]).bool()
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None].bool() | torch.eye(*mask.shape).bool()
        hidden = x + scaled_dot_product_attention(query, key, value, mask)[:, 0]
        return SimpleNamespace(
            logits=select_trained_logits(self.head, hidden, trained_positions, logits_to_keep)
        )


@dataclass(frozen=True, slots=True)
class SmallestLoader:
    args: LlamaVitArgs  # a model of the project has its own settings in uivlm/recipe/model_args.py
    projector_name: ClassVar[str] = "projection"

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        model = SmallestModel().to(init_device or device, dtype).eval()
        model.load_state_dict(load_file(Path(self.args.base_model) / "model.safetensors"))
        return LoadedModel(
            model,
            SmallestProcessor(),
            self.args.lora,
            lora_targets="attention",
            save_pretrained=save_pretrained,
            projector_name="projection",
            trainable_pattern=".+",
        )

    def saved_args(self, folder: Path) -> LlamaVitArgs:
        return replace(self.args, base_model=str(folder))


def save_pretrained(model: nn.Module, folder: Path) -> None:
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")

"""Example inputs for the tiny models, and changed weights for what is trained."""

import numpy as np
import torch
from torch import nn

from tests.helpers.tiny_models import episode, tokenizer
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat
from uivlm.models.bridge.model import LlamaVit
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.loaded_model import LoadedModel

FIRST = tokenizer().get_vocab_size()
LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.w1", "mlp.w2", "mlp.c_proj")


def random_pixels(*shape: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """uint8"""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def example_of(model: LlamaVit, num_steps: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    spoken, of = PromptFormat(), episode(1, num_steps)
    example = encode(spoken.sentence(next(spoken.windows(of))), BridgeProcessor(tokenizer(), model.config))
    return (
        torch.tensor(example.input_ids)[None],
        torch.tensor(example.labels)[None],
        torch.tensor(np.stack(example.pixels)),
    )


def qwen_example(built: LoadedModel) -> tuple[torch.Tensor, torch.Tensor]:
    spoken, of = PromptFormat(), episode(1, 3)
    example = encode(spoken.sentence(next(spoken.windows(of))), built.processor)
    return torch.tensor(example.input_ids)[None], torch.tensor(np.stack(example.pixels))


def shaken_by(model: nn.Module) -> nn.Module:
    """The model after a random change of every trainable weight."""
    torch.manual_seed(5)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.05 * torch.randn_like(value)
    return model.eval()

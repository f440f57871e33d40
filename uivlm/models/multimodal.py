"""What all models share: merging image features into text, and logits and losses of trained tokens.

Shapes: B rows, T tokens, S visual tokens of a screen, V visual tokens of all screens, D width.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from uivlm.episodes.encode import IGNORE

# with fewer rows a thread, MKL rounds differently, and the logits of a sentence would depend on its batch
MIN_ROWS_PER_THREAD = 8


def merge_multimodal_embeddings(
    embeds_BTD: Tensor, image_mask_BT: Tensor, visual_VD: Tensor | None
) -> Tensor:
    """Put the visual tokens where `image_mask_BT` (bool) is True, in row order.

    ValueError on a CPU if the numbers differ. Reading a count from a GPU waits for all work queued there, so
    the collator counts before the ids leave the CPU.
    """
    if image_mask_BT.device.type == "cpu":
        placeholders, features = int(image_mask_BT.sum()), 0 if visual_VD is None else len(visual_VD)
        if placeholders != features:
            raise ValueError(
                f"the text has {placeholders} placeholders, the screens have {features} visual tokens"
            )
    if visual_VD is None:
        return embeds_BTD
    # not in place: the embeddings may be a leaf that requires a gradient
    return embeds_BTD.masked_scatter(image_mask_BT[..., None], visual_VD.to(embeds_BTD))


def select_trained_logits(
    head: nn.Module, hidden_BTD: Tensor, trained_positions: Tensor | None, logits_to_keep: int = 0
) -> Tensor:
    """Logits [B, T, vocabulary] of the last `logits_to_keep` tokens (0: all).

    With `trained_positions` (see `trained_tokens`): only of these, [trained tokens, vocabulary].
    """
    if trained_positions is None:
        return cast(Tensor, head(hidden_BTD[:, -logits_to_keep:]))
    trained = hidden_BTD.flatten(0, 1).index_select(0, trained_positions)
    missing = (
        torch.get_num_threads() * MIN_ROWS_PER_THREAD - len(trained) if trained.device.type == "cpu" else 0
    )
    return cast(Tensor, head(functional.pad(trained, (0, 0, 0, max(0, missing)))))[: len(trained)]


def trained_tokens(labels_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Where trained tokens are predicted, and their ids: both int64 [trained tokens], row by row.

    The token at flat position b * T + t predicts token t + 1 of row b. `labels_BT`: IGNORE or the token's id.
    Call it on the CPU: the number of trained tokens is read.
    """
    targets = labels_BT[:, 1:]
    rows, columns = (targets != IGNORE).nonzero(as_tuple=True)
    return rows * labels_BT.shape[1] + columns, targets[rows, columns]


def token_losses(outputs: Any, labels: Tensor) -> Tensor:
    """Loss in nats of each trained token. `labels` [trained tokens]: their ids (see `trained_tokens`).

    `outputs` are of a forward with the `trained_positions` of the same tokens.
    """
    return functional.cross_entropy(outputs.logits.float(), labels, reduction="none")


def normalize_pixels(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 [..., 3, h, w] -> float32, the same shape: (value / 255 - mean) / std of each channel.

    Mean and std stay Python numbers: to copy them to a GPU would wait for the work queued there.
    """
    assert pixels.dtype == torch.uint8, f"pixels: got {pixels.dtype}; expected torch.uint8"
    channels = (pixels.float() / 255).unbind(-3)
    return torch.stack([(values - m) / s for values, m, s in zip(channels, mean, std, strict=True)], -3)


def encode_screens(module: nn.Module, screens: Sequence[NDArray[np.uint8]]) -> list[Tensor]:
    """Features [S, width] of each screen [3, h, w].

    Screens of one size pass the vision encoder in one batch.
    """
    device = next(module.parameters()).device
    same_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, screen in enumerate(screens):
        same_size[screen.shape].append(i)
    features: dict[int, Tensor] = {}
    for indices in same_size.values():
        pixels = torch.from_numpy(np.stack([screens[i] for i in indices])).to(device)
        features |= zip(indices, module.get_image_features(pixels), strict=True)  # type: ignore[operator]
    return [features[i] for i in range(len(screens))]


def is_vision_parameter(name: str) -> bool:
    """Does a parameter or module belong to the vision encoder? Decided by its name, for all models."""
    return any(part in module for module in name.split(".") for part in ("vision", "visual"))


@contextmanager
def vision_grad(vision: nn.Module) -> Iterator[None]:
    """Record gradients inside only if a parameter of the vision encoder is trained.

    With activation checkpointing, transformers makes the outputs of every embedding require a gradient, those
    of the patches too. A frozen encoder would then keep its activations and run its backward pass.
    """
    is_trained = any(value.requires_grad for value in vision.parameters())
    with torch.set_grad_enabled(torch.is_grad_enabled() and is_trained):
        yield


def lora_pattern(model: nn.Module, prefix: str, inside: str = "") -> str:
    """A regex of the linear layers below `prefix` whose names contain the regex `inside`; any layer index."""
    names = (name for name, part in model.named_modules() if isinstance(part, nn.Linear))
    found = {
        re.sub(r"\.\d+\.", ".0.", name)
        for name in names
        if name.startswith(f"{prefix}.") and re.search(inside, name)
    }
    return "|".join(re.escape(name).replace(r"\.0\.", r"\.\d+\.") for name in sorted(found))


def has_fixed_rope(language: nn.Module) -> bool:
    """False if transformers reads the greatest position on the CPU to choose rotary frequencies."""
    types = (str(getattr(part, "rope_type", "")) for part in language.modules())
    return not any("dynamic" in name or name == "longrope" for name in types)


def needs_dummy_vision_pass() -> bool:
    """In a distributed run every rank must run the same modules, even if its rows have no screen."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()

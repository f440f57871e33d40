"""What every model here does alike: visual tokens in their places, and logits where they are wanted.

Shapes: B rows, T tokens, S visual tokens of a screen, V of all screens, D width.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from uivlm.sentences.encode import IGNORE

STEADY = 8  # rows a thread: of fewer, MKL's products are rounded otherwise, and company would change a sentence's logits


def splice(embeds_BTD: Tensor, places_BT: Tensor, tokens_VD: Tensor | None) -> Tensor:
    """The visual tokens stand where `places_BT` (bool) says, in row order; ValueError where the numbers differ."""
    found, given = int(places_BT.sum()), 0 if tokens_VD is None else len(tokens_VD)
    if found != given:
        raise ValueError(
            f"{found} places for visual tokens in the text, {given} visual tokens from the screens"
        )
    if tokens_VD is None:
        return embeds_BTD
    # out of place: the embeddings may be a leaf that wants a gradient
    return embeds_BTD.masked_scatter(places_BT[..., None], tokens_VD.to(embeds_BTD))


def wanted_logits(head: nn.Module, hidden_BTD: Tensor, labels_BT: Tensor | None, keep: int = 0) -> Tensor:
    """[B, T, vocabulary], of the last `keep` tokens (0: all); with labels, of those that predict a trained token:
    [trained tokens, vocabulary]."""
    if labels_BT is None:
        return cast(Tensor, head(hidden_BTD[:, -keep:]))
    trained = hidden_BTD[:, :-1][labels_BT[:, 1:] != IGNORE]
    few = torch.get_num_threads() * STEADY - len(trained) if trained.device.type == "cpu" else 0
    return cast(Tensor, head(functional.pad(trained, (0, 0, 0, max(0, few)))))[: len(trained)]


def restarted(lengths: Tensor) -> Tensor:
    """[T]: the place of each token in its sentence, where sentences of these lengths lie one after another in a row."""
    return torch.cat([torch.arange(n, device=lengths.device) for n in lengths.tolist()])


def look_at(module: nn.Module, screens: Sequence[NDArray[np.float32]]) -> list[Tensor]:
    """Features [S, width] of each screen [3, h, w]; those of one size pass the vision encoder together."""
    device = next(module.parameters()).device
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, screen in enumerate(screens):
        alike[screen.shape].append(i)
    found: dict[int, Tensor] = {}
    for places in alike.values():
        pixels = torch.from_numpy(np.stack([screens[i] for i in places])).to(device)
        found |= zip(places, module.look(pixels), strict=True)  # type: ignore[operator]
    return [found[i] for i in range(len(screens))]


def must_look(module: nn.Module) -> bool:
    """In distributed training every process runs the same modules, also one whose rows have no screen."""
    return module.training and torch.distributed.is_available() and torch.distributed.is_initialized()

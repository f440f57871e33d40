"""Attention within each of the sentences that are packed into one row.

In: what transformers passes to an attention function, and the lengths of the sentences. Out: bit for bit what
each sentence gives in a row of its own; nothing is computed between two sentences. Without lengths:
transformers' "sdpa".

Shapes: B rows, T tokens, H heads, d width of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from uivlm.models.multimodal import packed_position_ids

PACKED_ATTENTION = "by_sentence"  # this attention's name in transformers


def packed_attention(
    module: nn.Module,
    query_BHTd: Tensor,
    key_BHTd: Tensor,
    value_BHTd: Tensor,
    mask: Tensor | None,
    lengths: list[int] | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """[B, T, H, d]. `mask`: bool [B, 1, T, T], of the row as if it were one sentence; None: causal."""
    if lengths is None:
        return sdpa_attention_forward(module, query_BHTd, key_BHTd, value_BHTd, mask, **rest)
    masks: list[Tensor | None] = [None] * len(lengths)
    if mask is not None:
        masks = [part.split(lengths, 3)[i] for i, part in enumerate(mask.split(lengths, 2))]
    parts = (whole.split(lengths, 2) for whole in (query_BHTd, key_BHTd, value_BHTd))
    outputs = [
        sdpa_attention_forward(module, query, key, value, own, **rest)[0]
        for query, key, value, own in zip(*parts, masks, strict=True)
    ]
    return torch.cat(outputs, 1), None


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)


def enable_packed_attention(language: PreTrainedModel) -> None:
    """Replace "sdpa". Any other attention was chosen on purpose and stays."""
    if language.config._attn_implementation == "sdpa":
        language.set_attn_implementation(PACKED_ATTENTION)


def packed_inputs(language: PreTrainedModel, lengths: Tensor) -> dict[str, Any]:
    """What transformers' model takes for sentences of these lengths in one row."""
    position_ids = packed_position_ids(lengths)[None]
    inputs: dict[str, Any] = {"position_ids": position_ids, "use_cache": False}
    if language.config._attn_implementation != PACKED_ATTENTION:
        return inputs  # positions restart, without mask and cache: transformers then separates the sentences
    # a mask that hides nothing: transformers then makes none of T x T values
    return inputs | {"attention_mask": torch.ones_like(position_ids).bool(), "lengths": lengths.tolist()}

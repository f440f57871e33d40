"""Sentences that lie one after another in a single row attend as if each stood there alone.

In: what transformers gives to an attention function, and the sentences' lengths. Out: what its own "sdpa" gives; where
lengths are told, of each sentence what a row of its own would give, bit for bit, and nothing is computed between two.

Shapes: B rows, T tokens, H heads, d width of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from uivlm.models.interleave import restarted

BY_SENTENCE = "by_sentence"  # this attention's name in transformers


def attend(
    module: nn.Module,
    query_BHTd: Tensor,
    key_BHTd: Tensor,
    value_BHTd: Tensor,
    mask: Tensor | None,
    lengths: list[int] | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """[B, T, H, d]. `mask`: bool [B, 1, T, T], of a row as if it were one sentence; None: causal."""
    if lengths is None:
        return sdpa_attention_forward(module, query_BHTd, key_BHTd, value_BHTd, mask, **rest)
    masks: list[Tensor | None] = [None] * len(lengths)
    if mask is not None:
        masks = [part.split(lengths, 3)[i] for i, part in enumerate(mask.split(lengths, 2))]
    parts = (whole.split(lengths, 2) for whole in (query_BHTd, key_BHTd, value_BHTd))
    seen = [
        sdpa_attention_forward(module, query, key, value, own, **rest)[0]
        for query, key, value, own in zip(*parts, masks, strict=True)
    ]
    return torch.cat(seen, 1), None


AttentionInterface.register(BY_SENTENCE, attend)
AttentionMaskInterface.register(BY_SENTENCE, sdpa_mask)


def by_sentence(language: PreTrainedModel) -> None:
    """It will attend so; another attention than "sdpa" was somebody's choice and stays."""
    if language.config._attn_implementation == "sdpa":
        language.set_attn_implementation(BY_SENTENCE)


def packed(language: PreTrainedModel, lengths: Tensor) -> dict[str, Any]:
    """What transformers' model must be told of sentences of these lengths in its one row."""
    places = restarted(lengths)[None]
    told = {"position_ids": places, "use_cache": False}
    if language.config._attn_implementation != BY_SENTENCE:
        return told  # places begin anew, without mask and cache: it makes a mask that separates sentences
    # nothing is hidden: it makes no mask, which would have T x T values
    return told | {"attention_mask": torch.ones_like(places).bool(), "lengths": lengths.tolist()}

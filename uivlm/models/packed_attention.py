"""Attention within each of several sequences that lie in one row: packed sentences, screens, or windows.

In: what transformers passes to an attention function, and the bounds of the sequences. Out: what each
sequence gives in a row of its own, on CPUs bit for bit; nothing is computed between two sequences. Without
bounds: transformers' "sdpa".

Shapes: B rows, T tokens, H heads, d width of a head, L tokens of a sequence, n sequences of one length.
"""

import itertools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

# This attention's names in transformers. Vision encoders pass the bounds of their sequences only to an
# attention whose name contains "flash"; all others are called once a sequence.
PACKED_ATTENTION, VISION_ATTENTION = "by_sentence", "flash_by_screen"
VARLEN_DTYPES = (torch.bfloat16, torch.float16)


def packed_attention(
    module: nn.Module,
    query_BHTd: Tensor,
    key_BHTd: Tensor,
    value_BHTd: Tensor,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """[B, T, H, d]. `attention_mask`: bool [B, 1, T, T], of the row as if it were one sequence; None: causal.

    `cu_seq_lens_q`: int32 [sequences + 1], where each begins and the last ends; `max_length_q`: the longest.
    """
    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query_BHTd, key_BHTd, value_BHTd, attention_mask, **rest)
    whole = query_BHTd, key_BHTd, value_BHTd
    if attention_mask is None and supports_varlen(query_BHTd) and not rest.get("dropout"):
        assert max_length_q is not None
        return _varlen_attention(module, *whole, cu_seq_lens_q, max_length_q, **rest), None
    return _attention_by_sequence(module, *whole, attention_mask, cu_seq_lens_q, **rest), None


# it reads the bounds: a graph would hold for these lengths only
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attention_by_sequence(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    cu_seq_lens: Tensor,
    **rest: Any,
) -> Tensor:
    lengths = cu_seq_lens.diff().tolist()
    if attention_mask is None:
        return _batched_attention(module, query, key, value, lengths, **rest)
    whole = (each.split(lengths, 2) for each in (query, key, value))
    parts = zip(*whole, attention_mask.split(lengths, 2), strict=True)
    outputs = [
        sdpa_attention_forward(module, q, k, v, own.split(lengths, 3)[i], **rest)[0]
        for i, (q, k, v, own) in enumerate(parts)
    ]
    return torch.cat(outputs, 1)


def _batched_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, lengths: list[int], **rest: Any
) -> Tensor:
    """Adjacent sequences of one length are rows of one call."""
    outputs, first = [], 0
    for length, group in itertools.groupby(lengths):
        count = len(list(group))
        q, k, v = (
            each[:, :, first : first + count * length].unflatten(2, (count, length))[0].transpose(0, 1)
            for each in (query, key, value)
        )  # [n, H, L, d]
        attended, _ = sdpa_attention_forward(module, q, k, v, None, **rest)  # [n, L, H, d]
        outputs.append(attended.flatten(0, 1)[None])
        first += count * length
    return torch.cat(outputs, 1)


def _varlen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_lens: Tensor,
    max_length: int,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> Tensor:
    """All sequences in one call, without reading the bounds on the CPU."""
    groups = getattr(module, "num_key_value_groups", 1)
    parts = (query, repeat_kv(key, groups), repeat_kv(value, groups))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    attended = varlen_kernel()(
        *(each[0].transpose(0, 1) for each in parts),
        cu_seq_lens,
        cu_seq_lens,
        max_length,
        max_length,
        scale=scaling,
        window_size=(-1, 0 if causal else -1),
    )
    return cast(Tensor, attended)[None]


def supports_varlen(query: Tensor) -> bool:
    return query.is_cuda and query.dtype in VARLEN_DTYPES and query.shape[0] == 1


def varlen_kernel() -> Callable[..., Any]:
    from torch.nn.attention.varlen import varlen_attn  # here, as only CUDA needs this recent module

    return varlen_attn


for name in (PACKED_ATTENTION, VISION_ATTENTION):
    AttentionInterface.register(name, packed_attention)


def no_padding(tokens_BT: Tensor) -> Tensor:
    """A mask bool [B, T] that hides nothing: one value, repeated without a copy.

    Without a mask, transformers reads the positions to find packed sentences; on a GPU that waits for all
    work queued there. `packed_mask` recognizes this mask by its stride.
    """
    return torch.ones(1, 1, dtype=torch.bool, device=tokens_BT.device).expand(*tokens_BT.shape[:2])


def packed_mask(*, attention_mask: Tensor | None = None, **rest: Any) -> Tensor | None:
    """transformers' mask of "sdpa", which does not read the values of `no_padding`."""
    if attention_mask is not None and not attention_mask.stride(-1):
        attention_mask = None
    return sdpa_mask(attention_mask=attention_mask, **rest)


AttentionMaskInterface.register(PACKED_ATTENTION, packed_mask)


def enable_packed_attention(language: PreTrainedModel) -> None:
    """Replace "sdpa". Any other attention was chosen on purpose and stays."""
    if language.config._attn_implementation == "sdpa":
        language.set_attn_implementation(PACKED_ATTENTION)


def enable_vision_attention(vision: PreTrainedModel) -> None:
    """The same for a vision encoder that reads all screens in one row."""
    if vision.config._attn_implementation == "sdpa":
        # `set_attn_implementation` would look for the package flash-attn
        vision.config._attn_implementation = VISION_ATTENTION


def packed_inputs(
    language: PreTrainedModel, position_ids: Tensor, cu_seq_lens: Tensor, max_length: int
) -> dict[str, Any]:
    """What transformers' model takes for sentences packed into one row.

    `position_ids` [1, T] restart in each sentence; `cu_seq_lens` int32 [sentences + 1]: their bounds.
    """
    inputs: dict[str, Any] = {"position_ids": position_ids, "use_cache": False}
    if language.config._attn_implementation != PACKED_ATTENTION:
        return inputs  # positions restart, without mask and cache: transformers then separates the sentences
    mask = no_padding(position_ids)
    return inputs | {"attention_mask": mask, "cu_seq_lens_q": cu_seq_lens, "max_length_q": max_length}

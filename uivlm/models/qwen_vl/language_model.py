"""Qwen-VL's language model: pre-norm blocks with RMSNorm, rotary positions and a gated MLP.

In: embeddings [B, T, D]. Out: hidden states [B, T, D].
Shapes: B rows, T new tokens, K tokens with the cached ones, H heads, d width of a head, D width.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from uivlm.models.packed_attention import packed_attention
from uivlm.models.qwen_vl.config import QwenVLConfig


@dataclass(frozen=True, slots=True)
class RotaryPositions:
    """What attention needs to know about positions."""

    cos: Tensor  # float32 [T, d], or [B, 1, T, d] where each row has its own positions
    sin: Tensor
    query_scale: Tensor | None  # float32 [T, 1] or [B, 1, T, 1]: logn attention; None: off
    mask: (
        Tensor | None
    )  # bool [B, 1, T, K], True: attends; None: plain causal, or one token that attends to all
    bounds: dict[str, Any]  # of the sentences packed into one row (`sequence_bounds`); empty: not packed


def ntk_alpha(num_tokens: int, seq_length: int) -> float:
    """Factor of dynamic NTK for a prefill of `num_tokens`, padding included: 1, 3, 7, ..."""
    return float(max(2 ** math.ceil(math.log2(num_tokens / seq_length) + 1) - 1, 1))


def rotary_positions(
    config: QwenVLConfig,
    position_ids: Tensor,
    alpha: float,
    logn: bool,
    mask: Tensor | None,
    bounds: dict[str, Any] | None = None,
) -> RotaryPositions:
    """`position_ids`: [T], the same for all rows, or [B, T].

    As in the original, [T] counts the tokens of the padded rows from 0; in packed rows, those of each
    sentence.
    """
    d = config.kv_channels
    base = config.rotary_emb_base * alpha ** (d / (d - 2))
    inverse = 1.0 / (base ** (torch.arange(0, d, 2, device=position_ids.device).float() / d))
    ids = (
        position_ids if position_ids.dim() == 1 else position_ids[:, None]
    )  # [B, 1, T]: the same for all heads
    half = ids.float()[..., None] * inverse
    angles = torch.cat([half, half], -1)
    scale = None
    if logn:
        scale = ((ids + 1).log() / math.log(config.seq_length)).clamp(min=1)[..., None]
    return RotaryPositions(angles.cos(), angles.sin(), scale, mask, bounds or {})


def causal_mask(attention_mask: Tensor | None, past: int, num_tokens: int, device: torch.device) -> Tensor:
    """bool [B or 1, 1, T, K]. Each position attends to itself: a row of padding alone would give NaN."""
    keys = torch.arange(past + num_tokens, device=device)
    queries = keys[past:, None]
    mask = (keys <= queries)[None, None]
    if attention_mask is None:
        return mask
    if attention_mask.shape[1] != past + num_tokens:
        raise ValueError(
            f"attention_mask covers {attention_mask.shape[1]} tokens, there are {past + num_tokens} with "
            "the cache"
        )
    return mask & attention_mask.bool()[:, None, None, :] | (keys == queries)


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normal.to(x.dtype) * self.weight


def apply_rotary_pos_emb(x_BHTd: Tensor, rotary: RotaryPositions) -> Tensor:
    """NeoX style: the two halves of a head's width are paired. In float32."""
    wide = x_BHTd.float()
    first, second = wide.chunk(2, -1)
    return (wide * rotary.cos + torch.cat([-second, first], -1) * rotary.sin).to(x_BHTd.dtype)


class Attention(nn.Module):
    def __init__(self, config: QwenVLConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, config.num_attention_heads
        width = self.heads * config.kv_channels
        self.c_attn = nn.Linear(
            config.hidden_size, 3 * width
        )  # with a bias, although the configuration says no_bias
        self.c_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x_BTD: Tensor, rotary: RotaryPositions, past: Cache | None) -> Tensor:
        query, key, value = rearrange(
            self.c_attn(x_BTD), "B T (three H d) -> three B H T d", three=3, H=self.heads
        )
        query, key = apply_rotary_pos_emb(query, rotary), apply_rotary_pos_emb(key, rotary)
        if past is not None:
            key, value = past.update(key, value, self.layer)
        if rotary.query_scale is not None:
            query = query * rotary.query_scale.to(query.dtype)
        attended_BTHd, _ = packed_attention(
            self, query, key, value, rotary.mask, **rotary.bounds
        )  # without a mask causal
        return cast(Tensor, self.c_proj(rearrange(attended_BTHd, "B T H d -> B T (H d)")))


class MLP(nn.Module):
    """`w2` is the gate, `w1` the up projection."""

    def __init__(self, config: QwenVLConfig) -> None:
        super().__init__()
        inner = config.intermediate_size // 2
        self.w1 = nn.Linear(config.hidden_size, inner, bias=False)
        self.w2 = nn.Linear(config.hidden_size, inner, bias=False)
        self.c_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return cast(Tensor, self.c_proj(self.w1(x_BTD) * functional.silu(self.w2(x_BTD))))


class Block(GradientCheckpointingLayer):
    def __init__(self, config: QwenVLConfig, layer: int) -> None:
        super().__init__()
        self.ln_1 = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.attn = Attention(config, layer)
        self.ln_2 = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mlp = MLP(config)

    # transformers removes the cache by this name during gradient checkpointing
    def forward(self, x_BTD: Tensor, rotary: RotaryPositions, cache: Cache | None = None) -> Tensor:
        x_BTD = x_BTD + self.attn(self.ln_1(x_BTD), rotary, cache)
        return cast(Tensor, x_BTD + self.mlp(self.ln_2(x_BTD)))

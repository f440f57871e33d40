"""Qwen-VL's text tower: pre-norm blocks with RMSNorm, rotary positions and a gated MLP.

In: embeddings [B, T, D]. Out: hidden states [B, T, D].
Shapes: B rows, T new tokens, K tokens with those in the cache, H heads, d width of a head, D width.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from uivlm.models.attention import attend
from uivlm.models.qwen_vl.config import QwenVLConfig


@dataclass(frozen=True, slots=True)
class Positions:
    """What attention knows of where tokens stand."""

    cos: Tensor  # float32 [T, d], or [B, 1, T, d] where each row has its own places
    sin: Tensor
    query_scale: Tensor | None  # float32 [T, 1] or [B, 1, T, 1]: logn attention; None: off
    mask: Tensor | None  # bool [B, 1, T, K], True: may look; None: plain causal, or one token that sees all
    lengths: list[int] | None  # of the sentences in the one row; None: each row is one


def ntk_alpha(num_tokens: int, seq_length: int) -> float:
    """Factor of dynamic NTK at a prefill of so many tokens, padding included: 1, 3, 7, ..."""
    return float(max(2 ** math.ceil(math.log2(num_tokens / seq_length) + 1) - 1, 1))


def positions(
    config: QwenVLConfig,
    places: Tensor,
    alpha: float,
    logn: bool,
    mask: Tensor | None,
    lengths: list[int] | None = None,
) -> Positions:
    """`places` [T] count the tokens of the padded rows from 0, as the original does; of packed ones, of each sentence. Where
    each row has its own, [B, T]."""
    d = config.kv_channels
    base = config.rotary_emb_base * alpha ** (d / (d - 2))
    inverse = 1.0 / (base ** (torch.arange(0, d, 2, device=places.device).float() / d))
    every = places if places.dim() == 1 else places[:, None]  # [B, 1, T]: the same for all heads
    half = every.float()[..., None] * inverse
    angles = torch.cat([half, half], -1)
    scale = None
    if logn:
        scale = ((every + 1).log() / math.log(config.seq_length)).clamp(min=1)[..., None]
    return Positions(angles.cos(), angles.sin(), scale, mask, lengths)


def causal_mask(attention_mask: Tensor | None, past: int, num_tokens: int, device: torch.device) -> Tensor:
    """bool [B or 1, 1, T, K]. Each position may look at itself, else a row of padding would give NaN."""
    keys = torch.arange(past + num_tokens, device=device)
    queries = keys[past:, None]
    mask = (keys <= queries)[None, None]
    if attention_mask is None:
        return mask
    if attention_mask.shape[1] != past + num_tokens:
        raise ValueError(
            f"attention_mask covers {attention_mask.shape[1]} tokens, there are {past + num_tokens} with the cache"
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


def rotate(x_BHTd: Tensor, at: Positions) -> Tensor:
    """NeoX style: the second half of a head's width is the first half's partner. In float32."""
    wide = x_BHTd.float()
    first, second = wide.chunk(2, -1)
    return (wide * at.cos + torch.cat([-second, first], -1) * at.sin).to(x_BHTd.dtype)


class Attention(nn.Module):
    def __init__(self, config: QwenVLConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.channels = layer, config.num_attention_heads, config.kv_channels
        width = self.heads * self.channels
        self.c_attn = nn.Linear(config.hidden_size, 3 * width)  # with a bias, whatever no_bias says
        self.c_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x_BTD: Tensor, at: Positions, past: Cache | None) -> Tensor:
        stacked = self.c_attn(x_BTD).unflatten(-1, (3, self.heads, self.channels))
        query, key, value = (part.transpose(1, 2) for part in stacked.unbind(2))  # BHTd each
        query, key = rotate(query, at), rotate(key, at)
        if past is not None:
            key, value = past.update(key, value, self.layer)
        if at.query_scale is not None:
            query = query * at.query_scale.to(query.dtype)
        seen_BTHd, _ = attend(self, query, key, value, at.mask, at.lengths)  # without a mask causal
        return cast(Tensor, self.c_proj(seen_BTHd.flatten(2)))


class MLP(nn.Module):
    """w2 is the gate, w1 the way up."""

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

    # transformers takes the cache away by this name while it checkpoints
    def forward(self, x_BTD: Tensor, at: Positions, past_key_values: Cache | None = None) -> Tensor:
        x_BTD = x_BTD + self.attn(self.ln_1(x_BTD), at, past_key_values)
        return cast(Tensor, x_BTD + self.mlp(self.ln_2(x_BTD)))

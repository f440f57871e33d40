"""Qwen-VL's vision encoder: OpenCLIP's ViT-bigG, then a resampler with a fixed number of queries.

In: normalized pixels [N, 3, S, S]. Out: visual tokens [N, Q, D].
Shapes: N screens, S pixels a side, P patches, W width of the ViT, Q queries, D width of the text tower.
"""

import math
from typing import Any, cast

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_layers import GradientCheckpointingLayer

from uivlm.models.qwen_vl.config import NUM_POSITIONS, QwenVLConfig

EPS = 1e-6  # of every LayerNorm
HEAD = 128  # width of a head of the resampler


def interpolate_positions(table_RD: Tensor, num_positions: int) -> Tensor:
    """A square table of R positions resized to `num_positions`: bicubic, in float32."""
    old, new = math.isqrt(table_RD.shape[0]), math.isqrt(num_positions)
    if old == new:
        return table_RD
    square = rearrange(table_RD.float(), "(y x) D -> 1 D y x", y=old)
    resized = functional.interpolate(square, size=(new, new), mode="bicubic", align_corners=False)
    return rearrange(resized, "1 D y x -> (y x) D").to(table_RD.dtype)


class BlockAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x_NPW: Tensor) -> Tensor:
        """`in_proj` holds query, key and value head by head, not in stacked thirds."""
        query, key, value = rearrange(
            self.in_proj(x_NPW), "N P (H three d) -> three N H P d", H=self.heads, three=3
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return cast(Tensor, self.out_proj(rearrange(attended, "N H P d -> N P (H d)")))


class BlockMLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, inner)
        self.c_proj = nn.Linear(inner, width)

    def forward(self, x_NPW: Tensor) -> Tensor:
        return cast(Tensor, self.c_proj(functional.gelu(self.c_fc(x_NPW))))


class VisionBlock(GradientCheckpointingLayer):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, EPS)
        self.attn = BlockAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width, EPS)
        self.mlp = BlockMLP(width, inner)

    def forward(self, x_NPW: Tensor) -> Tensor:
        x_NPW = x_NPW + self.attn(self.ln_1(x_NPW))
        return cast(Tensor, x_NPW + self.mlp(self.ln_2(x_NPW)))


class VisionBlocks(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, inner: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(VisionBlock(width, heads, inner) for _ in range(layers))

    def forward(self, x_NPW: Tensor) -> Tensor:
        for block in self.resblocks:
            x_NPW = block(x_NPW)
        return x_NPW


class CrossAttention(nn.Module):
    """Names and layout of torch's MultiheadAttention, but `out_proj` is called as a module: adapters on it
    work.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[Q, D], [N, P, D], [N, P, D] -> [N, Q, D]"""
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        parts: list[Tensor] = []
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True):
            projected = functional.linear(x, weight, bias)
            by_head: Tensor = rearrange(projected, "... T (H d) -> ... H T d", H=self.heads)
            parts.append(by_head.expand(key.shape[0], -1, -1, -1))
        query_NHQd, key_NHPd, value_NHPd = parts
        attended = functional.scaled_dot_product_attention(query_NHQd, key_NHPd, value_NHPd)
        return cast(Tensor, self.out_proj(rearrange(attended, "N H Q d -> N Q (H d)")))


class Resampler(nn.Module):
    def __init__(self, width: int, output: int, queries: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(queries, output), requires_grad=False)  # sin-cos, loaded
        self.query = nn.Parameter(torch.zeros(queries, output))
        self.kv_proj = nn.Identity() if width == output else nn.Linear(width, output, bias=False)
        self.attn = CrossAttention(output, output // HEAD)
        self.ln_q = nn.LayerNorm(output, EPS)
        self.ln_kv = nn.LayerNorm(output, EPS)

    def forward(self, x_NPW: Tensor) -> Tensor:
        value = self.ln_kv(self.kv_proj(x_NPW))  # carries no positions
        key = value + interpolate_positions(self.pos_embed, x_NPW.shape[1])
        return cast(Tensor, self.attn(self.ln_q(self.query) + self.pos_embed, key, value))


class VisionTower(nn.Module):
    def __init__(self, config: QwenVLConfig) -> None:
        super().__init__()
        visual: dict[str, Any] = config.visual
        width, output, patch = visual["width"], visual["output_dim"], visual["patch_size"]
        self.image_size = int(visual["image_size"])
        self.conv1 = nn.Conv2d(3, width, kernel_size=patch, stride=patch, bias=False)
        self.positional_embedding = nn.Parameter(torch.zeros(NUM_POSITIONS, width))
        self.ln_pre = nn.LayerNorm(width, EPS)
        inner = int(width * visual["mlp_ratio"])
        self.transformer = VisionBlocks(width, visual["layers"], visual["heads"], inner)
        self.attn_pool = Resampler(width, output, config.num_queries)
        self.ln_post = nn.LayerNorm(output, EPS)
        self.proj = nn.Parameter(torch.zeros(output, output))

    def forward(self, pixels: Tensor) -> Tensor:
        if tuple(pixels.shape[1:]) != (3, self.image_size, self.image_size):
            raise ValueError(
                f"pixels: got {list(pixels.shape[1:])}; the vision tower reads "
                f"{[3, self.image_size, self.image_size]}"
            )
        x_NPW = rearrange(self.conv1(pixels.to(self.conv1.weight.dtype)), "N W y x -> N (y x) W")
        x_NPW = self.ln_pre(x_NPW + interpolate_positions(self.positional_embedding, x_NPW.shape[1]))
        x_NQD = self.attn_pool(self.transformer(x_NPW))
        return cast(Tensor, self.ln_post(x_NQD) @ self.proj)

"""Qwen2-VL, Qwen2.5-VL or Qwen3-VL of transformers, as a model of the project.

In: token ids with runs of placeholders, and the screens' pixels in the order of the runs. Out: next-token
logits. The weights, and so the adapters, keep their names in transformers' class.

The features of a visual token are more than its embedding. Qwen3-VL adds a vector to the hidden state after
each of its first layers (deepstack), and positions need the token's row and column.

Shapes: B rows, T tokens, N screens, S visual tokens of a screen, V visual tokens of all screens, D width,
F = (1 + deepstack layers) D + 2.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import torch
from einops import repeat
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from uivlm.models.multimodal import (
    merge_multimodal_embeddings,
    needs_dummy_vision_pass,
    normalize_pixels,
    select_trained_logits,
    vision_grad,
)
from uivlm.models.packed_attention import (
    enable_packed_attention,
    enable_vision_attention,
    no_padding,
    packed_inputs,
)
from uivlm.models.pretrained import RGBFloats
from uivlm.models.qwen_hf.positions import mrope_position_ids
from uivlm.models.qwen_hf.vision_inputs import vision_inputs

LANGUAGE_LAYERS = "model.language_model.layers"  # the part that carries adapters
TRAINABLE_PATTERN = r"model\.language_model\..+|lm_head\..+"  # what full fine-tuning trains
MAX_GRID_SIZE = (
    256  # maximum number of rows or columns of visual tokens: bfloat16 represents no larger integers exactly
)

ScreenBatch = Tensor | Sequence[Tensor]  # one tensor where all are of one size


class QwenHF(nn.Module):
    """Shares its submodules with transformers' model, `hf_model`: a change here is a change there."""

    def __init__(self, hf_model: PreTrainedModel, mean: RGBFloats, std: RGBFloats) -> None:
        """`mean` and `std` of the colors that the vision encoder reads."""
        super().__init__()
        self.mean, self.std = mean, std
        self._hf_model = (hf_model,)  # in a tuple: no second name for each weight
        self.model, self.lm_head = cast(nn.Module, hf_model.model), cast(nn.Module, hf_model.lm_head)
        self.config: Any = hf_model.config
        vision = self.config.vision_config
        self.patch_size, self.merge_size = int(vision.patch_size), int(vision.spatial_merge_size)
        self.temporal_patch_size = int(vision.temporal_patch_size)
        self.hidden_size = int(self.config.text_config.hidden_size)
        language = self._language_model
        if hasattr(language, "_deepstack_process"):
            language._deepstack_process = _add_visual  # transformers' own reads the mask, twice a level
        enable_packed_attention(language)
        enable_vision_attention(cast(Any, self.model).visual)

    @property
    def hf_model(self) -> Any:
        return self._hf_model[0]

    def __getattr__(self, name: str) -> Any:
        """What else a library needs of a model (checkpointing, quantization, devices) comes from
        transformers' model.
        """
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_hf_model":
                raise
            return getattr(self._hf_model[0], name)

    def to_patches(self, pixels: ScreenBatch) -> tuple[Tensor, Tensor]:
        """Screens uint8 [3, h, w] -> `pixel_values` [P, D] and `image_grid_thw` [N, 3] of transformers.

        All screens are normalized at once. The grid stays on the CPU, where transformers reads it.
        """
        side = self.patch_size * self.merge_size
        grids, patches = [], []
        for screen in pixels:
            _, h, w = screen.shape
            if h % side or w % side or max(h, w) > MAX_GRID_SIZE * side:
                raise ValueError(
                    f"a screen is {h} x {w} pixels: both sides must be multiples of {side}, at most "
                    f"{MAX_GRID_SIZE * side}"
                )
            rows, columns = h // self.patch_size, w // self.patch_size
            # the patches of one visual token are adjacent; an image is repeated as the frames of a video
            patches.append(
                repeat(
                    screen,
                    "c (rows my h) (columns mx w) -> (rows columns my mx) (c t h w)",
                    my=self.merge_size,
                    mx=self.merge_size,
                    h=self.patch_size,
                    w=self.patch_size,
                    t=self.temporal_patch_size,
                )
            )
            grids.append([1, rows, columns])
        channels = torch.cat(patches).unflatten(1, (3, -1, 1))
        return normalize_pixels(channels, self.mean, self.std).flatten(1), torch.tensor(grids)

    def get_image_features(self, pixels: ScreenBatch) -> ScreenBatch:
        """uint8 [N, 3, h, w] -> [N, S, F]: the frozen part.

        Screens of several sizes: lists of [3, h, w] and [S, F].
        """
        values, grids = self.to_patches(pixels)
        with vision_grad(cast(nn.Module, self.model.visual)):
            outputs = cast(Any, self.model).get_image_features(
                values, grids, return_dict=True, **vision_inputs(self.model.visual, grids, values.device)
            )
        levels = [outputs.pooler_output, *getattr(outputs, "deepstack_features", ())]
        features = []
        for n, (_, h, w) in enumerate(grids.tolist()):  # a tensor of the CPU
            rows, columns = (torch.arange(side // self.merge_size, device=values.device) for side in (h, w))
            vectors = [level[n] for level in levels]
            features.append(torch.cat([*vectors, torch.cartesian_prod(rows, columns).to(vectors[0])], -1))
        return torch.stack(features) if isinstance(pixels, Tensor) else features

    def embed(self, input_ids: Tensor, features: ScreenBatch | None) -> Tensor:
        """[B, T] ids and [N, S, F] features -> [B, T, D]: visual tokens replace their placeholders."""
        return self._merge_embeddings(input_ids, _flatten_features(features))[0]

    def _merge_embeddings(self, input_ids: Tensor, tokens_VF: Tensor | None) -> tuple[Tensor, Tensor]:
        """Embeddings [B, T, D], and a mask of the visual tokens: bool [B, T]."""
        image_mask_BT = input_ids == self.config.image_token_id
        embeds_BTD = self.get_input_embeddings()(input_ids)
        vectors = None if tokens_VF is None else tokens_VF[:, : self.hidden_size]
        return merge_multimodal_embeddings(embeds_BTD, image_mask_BT, vectors), image_mask_BT

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixels: ScreenBatch | None = None,
        attention_mask: Tensor | None = None,
        trained_positions: Tensor | None = None,
        features: ScreenBatch | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens: Tensor | None = None,
        max_length: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V], of the last `logits_to_keep` (0: all).

        With `trained_positions` int64 [trained tokens], of these only: [trained tokens, V]. `attention_mask`
        covers the cached tokens as well. For sentences packed into one row: `position_ids` [1, T] restart in
        each, `cu_seq_lens` int32 [sentences + 1] are their bounds, the longest has `max_length` tokens.
        `inputs_embeds` [B, T, D] are of text alone, with its `position_ids` [B, T].
        """
        if inputs_embeds is not None:
            known: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": position_ids}
            known |= {"cache": cache, "use_cache": use_cache}
            hidden_BTD = self._language_model(inputs_embeds=inputs_embeds, **known).last_hidden_state
            logits = select_trained_logits(self.lm_head, hidden_BTD, None, logits_to_keep)
            return CausalLMOutputWithPast(logits=logits, cache=cache)
        assert input_ids is not None, "input_ids or inputs_embeds"
        if use_cache and cache is None and trained_positions is None:
            cache = DynamicCache()
        if features is None and pixels is not None and len(pixels):
            features = self.get_image_features(pixels)
        tokens_VF = _flatten_features(features)
        # before the text, as if there were a screen: FSDP gathers weights in the order of use
        needs_dummy = tokens_VF is None and needs_dummy_vision_pass()
        dummy = self._dummy_vision_pass(input_ids.device) if needs_dummy else 0
        embeds_BTD, image_mask_BT = self._merge_embeddings(input_ids, tokens_VF)
        embeds_BTD = embeds_BTD + dummy
        if cu_seq_lens is None:
            positions = self._position_ids(image_mask_BT, tokens_VF, attention_mask, cache)
            if trained_positions is not None and attention_mask is None:
                attention_mask = no_padding(input_ids)
            inputs: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": positions}
            inputs |= {"cache": cache, "use_cache": cache is not None}
        else:
            assert position_ids is not None, "packed sentences have positions"
            inputs = self._packed_inputs(image_mask_BT, tokens_VF, position_ids, cu_seq_lens, max_length)
        inputs |= self._deepstack_inputs(image_mask_BT, tokens_VF)
        hidden_BTD = self._language_model(inputs_embeds=embeds_BTD, **inputs).last_hidden_state
        logits = select_trained_logits(self.lm_head, hidden_BTD, trained_positions, logits_to_keep)
        return CausalLMOutputWithPast(logits=logits, cache=cache)

    @property
    def _language_model(self) -> Any:
        return cast(Any, self.model).language_model

    def _packed_inputs(
        self,
        image_mask_BT: Tensor,
        tokens_VF: Tensor | None,
        position_ids: Tensor,
        cu_seq_lens: Tensor,
        max_length: int,
    ) -> dict[str, Any]:
        """What the language model gets for sentences packed into one row: bounds, and positions [4, 1, T]."""
        inputs = packed_inputs(self._language_model, position_ids, cu_seq_lens, max_length)
        grid_V2 = _grid_coordinates(image_mask_BT, tokens_VF)
        axes = mrope_position_ids(image_mask_BT, grid_V2, text_position_ids=position_ids)
        inputs["position_ids"] = torch.cat([inputs["position_ids"][None], axes])
        return inputs

    def _deepstack_inputs(self, image_mask_BT: Tensor, tokens_VF: Tensor | None) -> dict[str, Any]:
        """What Qwen3-VL adds to the hidden states of its first layers; nothing for the others."""
        if tokens_VF is None or tokens_VF.shape[1] == self.hidden_size + 2:
            return {}
        levels = tokens_VF[:, self.hidden_size : -2].split(self.hidden_size, -1)
        return {"visual_pos_masks": image_mask_BT, "deepstack_visual_embeds": list(levels)}

    def _position_ids(
        self, image_mask_BT: Tensor, tokens_VF: Tensor | None, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """[3, B, T]. The cache carries those of its tokens, since a cached prefix can be truncated."""
        past = 0 if cache is None else cache.get_seq_length()
        before = cache.position_ids[:, :, :past] if past else None  # type: ignore[union-attr]
        grid_V2 = _grid_coordinates(image_mask_BT, tokens_VF)
        mask_BT = None if mask is None else mask[:, -image_mask_BT.shape[1] :].bool()
        positions = mrope_position_ids(image_mask_BT, grid_V2, mask_BT, before)
        if cache is not None:
            cache.position_ids = positions if before is None else torch.cat([before, positions], -1)  # type: ignore[attr-defined]
        return positions

    def _dummy_vision_pass(self, device: torch.device) -> Tensor:
        side = self.patch_size * self.merge_size
        black = torch.zeros(1, 3, side, side, dtype=torch.uint8, device=device)
        return cast(Tensor, self.get_image_features(black)).mean() * 0


def _grid_coordinates(image_mask_BT: Tensor, tokens_VF: Tensor | None) -> Tensor:
    """[V, 2]: row and column of each visual token in its screen."""
    return image_mask_BT.new_zeros(0, 2) if tokens_VF is None else tokens_VF[:, -2:].round().long()


def _add_visual(hidden_BTD: Tensor, image_mask_BT: Tensor, visual_VD: Tensor) -> Tensor:
    """Add a vector to the hidden state of each visual token, without reading the mask."""
    added_BTD = torch.zeros_like(hidden_BTD).masked_scatter(
        image_mask_BT[..., None], visual_VD.to(hidden_BTD)
    )
    return hidden_BTD + added_BTD


def lora_targets(module: QwenHF) -> str:
    """A regex of all linear layers in the language model's blocks, by this architecture's names."""
    layers = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    inside = {
        re.sub(r"^\d+\.", "", name.removeprefix(f"{LANGUAGE_LAYERS}."))
        for name in layers
        if name.startswith(LANGUAGE_LAYERS)
    }
    if not inside:
        raise ValueError(f"{type(module.hf_model).__name__} has no linear layer in {LANGUAGE_LAYERS}")
    parts = "|".join(re.escape(name) for name in sorted(inside))
    return rf"{re.escape(LANGUAGE_LAYERS)}\.\d+\.({parts})"


def _flatten_features(features: ScreenBatch | None) -> Tensor | None:
    """[N, S, F], or a list of [S, F] -> [V, F]"""
    if features is None or not len(features):
        return None
    return features.flatten(0, 1) if isinstance(features, Tensor) else torch.cat(list(features))

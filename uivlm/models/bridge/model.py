"""The bridge: Llama reads screens through a vision encoder and one linear projection (the paper's LLama+ViT).

In: token ids with `image_token_id` repeated for each screen, and the screens' pixels in that order. Out:
next-token logits. Trained: LoRA on the language model, and the projection. Frozen: vision encoder, token
embeddings.

Shapes: B rows, T tokens, N screens, P patches, S visual tokens of a screen, D width of Llama, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from uivlm.models.bridge import vision_encoder
from uivlm.models.bridge.blank_patches import find_blank, flatten_blank, with_token
from uivlm.models.multimodal import (
    merge_multimodal_embeddings,
    needs_dummy_vision_pass,
    normalize_pixels,
    select_trained_logits,
    vision_grad,
)
from uivlm.models.packed_attention import enable_packed_attention, no_padding, packed_inputs
from uivlm.recipe import VisualTokens

TINY_BASE = Path(__file__).parents[1] / "tiny"  # the base that comes with the package
LORA_TARGETS = r"language\.model\.layers\.\d+\.(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"  # LoRA
TRAINABLE_PATTERN = r"(language|projection)\..+"  # what full fine-tuning trains
PROJECTION_PATTERN = r"projection\..+"  # what `freeze_language_model` trains


class BridgeConfig(PretrainedConfig):
    """Llama's and the vision encoder's own configurations, and what joins them."""

    model_type = "uivlm_llama_vit"
    sub_configs = {"text_config": LlamaConfig, "vision_config": AutoConfig}  # noqa: RUF012

    def __init__(
        self,
        text_config: dict[str, Any] | LlamaConfig | None = None,
        vision_config: dict[str, Any] | PretrainedConfig | None = None,
        visual_tokens: VisualTokens = "grid",
        grid_size: tuple[int, int] = (8, 8),
        image_token_id: int = 0,
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.5, 0.5, 0.5),
        resample: str = "bicubic",
        **rest: Any,
    ) -> None:
        if visual_tokens not in get_args(VisualTokens):
            raise ValueError(
                f"visual_tokens: got {visual_tokens!r}; expected one of {', '.join(get_args(VisualTokens))}"
            )
        if resample not in vision_encoder.RESAMPLE.values():
            raise ValueError(
                f"resample: got {resample!r}; expected one of {', '.join(vision_encoder.RESAMPLE.values())}"
            )
        self.text_config = (
            text_config if isinstance(text_config, LlamaConfig) else LlamaConfig(**(text_config or {}))
        )
        self.vision_config = (
            vision_config
            if isinstance(vision_config, PretrainedConfig)
            else vision_encoder.config_from_json(vision_config or {})
        )
        self.visual_tokens = visual_tokens
        self.grid_size = (
            int(grid_size[0]),
            int(grid_size[1]),
        )  # rows, columns of visual tokens, for `visual_tokens="grid"`
        self.image_token_id = (
            image_token_id  # the placeholder id; text never encodes to it; it may lie beyond the vocabulary
        )
        self.mean, self.std = tuple(mean), tuple(std)  # of the encoder's colors: R, G, B in 0..1
        self.resample = resample  # how screens are resized: a mode of torch's `interpolate`
        super().__init__(**rest)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of what the ViT sees, in pixels."""
        return _pair(self.vision_config.image_size)

    @property
    def patch_size(self) -> tuple[int, int]:
        """Height and width of a patch, in pixels of the same image."""
        return _pair(self.vision_config.patch_size)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        (h, w), (ph, pw) = self.image_size, self.patch_size
        return h // ph, w // pw


def as_token_id(value: Any) -> int:
    assert isinstance(value, int), "the base names one start, one end and one padding id"
    return value


def _pair(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return int(height), int(width)


class Projection(nn.Linear):
    """Computes in its own dtype, whatever the rest has: steps of 1e-5 vanish in bfloat16."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features.to(self.weight.dtype))


class LlamaVit(PreTrainedModel):
    config_class = BridgeConfig
    config: BridgeConfig
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: BridgeConfig) -> None:
        super().__init__(config)
        self.vision = vision_encoder.from_config(config.vision_config)
        self.projection = Projection(config.vision_config.hidden_size, config.text_config.hidden_size)
        self.language = LlamaForCausalLM(config.text_config)
        enable_packed_attention(self.language)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        return self.language.get_input_embeddings()

    def get_image_features(
        self, pixels: Tensor, num_visual_tokens: Sequence[int] | None = None
    ) -> Tensor | list[Tensor]:
        """uint8 [N, 3, h, w] -> [N, S, width of the encoder]: the frozen part of reading screens.

        A list of N if screens have different numbers of visual tokens. If these are given, they are not
        counted on the device.
        """
        config, dtype = self.config, next(self.vision.parameters()).dtype
        colors = normalize_pixels(pixels, config.mean, config.std)
        if config.visual_tokens == "non_blank":
            blank = find_blank(pixels, config.patch_size)
            colors = flatten_blank(colors, blank, config.patch_size)
        with vision_grad(self.vision):
            whole_ND, patches_NPD = vision_encoder.encode_pixels(self.vision, colors.to(dtype))
        match config.visual_tokens:
            case "pooled":
                return whole_ND[:, None]
            case "all":
                return patches_NPD
            case "non_blank":
                shown_NP = with_token(blank)
                counts = list(num_visual_tokens or shown_NP.sum(1).tolist())
                # the number of patches is known, so no GPU has to be waited for
                shown = shown_NP.flatten().nonzero_static(size=sum(counts))[:, 0]
                return list(patches_NPD.flatten(0, 1).index_select(0, shown).split(counts))
        map_NDyx = rearrange(patches_NPD, "N (y x) D -> N D y x", y=config.patch_grid[0])
        pooled = functional.adaptive_avg_pool2d(map_NDyx, config.grid_size)
        return rearrange(pooled, "N D y x -> N (y x) D")

    def embed(self, input_ids: Tensor, features: Tensor | Sequence[Tensor] | None) -> Tensor:
        """[B, T] ids and N times [S, .] features -> [B, T, D]: these, projected, replace the placeholders."""
        tokens_VD = None if features is None else self.projection(torch.cat(list(features)))
        image_mask = input_ids == self.config.image_token_id
        text_ids = input_ids.masked_fill(image_mask, as_token_id(self.config.text_config.pad_token_id))
        return merge_multimodal_embeddings(self.get_input_embeddings()(text_ids), image_mask, tokens_VD)

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        trained_positions: Tensor | None = None,
        features: Tensor | Sequence[Tensor] | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens: Tensor | None = None,
        max_length: int = 0,
        num_visual_tokens: Sequence[int] | None = None,
        **rest: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V]; with `trained_positions` int64 [n], only of these: [n, V].

        `position_ids`: if padding lies between tokens. For sentences packed into one row: `position_ids`
        [1, T], the bounds `cu_seq_lens` int32 [sentences + 1] and the longest, `max_length`.
        `num_visual_tokens`: of each screen; without it, non-blank patches are counted on the device.
        `inputs_embeds` [B, T, D] are of text alone, with its `position_ids`.
        """
        if inputs_embeds is not None:
            known = {"attention_mask": attention_mask, "position_ids": position_ids}
            return cast(CausalLMOutputWithPast, self.language(inputs_embeds=inputs_embeds, **rest | known))
        assert input_ids is not None, "input_ids or inputs_embeds"
        if features is None and pixels is not None and len(pixels):
            features = self.get_image_features(pixels, num_visual_tokens)
        # before the text, as if there were a screen: FSDP gathers weights in the order of use
        dummy = (
            self._dummy_vision_pass(input_ids.device) if features is None and needs_dummy_vision_pass() else 0
        )
        embeds_BTD = self.embed(input_ids, features) + dummy
        if trained_positions is not None and attention_mask is None:
            attention_mask = no_padding(input_ids)
        inputs: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": position_ids}
        if cu_seq_lens is not None:
            assert position_ids is not None, "packed sentences have positions"
            inputs = packed_inputs(self.language, position_ids, cu_seq_lens, max_length)
        if trained_positions is None:
            return cast(CausalLMOutputWithPast, self.language(inputs_embeds=embeds_BTD, **rest | inputs))
        decoder = self.language.model(inputs_embeds=embeds_BTD, **inputs | {"use_cache": False})
        logits = select_trained_logits(self.language.lm_head, decoder.last_hidden_state, trained_positions)
        return CausalLMOutputWithPast(logits=logits)

    def _dummy_vision_pass(self, device: torch.device) -> Tensor:
        black = torch.zeros(1, 3, *self.config.image_size, dtype=torch.uint8, device=device)
        return cast(Tensor, self.projection(self.get_image_features(black)[0])).mean() * 0

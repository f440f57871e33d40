"""Qwen-VL: a language model that reads screens as runs of placeholder ids between `<img>` and `</img>`.

In: token ids and the screens' pixels, in the order of the runs over the flattened batch. Out: next-token
logits. Weights have the original's names, so that its checkpoints and adapters fit.

Shapes: B rows, T tokens, N screens, Q visual tokens of a screen, S pixels a side, D width, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import CausalLMOutputWithPast

from uivlm.models.multimodal import (
    lora_pattern,
    merge_multimodal_embeddings,
    needs_dummy_vision_pass,
    normalize_pixels,
    select_trained_logits,
    vision_grad,
)
from uivlm.models.qwen_vl.config import MEAN, STD, QwenVLConfig
from uivlm.models.qwen_vl.language_model import (
    Block,
    RMSNorm,
    RotaryPositions,
    causal_mask,
    ntk_alpha,
    rotary_positions,
)
from uivlm.models.qwen_vl.vision_encoder import CrossAttention, Resampler, VisionTower

LORA_TARGETS = r"transformer\.h\.\d+\.(attn\.(c_attn|c_proj)|mlp\.(w1|w2|c_proj))"  # LoRA
# Full fine-tuning, as in the original's scripts: the language model and the resampler. Its positions are a
# constant.
TRAINABLE_PATTERN = (
    r"transformer\.(wte|h|ln_f)\..*|lm_head\..*|transformer\.visual\.attn_pool\.(?!pos_embed$).*"
)


class Transformer(nn.Module):
    """The original's module of this name: embeddings, blocks, final norm, and the vision tower."""

    def __init__(self, config: QwenVLConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.h = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.ln_f = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.visual = VisionTower(config)

    def forward(self, x_BTD: Tensor, rotary: RotaryPositions, past: Cache | None) -> Tensor:
        for block in self.h:
            x_BTD = block(x_BTD, rotary, cache=past)
        return cast(Tensor, self.ln_f(x_BTD))


class QwenVL(PreTrainedModel):
    config_class = QwenVLConfig
    config: QwenVLConfig
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Block", "VisionBlock"]  # noqa: RUF012

    def __init__(self, config: QwenVLConfig) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        return cast(nn.Module, self.transformer.wte)

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.transformer.wte = cast(nn.Embedding, value)

    def get_output_embeddings(self) -> nn.Module:
        return cast(nn.Module, self.lm_head)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        std = self.config.initializer_range
        match module:
            case VisionTower():
                raw = [module.positional_embedding, module.proj]
            case Resampler():
                raw = [module.pos_embed, module.query]
            case CrossAttention():
                raw = [module.in_proj_weight]
                init.zeros_(module.in_proj_bias)
            case _:
                raw = []
        for value in raw:
            init.normal_(value, std=std)

    def get_image_features(self, pixels: Tensor) -> Tensor:
        """uint8 [N, 3, S, S] -> [N, Q, D]: the visual tokens of each screen."""
        with vision_grad(self.transformer.visual):
            return cast(Tensor, self.transformer.visual(normalize_pixels(pixels, MEAN, STD)))

    def embed(self, input_ids: Tensor, features: Tensor | None, has_past: bool = False) -> Tensor:
        """[B, T] ids, [N, Q, D] features -> [B, T, D]. `has_past`: a row may start inside a screen's run."""
        image_mask_BT = input_ids == self.config.image_token_id
        tokens_VD = None if features is None else features.flatten(0, -2)
        embeds_BTD = merge_multimodal_embeddings(self.transformer.wte(input_ids), image_mask_BT, tokens_VD)
        self._check_image_runs(image_mask_BT, has_past)
        return embeds_BTD

    def _check_image_runs(self, image_mask_BT: Tensor, has_past: bool) -> None:
        """ValueError unless each run of placeholders is one whole screen, on a CPU.

        On a GPU the check would wait for all work queued there; the collator has made it.
        """
        if image_mask_BT.device.type != "cpu":
            return
        edges = torch.nn.functional.pad(image_mask_BT.int(), (1, 1)).diff()
        starts, ends = (edges == 1).nonzero(), (edges == -1).nonzero()  # (row, index) pairs, row by row
        lengths = ends[:, 1] - starts[:, 1]
        if has_past:
            lengths = lengths[starts[:, 1] > 0]
        wrong = lengths[lengths != self.config.num_queries]
        if len(wrong):
            raise ValueError(
                f"a screen has {int(wrong[0])} placeholders in the text; expected "
                f"{self.config.num_queries}, its number of visual tokens"
            )

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        trained_positions: Tensor | None = None,
        features: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        position_ids: Tensor | None = None,
        cu_seq_lens: Tensor | None = None,
        max_length: int | None = None,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V], of the last `logits_to_keep` (0: all).

        With `trained_positions` int64 [trained tokens], of these only: [trained tokens, V]. Without
        `position_ids` [B, T], positions count the tokens of the padded rows. For sentences packed into one
        row: their bounds `cu_seq_lens` int32 [sentences + 1], the longest `max_length`, and `position_ids`.
        """
        if use_cache and cache is None and trained_positions is None:
            cache = DynamicCache()
        past = 0 if cache is None else cache.get_seq_length()
        if inputs_embeds is None:
            assert input_ids is not None, "input_ids or inputs_embeds"
            if features is None and pixels is not None and len(pixels):
                features = self.get_image_features(pixels)
            # before the text, as if there were a screen: FSDP gathers weights in the order of use
            dummy = (
                self._dummy_vision_pass(input_ids.device)
                if features is None and needs_dummy_vision_pass()
                else 0
            )
            inputs_embeds = self.embed(input_ids, features, has_past=past > 0) + dummy
        if cu_seq_lens is None:
            at = self._rotary_positions(inputs_embeds, attention_mask, cache, past, position_ids)
        else:
            assert position_ids is not None, "packed sentences have positions"
            bounds = {"cu_seq_lens_q": cu_seq_lens, "max_length_q": max_length}
            at = rotary_positions(self.config, position_ids, 1.0, False, None, bounds)
        hidden_BTD = self.transformer(inputs_embeds, at, cache)
        logits = select_trained_logits(self.lm_head, hidden_BTD, trained_positions, logits_to_keep)
        return CausalLMOutputWithPast(logits=logits, cache=cache)

    def _rotary_positions(
        self,
        embeds_BTD: Tensor,
        attention_mask: Tensor | None,
        cache: Cache | None,
        past: int,
        position_ids: Tensor | None,
    ) -> RotaryPositions:
        """With long context, dynamic NTK and logn attention, in evaluation only, like the original."""
        config, num_tokens = self.config, embeds_BTD.shape[1]
        mask = None
        if attention_mask is not None and attention_mask.dim() == 4:  # of static decoding
            mask = attention_mask
        elif (attention_mask is not None and not bool(attention_mask.all())) or (past and num_tokens > 1):
            mask = causal_mask(attention_mask, past, num_tokens, embeds_BTD.device)
        original = config.long_context == "original" and not self.training
        alpha = 1.0
        if original and config.use_dynamic_ntk:
            # Decoding keeps the factor of its prefill: the cached keys were rotated by it.
            fresh = ntk_alpha(past + num_tokens, config.seq_length)
            alpha = getattr(cache, "ntk_alpha", fresh) if past else fresh
            if cache is not None:
                cache.ntk_alpha = alpha  # type: ignore[attr-defined]
        if position_ids is None:
            position_ids = torch.arange(past, past + num_tokens, device=embeds_BTD.device)
        return rotary_positions(config, position_ids, alpha, original and config.use_logn_attn, mask)

    def _dummy_vision_pass(self, device: torch.device) -> Tensor:
        size = self.transformer.visual.image_size
        black = torch.zeros(1, 3, size, size, dtype=torch.uint8, device=device)
        return self.get_image_features(black).mean() * 0


def vision_lora_targets(model: QwenVL) -> str:
    """A regex of the vision tower's linear layers, of its patch convolution and of the resampler's layers.

    SeeClick's adapters (Cheng et al. 2024, finetune.py) are on the first two.
    """
    return rf"transformer\.visual\.conv1|{lora_pattern(model, 'transformer.visual')}"

"""The bridge: Llama reads screens through a vision encoder and one linear projection (the paper's LLama+ViT).

In: token ids in which each screen stands as `picture_id` repeated, and the screens' pixels in that order.
Out: next-token logits. Trained: LoRA on the language model, and the projection. Frozen: vision encoder, token embeddings.

Shapes: B rows, T tokens, N screens, P patches, S visual tokens a screen, D width of Llama, V vocabulary.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from uivlm.episode import Screen
from uivlm.models import patches, vision
from uivlm.models.attention import by_sentence, packed
from uivlm.models.interleave import must_look, splice, wanted_logits
from uivlm.recipe import VisualTokens
from uivlm.sentences.sentence import Picture

TINY = Path(__file__).parent / "tiny"  # the base that comes with the package
TARGETS = r"language\.model\.layers\.\d+\.(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"  # LoRA
FULL = r"(language|projection)\..+"  # what full fine-tuning trains


class BridgeConfig(PretrainedConfig):
    """Llama's and the vision encoder's own configurations and what joins them."""

    model_type = "uivlm_llama_vit"
    sub_configs = {"text_config": LlamaConfig, "vision_config": AutoConfig}  # noqa: RUF012

    def __init__(
        self,
        text_config: dict[str, Any] | LlamaConfig | None = None,
        vision_config: dict[str, Any] | PretrainedConfig | None = None,
        visual_tokens: VisualTokens = "grid",
        grid: tuple[int, int] = (8, 8),
        picture_id: int = 0,
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.5, 0.5, 0.5),
        **rest: Any,
    ) -> None:
        if visual_tokens not in get_args(VisualTokens):
            raise ValueError(
                f"visual_tokens is {visual_tokens!r}: it must be one of {', '.join(get_args(VisualTokens))}"
            )
        self.text_config = (
            text_config if isinstance(text_config, LlamaConfig) else LlamaConfig(**(text_config or {}))
        )
        self.vision_config = (
            vision_config
            if isinstance(vision_config, PretrainedConfig)
            else vision.config_of(vision_config or {})
        )
        self.visual_tokens = visual_tokens
        self.grid = (int(grid[0]), int(grid[1]))  # rows, columns of visual tokens, for `visual_tokens="grid"`
        self.picture_id = (
            picture_id  # the placeholder id; text never encodes to it; it may lie beyond the vocabulary
        )
        self.mean, self.std = tuple(mean), tuple(std)  # of the encoder's colours: R, G, B in 0..1
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
    def patches(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        (h, w), (ph, pw) = self.image_size, self.patch_size
        return h // ph, w // pw


def _id(value: Any) -> int:
    assert isinstance(value, int), "the base names one start, one end and one padding id"
    return value


def _pair(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return int(height), int(width)


class Projection(nn.Linear):
    """In its own type, whatever the rest has: steps of 1e-5 vanish in bfloat16."""

    def forward(self, seen: Tensor) -> Tensor:
        return super().forward(seen.to(self.weight.dtype))


class LlamaVit(PreTrainedModel):
    config_class = BridgeConfig
    config: BridgeConfig
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: BridgeConfig) -> None:
        super().__init__(config)
        self.vision = vision.made(config.vision_config)
        self.projection = Projection(config.vision_config.hidden_size, config.text_config.hidden_size)
        self.language = LlamaForCausalLM(config.text_config)
        by_sentence(self.language)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        return self.language.get_input_embeddings()

    def look(self, pixels: Tensor) -> Tensor | list[Tensor]:
        """[N, 3, h, w] -> [N, S, width of the encoder]: the frozen part of seeing a screen. A list of N, where screens
        have different numbers of visual tokens."""
        whole_ND, patches_NPD = vision.states(self.vision, pixels.to(next(self.vision.parameters()).dtype))
        match self.config.visual_tokens:
            case "pooled":
                return whole_ND[:, None]
            case "patches":
                return patches_NPD
            case "busy":
                shown_NP = patches.busy(pixels, self.config.patch_size)
                return [one[shown] for one, shown in zip(patches_NPD, shown_NP, strict=True)]
        map_NDhw = patches_NPD.transpose(1, 2).unflatten(2, self.config.patches)
        return functional.adaptive_avg_pool2d(map_NDhw, self.config.grid).flatten(2).transpose(1, 2)

    def embed(self, input_ids: Tensor, features: Tensor | Sequence[Tensor] | None) -> Tensor:
        """[B, T] ids and N times [S, .] features -> [B, T, D]: the projected screens stand where their placeholders stood."""
        tokens_VD = None if features is None else self.projection(torch.cat(list(features)))
        places = input_ids == self.config.picture_id
        words = input_ids.masked_fill(places, _id(self.config.text_config.pad_token_id))
        return splice(self.get_input_embeddings()(words), places, tokens_VD)

    def forward(
        self,
        input_ids: Tensor,
        pixels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        features: Tensor | Sequence[Tensor] | None = None,
        lengths: Tensor | None = None,
        places: Tensor | None = None,
        **rest: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V]; with `labels`, only those that predict a trained token: [trained tokens, V]. `lengths`: of the
        sentences that lie in one row, B = 1. `places`: where tokens stand, if there is padding between them."""
        if features is None and pixels is not None and len(pixels):
            features = self.look(pixels)
        # before the words, as if there were a screen: ZeRO-3 gathers weights in the order of use
        nothing = self._look_at_nothing(input_ids.device) if features is None and must_look(self) else 0
        embeds_BTD = self.embed(input_ids, features) + nothing
        if labels is not None and attention_mask is not None and attention_mask[:, 0].all():
            attention_mask = None  # padding stands on the right, where a causal model does not look
        told: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": places}
        if lengths is not None:
            told = packed(self.language, lengths)
        if labels is None:
            return cast(CausalLMOutputWithPast, self.language(inputs_embeds=embeds_BTD, **rest | told))
        decoder = self.language.model(inputs_embeds=embeds_BTD, **told | {"use_cache": False})
        logits = wanted_logits(self.language.lm_head, decoder.last_hidden_state, labels)
        return CausalLMOutputWithPast(logits=logits)

    def _look_at_nothing(self, device: torch.device) -> Tensor:
        black = torch.zeros(1, 3, *self.config.image_size, device=device)
        return cast(Tensor, self.projection(self.look(black)[0])).mean() * 0


class Reader:
    """How the bridge reads: its Encoder. Control ids lie above the tokenizer's own, out of the reach of text."""

    def __init__(self, tokenizer: Tokenizer, config: BridgeConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        tokenizer.encode_special_tokens = True  # "</s>" in a goal is five characters, not the end token
        text = config.text_config
        self.start: tuple[int, ...] = (_id(text.bos_token_id),)
        self.end = _id(text.eos_token_id)
        self.pad = _id(text.pad_token_id)
        self.placeholder = config.picture_id
        self.context = int(text.max_position_embeddings)  # tokens

    def words(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def speaks(self, token: int) -> bool:
        """Is it a token of text? Control ids have no text: `text` leaves them out."""
        control = (*self.start, self.end, self.pad, self.placeholder)
        return token not in control and self.tokenizer.id_to_token(token) is not None

    def picture(self, seen: Picture) -> list[int]:
        config = self.config
        match config.visual_tokens:
            case "pooled":
                tokens = 1
            case "grid":
                tokens = config.grid[0] * config.grid[1]
            case "patches":
                tokens = config.patches[0] * config.patches[1]
            case "busy":
                tokens = _shown(seen.screen, *self._how())
        return [config.picture_id] * tokens

    def pixels(self, seen: Picture) -> NDArray[np.float32]:
        """Resized to the encoder's input (aspect ratio not kept, fractions survive), its colours scaled."""
        return _seen(seen.screen, *self._how())[0]

    def _how(self) -> "How":
        config = self.config
        quiet = config.patch_size if config.visual_tokens == "busy" else None
        return config.image_size, config.mean, config.std, quiet


# size of the encoder's input, mean and spread of its colours, and the patch that is counted if it shows something
How = tuple[tuple[int, int], tuple[float, ...], tuple[float, ...], tuple[int, int] | None]
# a screen stays in the history for many steps
_SHOWN: WeakKeyDictionary[Screen, dict[How, int]] = WeakKeyDictionary()


def _shown(screen: Screen, *how: *How) -> int:
    """How many patches show something."""
    known = _SHOWN.setdefault(screen, {})
    if how not in known:
        known[how] = _seen(screen, *how)[1]
    return known[how]


@lru_cache(maxsize=16)  # screens: how many tokens a screen has is asked for before its pixels
def _seen(
    screen: Screen,
    size: tuple[int, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    patch: tuple[int, int] | None,
) -> tuple[NDArray[np.float32], int]:
    """Pixels [3, h, w]; with `patch`, its height and width, patches that show nothing are of one colour, and the others
    are counted."""
    # Pillow's bicubic, but for one level of a few values, in a quarter of its time; Pillow 13 changed its own
    shown = torch.tensor(screen.pixels).permute(2, 0, 1)[None]
    sized = functional.interpolate(shown, size, mode="bicubic", antialias=True)[0]
    colours = sized.contiguous().numpy().astype(np.float32) / np.float32(255)
    colours, busy = patches.quieted(colours, patch) if patch else (colours, 0)
    middle, spread = (np.array(three, np.float32)[:, None, None] for three in (mean, std))
    return ((colours - middle) / spread).astype(np.float32, copy=False), busy

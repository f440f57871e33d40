"""A Qwen2-VL, Qwen2.5-VL or Qwen3-VL of transformers, as a model of the project.

In: token ids with runs of placeholders, and the screens' pixels in the order of the runs. Out: next-token logits.
The weights keep the names that they have in transformers' class, and so do adapters.

A visual token is more than one vector here: beside what stands in the text, Qwen3-VL adds a vector of it to the states
after each of its first layers (deepstack), and positions need its row and column. All of it is the token's features.

Shapes: B rows, T tokens, N screens, S visual tokens a screen, V visual tokens of all screens, D width,
F = (1 + deepstack layers) D + 2.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from uivlm.models.attention import by_sentence, packed
from uivlm.models.interleave import must_look, splice, wanted_logits
from uivlm.models.qwen_hf.positions import positions

LANGUAGE = "model.language_model.layers"  # the part that carries adapters
FULL = r"model\.language_model\..+|lm_head\..+"  # what full fine-tuning trains
SIDE = 256  # most rows or columns of visual tokens: bfloat16 counts no further

Screens = Tensor | Sequence[Tensor]  # one tensor where all are of one size


class QwenHF(nn.Module):
    """`whole`: transformers' model. Its parts are the parts of this module, so whatever changes here changes there."""

    def __init__(self, whole: PreTrainedModel) -> None:
        super().__init__()
        self._whole = (whole,)  # in a tuple: no second name for each weight
        self.model, self.lm_head = cast(nn.Module, whole.model), cast(nn.Module, whole.lm_head)
        self.config: Any = whole.config
        vision = self.config.vision_config
        self.patch, self.merge = int(vision.patch_size), int(vision.spatial_merge_size)
        self.frames = int(vision.temporal_patch_size)
        self.width = int(self.config.text_config.hidden_size)
        by_sentence(cast(Any, self.model).language_model)

    @property
    def whole(self) -> Any:
        return self._whole[0]

    def __getattr__(self, name: str) -> Any:
        """Whatever else a library asks of a model, transformers' own answers: checkpointing, quantisation, devices."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_whole":
                raise
            return getattr(self._whole[0], name)

    def patches(self, pixels: Screens) -> tuple[Tensor, Tensor]:
        """Screens [3, h, w] -> `pixel_values` and `image_grid_thw` [N, 3] as transformers' class takes them."""
        side = self.patch * self.merge
        grids, cut = [], []
        for screen in pixels:
            channels, h, w = screen.shape
            if h % side or w % side or max(h, w) > SIDE * side:
                raise ValueError(
                    f"a screen is {h} x {w} pixels: both sides must be multiples of {side}, at most {SIDE * side}"
                )
            rows, columns = h // self.patch, w // self.patch
            blocks = screen.reshape(
                channels,
                rows // self.merge,
                self.merge,
                self.patch,
                columns // self.merge,
                self.merge,
                self.patch,
            ).permute(1, 4, 2, 5, 0, 3, 6)  # the patches of one visual token lie together
            blocks = blocks.unsqueeze(5).expand(*blocks.shape[:5], self.frames, *blocks.shape[5:])
            cut.append(blocks.reshape(rows * columns, -1))
            grids.append([1, rows, columns])
        return torch.cat(cut), torch.tensor(grids, device=cut[0].device)

    def look(self, pixels: Screens) -> Screens:
        """[N, 3, h, w] -> [N, S, F], the frozen part of seeing; screens of other sizes as lists of [3, h, w], [S, F]."""
        values, grids = self.patches(pixels)
        seen = cast(Any, self.model).get_image_features(values, grids, return_dict=True)
        levels = [seen.pooler_output, *getattr(seen, "deepstack_features", ())]
        features = []
        for n, (_, h, w) in enumerate(grids.tolist()):
            rows, columns = (torch.arange(side // self.merge, device=values.device) for side in (h, w))
            vectors = [level[n] for level in levels]
            features.append(torch.cat([*vectors, torch.cartesian_prod(rows, columns).to(vectors[0])], -1))
        return torch.stack(features) if isinstance(pixels, Tensor) else features

    def embed(self, input_ids: Tensor, features: Screens | None) -> Tensor:
        """[B, T] ids and [N, S, F] features -> [B, T, D]: the visual tokens stand where their placeholders stood."""
        return self._splice(input_ids, _flat(features))[0]

    def _splice(self, input_ids: Tensor, tokens_VF: Tensor | None) -> tuple[Tensor, Tensor]:
        """Embeddings [B, T, D], and where the visual tokens are: bool [B, T]."""
        places_BT = input_ids == self.config.image_token_id
        embeds_BTD = self.get_input_embeddings()(input_ids)
        vectors = None if tokens_VF is None else tokens_VF[:, : self.width]
        return splice(embeds_BTD, places_BT, vectors), places_BT

    def forward(
        self,
        input_ids: Tensor,
        pixels: Screens | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        features: Screens | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        lengths: Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V], of the last `logits_to_keep` (0: all); with `labels`, of those that predict a trained
        token: [trained tokens, V]. `attention_mask` covers what the cache holds as well. `lengths`: of the sentences that
        lie in one row, B = 1.
        """
        if use_cache and past_key_values is None and labels is None:
            past_key_values = DynamicCache()
        if features is None and pixels is not None and len(pixels):
            features = self.look(pixels)
        tokens_VF = _flat(features)
        # before the words, as if there were a screen: ZeRO-3 gathers weights in the order of use
        nothing = self._look_at_nothing(input_ids.device) if tokens_VF is None and must_look(self) else 0
        embeds_BTD, places_BT = self._splice(input_ids, tokens_VF)
        embeds_BTD = embeds_BTD + nothing
        deepstack = {}
        if tokens_VF is not None and tokens_VF.shape[1] > self.width + 2:
            levels = tokens_VF[:, self.width : -2].split(self.width, -1)
            deepstack = {"visual_pos_masks": places_BT, "deepstack_visual_embeds": list(levels)}
        language = cast(Any, self.model).language_model
        if lengths is None:
            places = self._positions(places_BT, tokens_VF, attention_mask, past_key_values)
            told: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": places}
            told |= {"past_key_values": past_key_values, "use_cache": past_key_values is not None}
        else:
            told = packed(language, lengths)
            axes = _packed_positions(places_BT, _spots(places_BT, tokens_VF), lengths)
            told["position_ids"] = torch.cat([told["position_ids"][None], axes])  # [4, 1, T]
        hidden_BTD = language(inputs_embeds=embeds_BTD, **told, **deepstack).last_hidden_state
        logits = wanted_logits(self.lm_head, hidden_BTD, labels, logits_to_keep)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)

    def _positions(
        self, places_BT: Tensor, tokens_VF: Tensor | None, mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """[3, B, T]. The cache carries those of its tokens, since a kept beginning may be cut anywhere."""
        past = 0 if cache is None else cache.get_seq_length()
        before = cache.places[:, :, :past] if past else None  # type: ignore[union-attr]
        spots = _spots(places_BT, tokens_VF)
        now = torch.ones_like(places_BT) if mask is None else mask[:, -places_BT.shape[1] :].bool()
        found = positions(places_BT, spots, now, before)
        if cache is not None:
            cache.places = found if before is None else torch.cat([before, found], -1)  # type: ignore[attr-defined]
        return found

    def _look_at_nothing(self, device: torch.device) -> Tensor:
        side = self.patch * self.merge
        black = torch.zeros(1, 3, side, side, device=device)
        return cast(Tensor, self.look(black)).mean() * 0

    def documented(self, input_ids: Tensor, pixels: Screens | None) -> dict[str, Tensor]:
        """What transformers' class wants beside the ids. Without `mm_token_type_ids` it gives screens the positions
        of text, some versions silently.
        """
        if pixels is None or not len(pixels):
            return {}
        values, grids = self.patches(pixels)
        kinds = (input_ids == self.config.image_token_id).int()  # 0 text, 1 image
        return {"pixel_values": values, "image_grid_thw": grids, "mm_token_type_ids": kinds}

    def generate(self, input_ids: Tensor, pixels: Screens | None = None, **rest: Any) -> Tensor:
        """transformers' `generate` on its own class; rows of a batch are padded on the left."""
        given = self.documented(input_ids, pixels)
        return cast(Tensor, self.whole.generate(input_ids=input_ids, **given, **rest))


def _spots(places_BT: Tensor, tokens_VF: Tensor | None) -> Tensor:
    """[V, 2]: row and column of each visual token within its screen."""
    return places_BT.new_zeros(0, 2) if tokens_VF is None else tokens_VF[:, -2:].round().long()


def _packed_positions(places_1T: Tensor, spots_V2: Tensor, lengths: Tensor) -> Tensor:
    """[3, 1, T], sentence by sentence."""
    found, first = [], 0
    for part in places_1T.split(lengths.tolist(), 1):
        count = int(part.sum())
        found.append(positions(part, spots_V2[first : first + count], torch.ones_like(part), None))
        first += count
    return torch.cat(found, -1)


def lora_targets(module: QwenHF) -> str:
    """A regex of every linear layer of the language tower, as this architecture names them."""
    layers = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    inside = {
        re.sub(r"^\d+\.", "", name.removeprefix(f"{LANGUAGE}."))
        for name in layers
        if name.startswith(LANGUAGE)
    }
    if not inside:
        raise ValueError(f"{type(module.whole).__name__} has no linear layer in {LANGUAGE}")
    parts = "|".join(re.escape(name) for name in sorted(inside))
    return rf"{re.escape(LANGUAGE)}\.\d+\.({parts})"


def _flat(features: Screens | None) -> Tensor | None:
    """[N, S, F], or a list of [S, F] -> [V, F]"""
    if features is None or not len(features):
        return None
    return features.flatten(0, 1) if isinstance(features, Tensor) else torch.cat(list(features))

"""Qwen-VL's `config.json`. Settings that this code does not compute are errors; none is ignored.

In: the JSON of an original folder, or of one that `files.save` wrote. Out: a QwenVLConfig, and back.
"""

from inspect import signature
from math import isqrt
from typing import Any, Literal, get_args

from transformers import PretrainedConfig

ARCHITECTURE = "QWenLMHeadModel"
LongContext = Literal["none", "original"]
# Settings of the original that have the same value in all checkpoints of Qwen-VL.
FIXED_VALUES = {
    "no_bias": True,
    "rotary_pct": 1.0,
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
    "attn_dropout_prob": 0.0,
    "emb_dropout_prob": 0.0,
}
VISUAL_FIELDS = (
    "image_size",
    "patch_size",
    "width",
    "layers",
    "heads",
    "mlp_ratio",
    "output_dim",
    "image_start_id",
)
MEAN = (0.48145466, 0.4578275, 0.40821073)  # of colors: R, G, B in 0..1, as in CLIP
STD = (0.26862954, 0.26130258, 0.27577711)
NUM_POSITIONS = 256  # rows of the vision encoder's table of positions, for any number of patches
DEFAULT_NUM_QUERIES = 256  # visual tokens of a screen if the configuration has no number


class QwenVLConfig(PretrainedConfig):
    """The original's field names; the defaults are those of Qwen-VL and Qwen-VL-Chat."""

    model_type = "uivlm_qwen_vl"

    def __init__(
        self,
        vocab_size: int = 151936,
        hidden_size: int = 4096,
        num_hidden_layers: int = 32,
        num_attention_heads: int = 32,
        kv_channels: int = 128,  # width of a head
        intermediate_size: int = 22016,  # twice the width of the MLP
        layer_norm_epsilon: float = 1e-6,
        rotary_emb_base: float = 10000,
        seq_length: int = 2048,  # tokens of a training sequence
        max_position_embeddings: int = 8192,
        use_dynamic_ntk: bool = True,  # both only with long_context "original"
        use_logn_attn: bool = True,
        initializer_range: float = 0.02,
        visual: dict[str, Any] | None = None,
        long_context: LongContext = "none",
        **rest: Any,
    ) -> None:
        if long_context not in get_args(LongContext):
            raise ValueError(f"long_context is {long_context!r}: it must be none or original")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.kv_channels = kv_channels
        self.intermediate_size = intermediate_size
        self.layer_norm_epsilon = layer_norm_epsilon
        self.rotary_emb_base = rotary_emb_base
        self.seq_length = seq_length
        self.max_position_embeddings = max_position_embeddings
        self.use_dynamic_ntk = use_dynamic_ntk
        self.use_logn_attn = use_logn_attn
        self.initializer_range = initializer_range
        self.visual = visual if visual is not None else dict(DEFAULT_VISUAL)
        self.long_context = long_context
        super().__init__(**{"tie_word_embeddings": False, **rest})

    @property
    def num_queries(self) -> int:
        """Visual tokens of a screen."""
        return int(self.visual.get("n_queries", DEFAULT_NUM_QUERIES))

    @property
    def image_start_id(self) -> int:
        """Id of `<img>`; `</img>` and `<imgpad>`, the placeholder, are the next two."""
        return int(self.visual["image_start_id"])

    @property
    def image_token_id(self) -> int:
        return self.image_start_id + 2


DEFAULT_VISUAL = {
    "image_size": 448,  # pixels a side
    "patch_size": 14,
    "width": 1664,
    "layers": 48,
    "heads": 16,
    "mlp_ratio": 4.9231,
    "output_dim": 4096,
    "image_start_id": 151857,
}
FIELDS = [name for name in signature(QwenVLConfig.__init__).parameters if name not in ("self", "rest")]


def from_original(payload: dict[str, Any]) -> QwenVLConfig:
    """The configuration that a `config.json` describes. ValueError if it is another model's."""
    named = (payload.get("architectures") or ["none"])[0]
    if named != ARCHITECTURE or not isinstance(payload.get("visual"), dict):
        raise ValueError(f"architectures: got {named}; expected {ARCHITECTURE} with a visual part")
    if "quantization_config" in payload:
        raise ValueError("its weights are quantized (GPTQ), which is not supported: use the bfloat16 weights")
    for name, value in FIXED_VALUES.items():
        if payload.get(name, value) != value:
            raise ValueError(f"{name}: got {payload[name]}; expected {value}")
    if missing := [name for name in VISUAL_FIELDS if name not in payload["visual"]]:
        raise ValueError(f"its visual part has no {missing[0]}")
    config = QwenVLConfig(**{name: payload[name] for name in FIELDS if name in payload})
    _check(config)
    return config


def to_original(config: QwenVLConfig) -> dict[str, Any]:
    fields = {name: getattr(config, name) for name in FIELDS}
    return {"architectures": [ARCHITECTURE], "model_type": "qwen", **FIXED_VALUES, **fields}


def _check(config: QwenVLConfig) -> None:
    visual = config.visual
    if visual["output_dim"] != config.hidden_size:
        raise ValueError(
            f"visual.output_dim is {visual['output_dim']}, hidden_size {config.hidden_size}: they must be "
            "equal"
        )
    if visual["image_size"] % visual["patch_size"]:
        raise ValueError(
            f"visual.image_size {visual['image_size']} is not a multiple of patch_size {visual['patch_size']}"
        )
    if visual["width"] % visual["heads"]:
        raise ValueError(f"visual.width {visual['width']} is not a multiple of its {visual['heads']} heads")
    if isqrt(config.num_queries) ** 2 != config.num_queries:
        raise ValueError(f"visual.n_queries is {config.num_queries}: it must be a square")
    if config.image_token_id >= config.vocab_size:
        raise ValueError(
            f"visual.image_start_id is {config.image_start_id}: with the two ids after it, it must lie "
            f"within the {config.vocab_size} ids of the vocabulary"
        )

"""Settings of the models: one class for each, told apart by `type`."""

from dataclasses import dataclass
from typing import Literal

from uivlm.recipe.checks import at_least, require

VisualTokens = Literal["pooled", "grid", "all", "non_blank"]  # of a bridge
Quantization = Literal["nf4", "int8", None]  # of the frozen language model (bitsandbytes); None: as published


@dataclass(frozen=True, slots=True)
class LoraArgs:
    """Low-rank adapters on the language model's linear layers (Hu et al. 2021). Names are PEFT's."""

    r: int = 64
    alpha: int = 16
    dropout: float = 0.05
    rslora: bool = False  # scale by alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
    vision: bool = False  # also on the linear layers of the vision encoder and of its merger or resampler

    def __post_init__(self) -> None:
        at_least("model.lora.r", self.r, 1)
        at_least("model.lora.alpha", self.alpha, 1)
        require(0 <= self.dropout < 1, f"model.lora.dropout is {self.dropout}: it must be in [0, 1)")


@dataclass(frozen=True, slots=True)
class LlamaVitArgs:
    """The bridge of `models/bridge/model.py`: Llama, ViT and one linear projection."""

    base_model: str  # folder of a bridge base, or "tiny": the base that comes with this package
    lora: LoraArgs | None = LoraArgs()  # None: train language model and projection in full
    freeze_language_model: bool = False  # with lora null: train the projection alone, as a first stage
    projector: str | None = None  # checkpoint whose projection is the start; None: that of `base_model`
    type: Literal["llama_vit"] = "llama_vit"

    def __post_init__(self) -> None:
        _check_frozen(self.freeze_language_model, self.lora)


@dataclass(frozen=True, slots=True)
class LlamaPartsArgs:
    """The same bridge from a published Llama and vision encoder. The projection is new, and trained."""

    base_model: str  # the Llama: folder in the hub's format, or an id on the model hub
    vision_encoder: str  # a ViT, SigLIP, CLIP or DINOv2: folder or id
    lora: LoraArgs | None = LoraArgs()  # None: as in LlamaVitArgs
    quantize: Quantization = None
    visual_tokens: VisualTokens = "grid"  # one mean; means of cells; every patch; patches that show something
    grid_size: int = 8  # rows and columns of visual tokens
    freeze_language_model: bool = False  # as in LlamaVitArgs
    projector: str | None = None  # as in LlamaVitArgs; None: a new projection
    type: Literal["llama_parts"] = "llama_parts"

    def __post_init__(self) -> None:
        at_least("model.grid_size", self.grid_size, 1)
        _check_frozen(self.freeze_language_model, self.lora)
        if not self.freeze_language_model:
            _check_quantize(self.quantize, self.lora)


@dataclass(frozen=True, slots=True)
class QwenVLArgs:
    """The original Qwen-VL of `models/qwen_vl`. LoRA by default; Q-LoRA with `quantize`."""

    base_model: str  # folder in the original's format, or an id on the model hub
    lora: LoraArgs | None = LoraArgs()  # None: train language model and resampler in full
    quantize: Quantization = None
    dynamic_ntk: bool = False  # the original's scaling above 2,048 tokens; training and acting then differ
    max_length: int | None = None  # tokens of a sentence; None: what the base was trained with
    type: Literal["qwen_vl"] = "qwen_vl"

    def __post_init__(self) -> None:
        at_least("model.max_length", self.max_length, 1)
        _check_quantize(self.quantize, self.lora)


@dataclass(frozen=True, slots=True)
class QwenHFArgs:
    """Qwen2-VL, Qwen2.5-VL or Qwen3-VL by transformers' own classes. LoRA by default; Q-LoRA with `quantize`.

    Screens keep their aspect ratio. A visual token is 28 x 28 pixels (Qwen3-VL: 32 x 32).
    """

    base_model: str  # folder in the hub's format, or an id on the model hub
    lora: LoraArgs | None = LoraArgs()  # None: train the language model in full
    quantize: Quantization = None
    max_visual_tokens: int = 512  # of the newest screen
    max_visual_tokens_by_age: tuple[int, ...] = ()  # age 1, 2, ...; the last holds for all older screens
    min_visual_tokens: int = 4  # smaller screens are enlarged
    type: Literal["qwen_hf"] = "qwen_hf"

    def __post_init__(self) -> None:
        _check_quantize(self.quantize, self.lora)
        low, high, ages = self.min_visual_tokens, self.max_visual_tokens, self.max_visual_tokens_by_age
        at_least("model.min_visual_tokens", low, 1)
        at_least("model.max_visual_tokens", high, low)
        limits = f"{low} (model.min_visual_tokens) to {high} (model.max_visual_tokens)"
        wrong = [tokens for tokens in ages if not low <= tokens <= high]
        require(not wrong, f"model.max_visual_tokens_by_age has {wrong}: it must be {limits}")


def _check_frozen(freeze_language_model: bool, lora: LoraArgs | None) -> None:
    require(
        lora is None or not freeze_language_model,
        "model.freeze_language_model trains the projection alone, but model.lora adapts the language "
        "model: set model.lora to null, or model.freeze_language_model to false",
    )


def _check_quantize(quantize: str | None, lora: LoraArgs | None) -> None:
    message = (
        f"model.quantize is {quantize!r}, but quantized weights cannot be trained: set it to null, or keep "
    )
    require(lora is not None or quantize is None, f"{message}model.lora")


ModelArgs = LlamaVitArgs | LlamaPartsArgs | QwenVLArgs | QwenHFArgs

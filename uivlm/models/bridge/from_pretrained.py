"""A bridge made of two published models, a Llama and a vision encoder. The projection between them is new.

In: folders or hub ids. Out: the bridge and the Llama's tokenizer, as `files.load_base` returns them.
"""

import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from uivlm.models import pretrained
from uivlm.models.bridge import vision_encoder as encoders
from uivlm.models.bridge.model import BridgeConfig, LlamaVit, Projection
from uivlm.models.device import local_device
from uivlm.models.packed_attention import enable_packed_attention
from uivlm.models.pretrained import created_as, first_line, load_pretrained, read_model_config
from uivlm.models.sharding import from_first_process
from uivlm.models.stored_weights import StoredWeight, StoredWeights, open_pretrained
from uivlm.recipe import VisualTokens

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
DOWNLOAD_FILES, WEIGHTS = [CONFIG, "generation_config.json", TOKENIZER], "*.safetensors*"
UNKNOWN_TOKEN = "<unk>"
CONTROL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def from_pretrained_parts(
    language: str | Path,
    vision_encoder: str | Path,
    visual_tokens: VisualTokens,
    grid_size: int,
    dtype: torch.dtype,
    seed: int,
    **rest: Any,
) -> tuple[LlamaVit, Tokenizer]:
    """The bridge in evaluation mode.

    `grid_size`: rows and columns of visual tokens. `rest` goes to Llama's `from_pretrained`.
    """
    module, tokenizer = from_config_parts(language, vision_encoder, visual_tokens, grid_size, dtype)
    root = pretrained.find_or_download(language, "Llama", [*DOWNLOAD_FILES, WEIGHTS])
    llama = load_pretrained(LlamaForCausalLM, root, dtype, **rest)
    text = module.config.text_config
    llama.config.update({name: getattr(text, name) for name in CONTROL_TOKENS})
    device = next(llama.parameters()).device
    enable_packed_attention(llama)
    module.language = llama
    module.vision = encoders.load(vision_encoder, module.config.vision_config, dtype).to(device)
    module.projection = _new_projection(module, dtype, seed)
    nn.Module.eval(module)
    return module, tokenizer


def open_parts(module: LlamaVit, language: str | Path, vision_encoder: str | Path) -> dict[str, StoredWeight]:
    """The weights of the bridge that `from_config_parts` makes, in their files: all but the projection's."""
    root = pretrained.find_or_download(language, "Llama", [*DOWNLOAD_FILES, WEIGHTS])
    parts = {"language": open_pretrained(module.language, root)}
    parts["vision"] = encoders.open_weights(vision_encoder, module.vision)
    return {f"{part}.{name}": weight for part, own in parts.items() for name, weight in own.items()}


def new_projection_alone(
    module: LlamaVit, weights: StoredWeights, vision_encoder: str | Path, dtype: torch.dtype, seed: int
) -> dict[str, Tensor]:
    """The new projection that `from_pretrained_parts` makes, for a bridge on "meta". Collective.

    Its size depends on the features of the vision encoder, which process 0 reads whole for the moment.
    """

    def measure() -> float:
        config, device = module.config, local_device()
        with created_as(dtype, "meta"):
            whole = LlamaVit(config)
        embeddings = weights["language.model.embed_tokens.weight"].read()
        whole.get_input_embeddings().weight = nn.Parameter(embeddings.to(device, dtype))
        whole.vision = encoders.load(vision_encoder, config.vision_config, dtype).to(device)
        return _projection_std(whole)

    return dict(_random_projection(module, from_first_process(measure), seed).to(dtype).state_dict())


def from_config_parts(
    language: str | Path,
    vision_encoder: str | Path,
    visual_tokens: VisualTokens,
    grid_size: int,
    dtype: torch.dtype,
    device: str = "meta",
) -> tuple[LlamaVit, Tokenizer]:
    """The bridge made from the configurations alone: shapes on the meta device, random weights elsewhere.

    The placeholder is the id after the last of the vocabulary: it needs no embedding, and text cannot contain
    it.
    """
    root = pretrained.find_or_download(language, "Llama", DOWNLOAD_FILES)
    tokenizer = _tokenizer(root)
    read_model_config(root / CONFIG, "Llama")
    try:
        text = LlamaConfig.from_pretrained(root, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises nearly anything on a bad file
        raise ValueError(f"{root / CONFIG} does not describe a Llama ({first_line(error)})") from error
    text.update(dict(zip(CONTROL_TOKENS, _control_ids(root, text, tokenizer), strict=True)))
    vision_config, mean, std, resample = encoders.read_published_config(vision_encoder)
    with created_as(dtype, device):
        module = LlamaVit(
            BridgeConfig(
                text,
                vision_config,
                visual_tokens,
                (grid_size, grid_size),
                text.vocab_size,
                mean,
                std,
                resample,
            )
        )
    nn.Module.eval(module)
    return module, tokenizer


def _tokenizer(root: Path) -> Tokenizer:
    if not (root / TOKENIZER).is_file():
        raise ValueError(
            f"the folder {root} does not contain a Llama with a fast tokenizer: it has no {TOKENIZER}"
        )
    try:
        return Tokenizer.from_file(str(root / TOKENIZER))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ValueError(f"{root / TOKENIZER} cannot be read as a tokenizer ({first_line(error)})") from error


def _control_ids(root: Path, text: LlamaConfig, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Ids that start a sentence, end an action and pad rows.

    Llama-2 has no padding token. Its <unk>, which no text encodes to, is used; the end token would do too,
    since masks come from lengths.
    """
    ids = []
    for name in ("bos_token_id", "eos_token_id"):
        value = getattr(text, name)
        if not isinstance(value, int) or not 0 <= value < text.vocab_size:
            raise ValueError(
                f"{root / CONFIG}: {name}: got {value}; expected an id below {text.vocab_size}, the "
                "vocabulary size"
            )
        ids.append(value)
    pad = text.pad_token_id
    if not isinstance(pad, int) or not 0 <= pad < text.vocab_size:
        pad = tokenizer.token_to_id(UNKNOWN_TOKEN)
    if tokenizer.get_vocab_size() > text.vocab_size:
        raise ValueError(
            f"{root / TOKENIZER} has {tokenizer.get_vocab_size()} ids, the model only {text.vocab_size} "
            "embeddings"
        )
    return ids[0], ids[1], ids[1] if pad is None else pad


@torch.inference_mode()
def _projection_std(module: LlamaVit) -> float:
    """Standard deviation of the projection's weights that makes a gray screen's output as large as a token's
    embedding.
    """
    weight = module.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    gray = torch.full((1, 3, *module.config.image_size), 128, dtype=torch.uint8, device=weight.device)
    features = torch.cat(list(module.get_image_features(gray))).float()
    return float(weight.float().square().mean().sqrt() / features.square().sum(-1).mean().sqrt())


def _new_projection(module: LlamaVit, dtype: torch.dtype, seed: int) -> Projection:
    """A new projection. With outputs of another size the loss would jump at first."""
    projection = _random_projection(module, _projection_std(module), seed)
    return projection.to(module.get_input_embeddings().weight.device, dtype)  # type: ignore[arg-type]


def _random_projection(module: LlamaVit, std: float, seed: int) -> Projection:
    if not math.isfinite(std):
        raise ValueError(
            "the vision encoder's features of a gray screen are not finite: its weights are damaged"
        )
    projection = Projection(module.projection.in_features, module.projection.out_features)
    with torch.no_grad():
        projection.weight.normal_(0.0, std, generator=torch.Generator().manual_seed(seed))
        projection.bias.zero_()
    return projection

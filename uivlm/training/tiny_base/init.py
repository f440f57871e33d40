"""The tiny base before its pre-training: tokenizer, sizes, initial weights.

Shapes as in `models/bridge/model.py`.
"""

import string
from collections.abc import Iterable
from typing import cast

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from uivlm.actions.text import TEXT_PREFIX
from uivlm.models.bridge.model import BridgeConfig, LlamaVit

IMAGE_SIZE = (256, 126)  # pixels of the vision encoder: height, width
PATCH_SIZE = (16, 42)  # a text line high, a third of the screen wide: a word or two
INIT_STD = 0.07  # 1 / sqrt(width); the usual 0.02 is for wider models and learns late here
# Gain of queries and keys, in heads that attend to distant and to nearby tokens.
FAR_HEAD_GAIN, NEAR_HEAD_GAIN = 1.5, 0.6
RESIDUAL_INIT_SCALE = 0.3  # of a layer's initial output, relative to the embedding that it is added to
CONTROL_TOKENS = ("empty", "start", "end", "image")  # ids above the tokenizer's own


def build_tokenizer(vocabulary: Iterable[str]) -> Tokenizer:
    """A tokenizer with one token for each word, as it is and in lower case, with and without a leading space.

    Each bin number is a token, too. Other text falls back to letters, and then to bytes.
    """
    forms = {form for word in vocabulary for form in (word, word.lower(), f" {word}", f" {word.lower()}")}
    forms |= {'"', ' "'}
    letters = {letter for form in forms for letter in form} | set(string.printable)
    numbers = {f" {n}" for n in range(100)}
    pieces = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [(letter, -10.0) for letter in sorted(letters - forms - numbers)]
    pieces += [(form, -1.0) for form in sorted(forms | numbers)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, True))
    # one word at a time, so that no token crosses a space or a quotation mark
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w[\w'&.:-]*\w| ?\w| ?[^\s\w]|\s"), "isolated")
    # a typed word uses the token of goals and screens, which has a leading space
    tokenizer.normalizer = normalizers.Replace(TEXT_PREFIX, f"{TEXT_PREFIX} ")
    unspaced = decoders.Replace(f"{TEXT_PREFIX} ", TEXT_PREFIX)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), unspaced])
    return tokenizer


def build_config(tokenizer: Tokenizer) -> BridgeConfig:
    """About five million parameters; widths chosen for two CPU cores."""
    first = tokenizer.get_vocab_size()
    ids = {name: first + i for i, name in enumerate(CONTROL_TOKENS)}
    text = {
        "vocab_size": first + len(CONTROL_TOKENS),
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "initializer_range": INIT_STD,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "bos_token_id": ids["start"],
        "eos_token_id": ids["end"],
        "pad_token_id": ids["empty"],
    }
    vision = {
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "initializer_range": INIT_STD,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH_SIZE,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BridgeConfig(text, vision, "non_blank", image_token_id=ids["image"])


def init_word_forms(model: LlamaVit, tokenizer: Tokenizer) -> None:
    """Give all forms of a word (leading space or not, upper or lower case) a shared part of their embedding.

    What is learned about one form, for example to copy it, then transfers to the others.
    """
    table = cast(Tensor, model.get_input_embeddings().weight)
    vocabulary = tokenizer.get_vocab()
    stems = {form: form.strip().lower() for form in vocabulary}
    shared = {stem: torch.randn(table.shape[1]) * INIT_STD for stem in sorted(set(stems.values()))}
    variants = torch.randn(2, 2, table.shape[1]) * INIT_STD  # [leading space, upper case, D]
    with torch.no_grad():
        for form, i in vocabulary.items():
            variant = variants[int(form.startswith(" ")), int(form.strip()[:1].isupper())]
            table[i] = 0.5 * table[i] + 0.7 * shared[stems[form]] + 0.5 * variant


def init_matching_attention(model: LlamaVit) -> None:
    """Initialize attention to find the same word elsewhere, and to copy what is there.

    Grounding is exactly this: match the requested word with the words of the patches, and copy the position.
    So queries equal keys, and each output projection inverts its value projection. But every token matches
    itself best. Half of the heads therefore have negated queries in the dimensions where rotary positions
    turn fast. At distance zero these cancel the slow dimensions, and at a distance they average out: such a
    head attends to distant tokens. The other half attends to nearby tokens, which copying word by word needs.
    From independent random weights, neither emerged within a thousand steps.
    """
    config = model.config.text_config
    heads, size = config.num_attention_heads, cast(int, config.head_dim)
    fast = (
        torch.arange(size) % (size // 2) < size // 4
    )  # rotary pairs are i and i + size / 2; the first turn fastest
    far = torch.where(fast, -FAR_HEAD_GAIN, FAR_HEAD_GAIN), torch.full((size,), FAR_HEAD_GAIN)
    near = torch.full((size,), NEAR_HEAD_GAIN), torch.full((size,), NEAR_HEAD_GAIN)
    query, key = (
        torch.cat([*[f] * (heads // 2), *[n] * (heads - heads // 2)]) for f, n in zip(far, near, strict=True)
    )
    with torch.no_grad():
        for layer in model.language.model.layers:
            attention = layer.self_attn
            torch.nn.init.orthogonal_(attention.k_proj.weight)
            attention.q_proj.weight.copy_(query[:, None] * attention.k_proj.weight)
            attention.k_proj.weight.mul_(key[:, None])
            torch.nn.init.orthogonal_(attention.v_proj.weight)
            attention.o_proj.weight.copy_(RESIDUAL_INIT_SCALE * attention.v_proj.weight.T)
            layer.mlp.down_proj.weight.mul_(RESIDUAL_INIT_SCALE)

"""What the tiny base is before its pre-training: tokenizer, sizes, first weights.

Shapes as in `models/llama_vit.py`.
"""

import string
from collections.abc import Iterable
from typing import cast

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from uivlm.models.llama_vit import BridgeConfig, LlamaVit

IMAGE = (256, 126)  # what the ViT sees: height, width
PATCH = (16, 42)  # one row of the phone's rhythm high, a third of the screen wide: a word or two
SPREAD = (
    0.07  # of random weights: 1 / sqrt(width); the customary 0.02 is for wider models and learns late here
)
ALIKE_FAR, ALIKE_NEAR = 1.5, 0.6  # gain of queries and keys in heads that look elsewhere, and in the others
QUIET = 0.3  # what a layer adds at first, against the word that it adds to
TYPING = 'Input text "'  # what stands before typed text in the words of an action
CONTROL = ("empty", "start", "end", "picture")  # ids above the tokenizer's own


def tokenizer(words: Iterable[str]) -> Tokenizer:
    """Each of the words, with and without a blank before it and in small letters, is one token; so is each number
    of a bin. Anything else is told in letters, and any byte that is no letter of these words as that byte."""
    forms = {form for word in words for form in (word, word.lower(), f" {word}", f" {word.lower()}")}
    forms |= {'"', ' "'}
    letters = {letter for form in forms for letter in form} | set(string.printable)
    numbers = {f" {n}" for n in range(100)}
    pieces = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [(letter, -10.0) for letter in sorted(letters - forms - numbers)]
    pieces += [(form, -1.0) for form in sorted(forms | numbers)]
    made = Tokenizer(models.Unigram(pieces, 0, True))
    # one word at a time, so that no token reaches over a blank or into a quotation mark
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w[\w'&.:-]*\w| ?\w| ?[^\s\w]|\s"), "isolated")
    # a typed word is the token that goals and screens have for it: the one with a blank before it
    made.normalizer = normalizers.Replace(TYPING, f"{TYPING} ")
    unspaced = decoders.Replace(f"{TYPING} ", TYPING)
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), unspaced])
    return made


def config(words: Tokenizer) -> BridgeConfig:
    """About five million parameters; widths chosen for two CPU cores."""
    first = words.get_vocab_size()
    ids = {name: first + i for i, name in enumerate(CONTROL)}
    text = {
        "vocab_size": first + len(CONTROL),
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "initializer_range": SPREAD,
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
        "initializer_range": SPREAD,
        "image_size": IMAGE,
        "patch_size": PATCH,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BridgeConfig(text, vision, "busy", picture_id=ids["picture"])


def forms_alike(model: LlamaVit, words: Tokenizer) -> None:
    """The forms of a word (with a blank before it or not, capital or small) begin as one vector and what is its own.

    So what is learned about one form, that its copy is to be typed say, begins to hold for the others.
    """
    table = cast(Tensor, model.get_input_embeddings().weight)
    vocabulary = words.get_vocab()
    stems = {form: form.strip().lower() for form in vocabulary}
    shared = {stem: torch.randn(table.shape[1]) * SPREAD for stem in sorted(set(stems.values()))}
    kinds = torch.randn(2, 2, table.shape[1]) * SPREAD  # what all forms of a kind have in common
    with torch.no_grad():
        for form, i in vocabulary.items():
            kind = kinds[int(form.startswith(" ")), int(form.strip()[:1].isupper())]
            table[i] = 0.5 * table[i] + 0.7 * shared[stems[form]] + 0.5 * kind


def look_alike(model: LlamaVit) -> None:
    """Attention begins as a look for the same word, and as a copy of what stands there.

    Grounding is just that: the word asked for is matched with the words that patches show, and the place is copied.
    So queries equal keys, and each output projection undoes its value projection. But every word is most like itself:
    therefore half of the heads have the other sign in queries where rotary positions turn fast. At no distance these
    numbers cancel the slow ones, far away they say nothing: such a head looks elsewhere. The other half sees what is near,
    as copying word after word needs it. From independent random weights neither had begun after a thousand steps.
    """
    heads, size = (
        cast(int, n)
        for n in (model.config.text_config.num_attention_heads, model.config.text_config.head_dim)
    )
    fast = (
        torch.arange(size) % (size // 2) < size // 4
    )  # a pair is i and i + size / 2; the first turn fastest
    far = torch.where(fast, -ALIKE_FAR, ALIKE_FAR), torch.full((size,), ALIKE_FAR)
    near = torch.full((size,), ALIKE_NEAR), torch.full((size,), ALIKE_NEAR)
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
            attention.o_proj.weight.copy_(QUIET * attention.v_proj.weight.T)
            layer.mlp.down_proj.weight.mul_(QUIET)

"""Readers of every kind of tokens that models have, each with the size of its model's vocabulary."""

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import config, tokenizer, vocabulary
from uivlm.episodes.encode import Processor
from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.qwen_hf.files import load_processor
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.processor import QwenVLProcessor
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer, read_ranks

Reader = Callable[[Path], tuple[Processor, int]]


def tiny(_: Path) -> tuple[Processor, int]:
    bridge, made = load_base(TINY_BASE, torch.float32)
    return BridgeProcessor(made, bridge.config), bridge.config.text_config.vocab_size


def few_merges(_: Path) -> tuple[Processor, int]:
    told = config()
    return BridgeProcessor(tokenizer(), told), told.text_config.vocab_size


def sentencepiece(_: Path) -> tuple[Processor, int]:
    """As Llama-2's: spaces as low lines, other characters as bytes, a leading space that is dropped."""
    letters = ["\u2581", *map(chr, range(33, 127))]
    merges = [("\u2581", letter) for letter in "tsIpc019"] + [("t", "a"), ("\u2581", "\u2581"), ("1", "0")]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    pieces += ["".join(pair) for pair in merges]
    ids = {piece: i for i, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    told = config()
    told.text_config.bos_token_id, told.text_config.eos_token_id = ids["<s>"], ids["</s>"]
    told.text_config.pad_token_id, told.image_token_id = len(ids), len(ids) + 1
    told.text_config.vocab_size = len(ids) + 2
    return BridgeProcessor(made, told), len(ids) + 2


def with_blanks_in_front(_: Path) -> tuple[Processor, int]:
    """As Llama-2's: a blank belongs to the word after it, and is not there at the beginning of a text."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    words = [
        "tap at 12 90",
        "swipe from 55 10 to 3 4",
        'Input text "hello"',
        "press back home enter complete",
    ]
    letters = [chr(code) for code in range(32, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], initial_alphabet=letters, show_progress=False
    )
    made.train_from_iterator([*words, "impossible", *letters] * 5, trainer)
    first = made.get_vocab_size()
    told = config()
    for name, at in (("bos", 0), ("eos", 1), ("pad", 2)):
        setattr(told.text_config, f"{name}_token_id", first + at)
    told.text_config.vocab_size, told.image_token_id = first + 4, first + 3
    return BridgeProcessor(made, told), first + 4


def qwen2_5(folder: Path) -> tuple[Processor, int]:
    return load_processor(write(folder / "qwen", "Qwen2_5_VL")), 350


def qwen(_: Path) -> tuple[Processor, int]:
    """All of the published 151,936."""
    told = QwenVLConfig()
    return QwenVLProcessor(QwenTokenizer(read_ranks(vocabulary())), told), told.vocab_size


READERS: list[Reader] = [tiny, few_merges, sentencepiece, with_blanks_in_front, qwen2_5, qwen]

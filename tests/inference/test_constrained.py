"""Which tokens may follow: what is tried of a vocabulary is all that fits, for every kind of tokens that
models have.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import config, tokenizer, vocabulary
from uivlm.actions.text import TEXT_PREFIX, ActionText
from uivlm.actions.text_prefix import can_appear_in_action, is_prefix
from uivlm.episodes.encode import Processor
from uivlm.inference.constrained import ActionConstraint
from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE
from uivlm.models.bridge.model import BridgeProcessor as BridgeReader
from uivlm.models.qwen_hf.files import load_processor
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.processor import QwenVLProcessor as QwenReader
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer, read_ranks

LANGUAGE = ActionText(100)
BEGUN = ("", "tap at ", "tap at 1", "swipe from 1 2 to ", "Inp", "Input text")


def tiny(_: Path) -> tuple[Processor, int]:
    bridge, made = load_base(TINY_BASE, torch.float32)
    return BridgeReader(made, bridge.config), bridge.config.text_config.vocab_size


def few_merges(_: Path) -> tuple[Processor, int]:
    told = config()
    return BridgeReader(tokenizer(), told), told.text_config.vocab_size


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
    return BridgeReader(made, told), first + 4


def qwen2_5(folder: Path) -> tuple[Processor, int]:
    return load_processor(write(folder / "qwen", "Qwen2_5_VL")), 350


def qwen(_: Path) -> tuple[Processor, int]:
    """All of the published 151,936."""
    told = QwenVLConfig()
    return QwenReader(QwenTokenizer(read_ranks(vocabulary())), told), told.vocab_size


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tiny, few_merges, with_blanks_in_front, qwen2_5, qwen])
def test_what_may_follow_is_found_as_by_trying_every_token(
    tmp_path: Path, kind: Callable[[Path], tuple[Processor, int]]
) -> None:
    reader, size = kind(tmp_path)
    speech = ActionConstraint(reader, LANGUAGE)
    chances = torch.rand(size, generator=torch.Generator().manual_seed(0))
    for words in BEGUN if size < 10_000 else BEGUN[::2]:
        said = reader.encode(words)
        before = reader.decode(said)

        def may(token: int, said: list[int] = said, before: str = before) -> bool:
            after = reader.decode([*said, token])
            return reader.is_text_token(token) and after != before and is_prefix(after, LANGUAGE)

        expected = [token for token in range(size) if may(token)]
        found = list(speech.allowed_tokens(said, chances))
        assert sorted(found) == expected, words
        assert expected, words
        assert chances[found].tolist() == sorted(chances[found].tolist(), reverse=True)
        assert speech.best_token(said, chances) == found[0]


@pytest.mark.slow
def test_of_a_large_vocabulary_few_tokens_are_tried() -> None:
    """An untrained model finds its words, too, without asking for each of all tokens."""
    reader, size = qwen(Path())
    speech = ActionConstraint(reader, LANGUAGE)
    tried = len(speech.cached_phrase_tokens(size))
    assert tried < 1000
    assert size > 150_000


def test_every_piece_of_a_phrase_fits() -> None:
    for one in (
        "tap at 0 99",
        "swipe from 12 34 to 90 8",
        "press home",
        "impossible",
        f'{TEXT_PREFIX}say: \\"x\\"',
    ):
        typed = one.find('"') + 1 or len(one)
        assert all(can_appear_in_action(one[i:j]) for i in range(typed) for j in range(i, len(one) + 1))
    assert not any(
        can_appear_in_action(other)
        for other in ("z", "at at", "1  2", "5 to to", "TAP", "the", "\ufffd", "tap\n")
    )

"""Qwen-VL's tokenizer, chat format and processor: texts and screens become token ids and pixels."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.qwen_vl_chat import (
    ChatTurn,
    encode_conversation,
    encode_pieces,
    from_list_format,
    join_text,
    pieces_of,
)
from tests.helpers.qwen_vl_models import bytewise, screen, small_config
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.qwen_vl import files
from uivlm.models.qwen_vl.processor import QwenVLProcessor
from uivlm.models.qwen_vl.tokenizer import PATTERN, SPECIAL_TOKENS, QwenTokenizer


def test_references_and_boxes(real_tokenizer: QwenTokenizer) -> None:
    """Published: `<ref>` text `</ref>`, then each box in its own tags, as control ids; no newline."""
    items = [
        {"image": "a.png"},
        {"text": "tap "},
        {"ref": "the clock", "box": [(1, 2, 30, 40), (5, 6, 7, 8)]},
    ]
    items += [{"box": [(0, 0, 999, 999)]}]
    pieces = from_list_format(real_tokenizer, items, 256)
    text = "tap <ref>the clock</ref><box>(1,2),(30,40)</box><box>(5,6),(7,8)</box><box>(0,0),(999,999)</box>"
    assert (
        real_tokenizer.decode(encode_pieces(real_tokenizer, pieces)) == f"Picture 1: <img>a.png</img>\n{text}"
    )
    assert encode_pieces(real_tokenizer, pieces[2:]) == encode_pieces(
        real_tokenizer, pieces_of(real_tokenizer, f"\n{text}", 256)
    )
    tags = [real_tokenizer.special_tokens[name] for name in ("<ref>", "</ref>", "<box>", "</box>")]
    assert [token for token in encode_pieces(real_tokenizer, pieces) if token in tags] == [
        *tags,
        *tags[2:] * 2,
    ]
    with pytest.raises(ValueError, match="unsupported element"):
        from_list_format(real_tokenizer, [{"ref": "a reference needs a box"}], 256)


def test_a_leading_turn_of_the_assistant_is_dropped(real_tokenizer: QwenTokenizer) -> None:
    """As in the original's `preprocess`: that turn only."""
    turns = [ChatTurn("user", ("open it",)), ChatTurn("assistant", ("tap at 7 90",))]
    greeting = ChatTurn("assistant", ("hello",))
    assert encode_conversation(real_tokenizer, [greeting, *turns]) == encode_conversation(
        real_tokenizer, turns
    )
    assert encode_conversation(real_tokenizer, [greeting]) == encode_conversation(real_tokenizer, [])
    assert encode_conversation(real_tokenizer, [*turns, greeting]) != encode_conversation(
        real_tokenizer, turns
    )


@given(st.text() | st.lists(st.sampled_from([*SPECIAL_TOKENS, "a", " "])).map("".join))
def test_text_never_yields_control_tokens(text: str) -> None:
    tokens = bytewise()
    ids = tokens.encode(text)
    assert all(0 <= i < tokens.num_ranks for i in ids)
    assert tokens.decode(ids) == unicodedata.normalize("NFC", text)


def test_text_beside_text_is_one_text() -> None:
    assert join_text(["a", "b", (1,), "c", "d"]) == ("ab", (1,), "cd")


def test_a_path_longer_than_its_span() -> None:
    with pytest.raises(ValueError, match="12 bytes, its span holds 9"):
        bytewise().image_token_ids(9, "a" * 12)


def test_every_digit_is_a_token() -> None:
    ranks = {bytes([i]): i for i in range(256)} | {b"12": 256, b"ab": 257}
    assert QwenTokenizer(ranks).encode("ab12") == [257, ord("1"), ord("2")]
    assert r"|\p{N}|" in PATTERN


@pytest.mark.parametrize("text", ["QQ== 0", "no base64 here", "QQ== zero", ""])
def test_a_damaged_vocabulary(tmp_path: Path, text: str) -> None:
    (tmp_path / "qwen.tiktoken").write_text(text)
    with pytest.raises(ValueError, match="qwen.tiktoken .*list of tokens"):
        files.load_tokenizer(tmp_path)


def test_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no qwen.tiktoken"):
        files.load_tokenizer(tmp_path)


def test_reader_reads_text_and_screens() -> None:
    config, tokens = small_config(), bytewise()
    reader = QwenVLProcessor(tokens, config)
    ids = reader.image_token_ids(ScreenPiece(screen(0)))
    assert ids == [config.image_start_id, *[config.image_token_id] * 9, config.image_start_id + 1]
    assert (reader.eos_id, reader.max_length) == (256, 256)
    assert QwenVLProcessor(tokens, small_config(long_context="original")).max_length == 8192
    pixels = reader.pixel_values(ScreenPiece(screen(0)))
    assert (pixels.shape, pixels.dtype) == ((3, 32, 32), np.uint8)
    said = reader.encode("press <imgpad>")
    assert reader.decode([*said, reader.eos_id, *ids]) == "press <imgpad>"
    assert all(map(reader.is_text_token, said))
    assert not any(map(reader.is_text_token, [*ids, reader.eos_id, 479, -1]))
    with pytest.raises(ValueError, match="<img> at 470, the model has 480 with <img> at 300"):
        QwenVLProcessor(tokens, small_config(visual=config.visual | {"image_start_id": 300}))

"""Qwen-VL-Chat's format, as its published code defines it.

It tests the tokenizer; the project trains the base format.

Input: the original's list format, or turns of pieces (text, or token ids). Output: ids and labels.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from uivlm.episodes.encode import IGNORE
from uivlm.models.qwen_vl.tokenizer import SPECIAL_TOKENS, QwenTokenizer

SYSTEM = "You are a helpful assistant."
Piece = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatTurn:
    role: Literal["user", "assistant"]
    pieces: tuple[Piece, ...]


def from_list_format(
    tokenizer: QwenTokenizer, items: Sequence[dict[str, Any]], num_visual_tokens: int
) -> tuple[Piece, ...]:
    """`image`: numbered, with a newline after it.

    `text`. `box`: (x1, y1, x2, y2) each, perhaps with a `ref`.
    """
    pieces: list[Piece] = []
    num_images = 0
    for item in items:
        if "image" in item:
            num_images += 1
            image = tuple(tokenizer.image_token_ids(num_visual_tokens, item["image"]))
            pieces += [f"Picture {num_images}: ", image, "\n"]
        elif "text" in item:
            pieces.append(item["text"])
        elif "box" in item:
            if "ref" in item:
                pieces += _tagged(tokenizer, "ref", item["ref"])
            for box in item["box"]:
                x1, y1, x2, y2 = map(int, box)
                pieces += _tagged(tokenizer, "box", f"({x1},{y1}),({x2},{y2})")
        else:
            raise ValueError(f"unsupported element {item}")
    return join_text(pieces)


def _tagged(tokenizer: QwenTokenizer, tag: str, text: str) -> list[Piece]:
    return [(tokenizer.special_tokens[f"<{tag}>"],), text, (tokenizer.special_tokens[f"</{tag}>"],)]


def join_text(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Adjacent texts become one: a token may span both."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return tuple(joined)


def encode_conversation(
    tokenizer: QwenTokenizer, turns: Sequence[ChatTurn], add_generation_prompt: bool = False
) -> tuple[list[int], list[int]]:
    """ids and labels; with a generation prompt, the ids end where the assistant continues.

    As in the original, a first turn of the assistant is dropped, and `<|im_start|>`, `<|im_end|>` and the
    newline after it are trained in every turn.
    """
    if turns and turns[0].role != "user":
        turns = turns[1:]
    start, end = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    newline = tokenizer.encode("\n")
    ids: list[int] = []
    labels: list[int] = []
    for role, pieces in [("system", (SYSTEM,)), *((turn.role, turn.pieces) for turn in turns)]:
        head = [*tokenizer.encode(role), *newline]
        content = encode_pieces(tokenizer, pieces)
        trained = content if role == "assistant" else [IGNORE] * len(content)
        ids += [start, *head, *content, end, *newline]
        labels += [start, *[IGNORE] * len(head), *trained, end, *newline]
    if add_generation_prompt:
        head = [*tokenizer.encode("assistant"), *newline]
        ids += [start, *head]
        labels += [start, *[IGNORE] * len(head)]
    return ids, labels


def encode_pieces(tokenizer: QwenTokenizer, pieces: Sequence[Piece]) -> list[int]:
    ids: list[int] = []
    for piece in join_text(pieces):
        ids += tokenizer.encode(piece) if isinstance(piece, str) else piece
    return ids


def queries_of(tokens: QwenTokenizer, ids: list[int]) -> int:
    """Length of the first picture's span; the vocabulary's texts need not come from the model beside them."""
    start, end = tokens.special_tokens["<img>"], tokens.special_tokens["</img>"]
    return ids.index(end) - ids.index(start) - 1 if start in ids else 0


def pieces_of(tokens: QwenTokenizer, text: str, queries: int) -> tuple[Piece, ...]:
    """A text of the original, in which control tokens are written out, as pieces."""
    pieces: list[Piece] = []
    names = "|".join(re.escape(name) for name in SPECIAL_TOKENS)
    for part in re.split(rf"(<img>.*?</img>|{names})", text):
        if part.startswith("<img>"):
            pieces.append(tuple(tokens.image_token_ids(queries, part[5:-6])))
        elif part in tokens.special_tokens:
            pieces.append((tokens.special_tokens[part],))
        elif part:
            pieces.append(part)
    return tuple(pieces)

"""Qwen-VL-Chat's format: turns as ids, and which of them the original fine-tuning trains.

In: turns, whose pieces are text, or ids that code made (a picture's span). Out: ids and labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from uivlm.models.qwen_vl.tokens import Tokens
from uivlm.sentences.encode import IGNORE

SYSTEM = "You are a helpful assistant."
Piece = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    role: Literal["user", "assistant"]
    pieces: tuple[Piece, ...]


def numbered(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Each picture with its number before it and a newline after: `Picture 1: <img>..</img>`."""
    said: list[Piece] = []
    pictures = 0
    for piece in pieces:
        if isinstance(piece, str):
            said.append(piece)
        else:
            pictures += 1
            said += [f"Picture {pictures}: ", piece, "\n"]
    return joined(said)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Texts side by side become one: tokens may reach over where they meet."""
    said: list[Piece] = []
    for piece in pieces:
        if said and isinstance(piece, str) and isinstance(said[-1], str):
            said[-1] += piece
        else:
            said.append(piece)
    return tuple(said)


def conversation(tokens: Tokens, turns: Sequence[Turn], answer: bool = False) -> tuple[list[int], list[int]]:
    """ids and labels. With `answer`, the ids end where the assistant is to speak.

    As in the original, `<|im_start|>`, `<|im_end|>` and the newline after it are trained in every turn.
    """
    if turns and turns[0].role != "user":
        raise ValueError("the first turn of a conversation is the user's")
    start, end, newline = tokens.control["<|im_start|>"], tokens.control["<|im_end|>"], tokens.encode("\n")
    ids: list[int] = []
    labels: list[int] = []
    said = [("system", (SYSTEM,)), *((turn.role, turn.pieces) for turn in turns)]
    for role, pieces in said:
        head = [*tokens.encode(role), *newline]
        content = spelled(tokens, pieces)
        trained = content if role == "assistant" else [IGNORE] * len(content)
        ids += [start, *head, *content, end, *newline]
        labels += [start, *[IGNORE] * len(head), *trained, end, *newline]
    if answer:
        head = [*tokens.encode("assistant"), *newline]
        ids += [start, *head]
        labels += [start, *[IGNORE] * len(head)]
    return ids, labels


def spelled(tokens: Tokens, pieces: Sequence[Piece]) -> list[int]:
    said: list[int] = []
    for piece in joined(pieces):
        said += tokens.encode(piece) if isinstance(piece, str) else piece
    return said

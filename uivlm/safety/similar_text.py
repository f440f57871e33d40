"""Find a value in a text however it is written: a text and a value in, the spans of its occurrences out.

Blanks, dashes, case, compatibility forms and percent-encoding make no difference. Apps write a card number in
groups, a browser encodes it in an address, and a label shows it in capitals.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from unicodedata import category, normalize
from urllib.parse import unquote

MIN_PIECE_LETTERS = 12  # a longer value also counts where the text has only this many of its letters in a row
LETTER_PATTERN = re.compile(r".", re.DOTALL)
ENCODED_PATTERN = re.compile(r"(?:%[0-9a-fA-F]{2})+|.", re.DOTALL)
IGNORED_CATEGORIES = ("Zs", "Zl", "Zp", "Cc", "Cf", "Pd")  # blanks, control and format characters, dashes
IGNORED_LETTERS = "_+\\\u2212"  # blanks of addresses, escapes of quotation marks, the minus sign


def find_values(text: str, values: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Start, end and name of each occurrence of a value, the longest values first.

    Occurrences of one value do not overlap. A value without any letter that counts, such as "--", is found as
    it is.
    """
    spellings = [_plain_text(LETTER_PATTERN.finditer(text))]
    if "%" in text:
        spellings.append(_plain_text(ENCODED_PATTERN.finditer(text)))
    result: list[tuple[int, int, str]] = []
    for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
        letters = "".join(map(_plain_letters, value))
        if not letters:
            result += [(start, start + len(value), name) for start in _starts(text, value)]
            continue
        size = min(len(letters), MIN_PIECE_LETTERS)
        pieces = {letters[i : i + size] for i in range(len(letters) - size + 1)}
        for plain, spans in spellings:
            result += [
                (spans[start][0], spans[end - 1][1], name) for start, end in _find_pieces(plain, pieces)
            ]
    return result


def _find_pieces(plain: str, pieces: set[str]) -> list[tuple[int, int]]:
    """Start and end of each occurrence of a piece; those that overlap are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((i, i + len(piece)) for piece in pieces for i in _starts(plain, piece)):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return merged


def _starts(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _plain_text(units: Iterable[re.Match[str]]) -> tuple[str, list[tuple[int, int]]]:
    """The letters of a text that count, and where each comes from."""
    letters = [(letter, unit.span()) for unit in units for letter in _plain_letters(unit[0])]
    return "".join(letter for letter, _ in letters), [span for _, span in letters]


@lru_cache(maxsize=4096)
def _plain_letters(unit: str) -> str:
    """The letters of a letter or of percent-encoded ones that count, in lower case."""
    letters = normalize("NFKD", unquote(unit) if len(unit) > 1 else unit).casefold()
    return "".join(
        letter
        for letter in letters
        if category(letter) not in IGNORED_CATEGORIES and letter not in IGNORED_LETTERS
    )

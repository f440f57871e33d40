"""The bytes that each token of a `tokenizers` tokenizer adds to the text.

In: the tokenizer. Out: its Vocabulary. The bytes follow from the steps of its decoder; decoding tokens one by
one would not tell, since a part of a character decodes to U+FFFD.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from uivlm.actions.text import TEXT_PREFIX
from uivlm.episodes.encode import Vocabulary

ToBytes = Callable[[str], bytes]

BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def vocabulary(tokenizer: Tokenizer, is_text_token: Callable[[int], bool]) -> Vocabulary:
    """ValueError if the tokenizer's decoder is neither byte-level nor byte-fallback nor Metaspace."""
    decoder = json.loads(tokenizer.to_str())["decoder"] or {"type": None}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    to_bytes, to_first_bytes = _converters(steps)
    texts = {token: text for text, token in tokenizer.get_vocab(with_added_tokens=True).items()}
    tokens = [texts[i] if i in texts and is_text_token(i) else "" for i in range(max(texts) + 1)]
    first = None if to_first_bytes is None else tuple(map(to_first_bytes, tokens))
    return Vocabulary(tuple(map(to_bytes, tokens)), first)


def _converters(steps: list[dict[str, Any]]) -> tuple[ToBytes, ToBytes | None]:
    """A token's text to its bytes; and at the start of a text, if those differ."""
    replacements: list[tuple[str, str]] = []
    byte_tokens = fused = strips = False
    dropped = ""  # character that is left out of the first token
    for step in steps:
        match step:
            case {"type": "ByteLevel"} if len(steps) == 1:
                return _byte_level, None
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content} if not fused:
                replacements.append((pattern, content))
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content} if (
                content == TEXT_PREFIX and pattern == f"{TEXT_PREFIX} "
            ):
                pass  # typed text may start with a space anyway: the same bytes are allowed
            case {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme}:
                replacements.append((replacement, " "))
                dropped = "" if scheme == "never" else replacement
            case {"type": "ByteFallback"}:
                byte_tokens = True
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": start, "stop": 0} if fused and start < 2:
                strips = start == 1
            case _:
                raise ValueError(
                    f"constrained decoding: the tokenizer's decoder has the step {step['type']}; expected a "
                    "byte-level, byte-fallback or Metaspace decoder. Use another base model"
                )

    def to_bytes(text: str) -> bytes:
        for pattern, content in replacements:
            text = text.replace(pattern, content)
        if byte_tokens and (match := BYTE_TOKEN.fullmatch(text)):
            return bytes.fromhex(match[1])
        return text.encode()

    if strips:
        return to_bytes, lambda text: to_bytes(text).removeprefix(b" ")
    if dropped:
        return to_bytes, lambda text: to_bytes(text.replace(dropped, ""))
    return to_bytes, None


def _byte_level(text: str) -> bytes:
    """GPT-2's alphabet of visible characters. An added token may hold others: it is written as it is."""
    values = [_VALUES.get(character) for character in text]
    known = [value for value in values if value is not None]
    return bytes(known) if len(known) == len(values) else text.encode()


# GPT-2: bytes that are visible in latin-1 stand for themselves, the others follow from U+0100 in order
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _VISIBLE]
_VALUES = {chr(byte): byte for byte in _VISIBLE} | {chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)}

"""Qwen's tokenizer: text to ids and back; control ids by name.

In: `qwen.tiktoken` (base64 ranks of byte strings). Text never encodes to a control id: only `special_tokens`
and `image_token_ids` yield them.
"""

import base64
import binascii
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import tiktoken

from uivlm.episodes.encode import digest

TOKENIZER_FILE = "qwen.tiktoken"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL_TOKENS = (  # in the order of their ids, which follow the ranks
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|extra_{i}|>" for i in range(205)),
    "<ref>",
    "</ref>",
    "<box>",
    "</box>",
    "<quad>",
    "</quad>",
    "<img>",
    "</img>",
    "<imgpad>",
)


def read_ranks(file: Path) -> dict[bytes, int]:
    """Each line is a byte string in base64, a blank and its rank. ValueError otherwise."""
    try:
        pairs = [line.split() for line in file.read_bytes().splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (OSError, ValueError, binascii.Error) as error:
        raise ValueError(f"{file} cannot be read as a list of tokens ({error})") from error
    if sorted(ranks.values()) != list(range(len(ranks))) or any(bytes([b]) not in ranks for b in range(256)):
        raise ValueError(
            f"{file} is not a complete list of tokens: ranks must be 0 to n - 1, with every single byte"
        )
    return ranks


class QwenTokenizer:
    def __init__(self, ranks: dict[bytes, int]) -> None:
        self.num_ranks = max(ranks.values()) + 1
        self.fingerprint = digest(PATTERN, sorted(ranks, key=ranks.__getitem__))
        self.special_tokens = {name: self.num_ranks + i for i, name in enumerate(SPECIAL_TOKENS)}
        self.special_token_names = {value: name for name, value in self.special_tokens.items()}
        self.encoding = tiktoken.Encoding(
            "qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=self.special_tokens
        )

    def __len__(self) -> int:
        return self.num_ranks + len(SPECIAL_TOKENS)

    def encode(self, text: str) -> list[int]:
        """`<img>` and the like are ordinary characters here."""
        return self.encoding.encode_ordinary(unicodedata.normalize("NFC", text))

    def decode(self, ids: Sequence[int], with_special_tokens: bool = True) -> str:
        """Without special tokens, the path in an image span of the original still stays, as text."""
        start, end, pad = (self.special_tokens[name] for name in ("<img>", "</img>", "<imgpad>"))
        decoded = b""
        inside = False
        for token in ids:
            if token in self.special_token_names:
                inside = token == start or (inside and token != end)
                decoded += (
                    self.special_token_names[token].encode() if with_special_tokens and token != pad else b""
                )
            elif inside and token < 256:
                decoded += bytes([token])  # the original writes a path's bytes as ids
            elif token < self.num_ranks:
                decoded += self.encoding.decode_single_token_bytes(token)
        return decoded.decode("utf-8", "replace")

    def image_token_ids(self, num_visual_tokens: int, path: str = "") -> list[int]:
        """A screen's span: `<img>`, one placeholder for each visual token, `</img>`.

        The original puts the bytes of a `path` first; the model here reads no path.
        """
        path_bytes = list(path.encode("utf-8"))
        if len(path_bytes) > num_visual_tokens:
            raise ValueError(
                f"the path of an image has {len(path_bytes)} bytes, its span holds {num_visual_tokens}"
            )
        pads = [self.special_tokens["<imgpad>"]] * (num_visual_tokens - len(path_bytes))
        return [self.special_tokens["<img>"], *path_bytes, *pads, self.special_tokens["</img>"]]

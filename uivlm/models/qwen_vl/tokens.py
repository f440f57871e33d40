"""Qwen's tokens: text to ids and back, control ids by name.

In: `qwen.tiktoken` (base64 ranks of byte strings). Text never yields a control id, whatever it holds: those come
from code alone (`control`, `picture`).
"""

import base64
import binascii
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import tiktoken

FILE = "qwen.tiktoken"
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTROL = (  # in the order of their ids, which follow the ranks
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
    """Each line is a byte string in base64, a blank and its rank; ValueError where it is not."""
    try:
        pairs = [line.split() for line in file.read_bytes().splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (OSError, ValueError, binascii.Error) as error:
        raise ValueError(f"{file} cannot be read as a list of tokens ({error})") from error
    if sorted(ranks.values()) != list(range(len(ranks))) or any(bytes([b]) not in ranks for b in range(256)):
        raise ValueError(
            f"{file} is no whole list of tokens: ranks must be 0 to n - 1, with every single byte"
        )
    return ranks


class Tokens:
    def __init__(self, ranks: dict[bytes, int]) -> None:
        self.num_ranks = max(ranks.values()) + 1
        self.control = {name: self.num_ranks + i for i, name in enumerate(CONTROL)}
        self.names = {value: name for name, value in self.control.items()}
        self.encoding = tiktoken.Encoding(
            "qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=self.control
        )

    def __len__(self) -> int:
        return self.num_ranks + len(CONTROL)

    def encode(self, text: str) -> list[int]:
        """`<img>` and the like are characters here."""
        return self.encoding.encode_ordinary(unicodedata.normalize("NFC", text))

    def decode(self, ids: Sequence[int], control: bool = True) -> str:
        """With `control` False, control tokens are left out; the path in an original image span stays, as text."""
        start, end, pad = (self.control[name] for name in ("<img>", "</img>", "<imgpad>"))
        said = b""
        inside = False
        for token in ids:
            if token in self.names:
                inside = token == start or (inside and token != end)
                said += self.names[token].encode() if control and token != pad else b""
            elif inside and token < 256:
                said += bytes([token])  # the original writes a path's bytes as ids
            elif token < self.num_ranks:
                said += self.encoding.decode_single_token_bytes(token)
        return said.decode("utf-8", "replace")

    def picture(self, queries: int, path: str = "") -> list[int]:
        """A screen's span: `<img>`, one placeholder for each visual token, `</img>`.

        The original fills the span with the bytes of a `path` first; the model here reads no path.
        """
        said = list(path.encode("utf-8"))
        if len(said) > queries:
            raise ValueError(f"the path of a picture has {len(said)} bytes, its span holds {queries}")
        pads = [self.control["<imgpad>"]] * (queries - len(said))
        return [self.control["<img>"], *said, *pads, self.control["</img>"]]

"""SHA-256 digests of a checkpoint's weight files: written into card.json, checked when weights are loaded."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, with_config

from uivlm.actions.schema import STRICT, parse_json
from uivlm.models.adapters import ALL_FILES

CARD, CARD_VERSION = "card.json", 1
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@with_config(STRICT | {"extra": "ignore"})
@dataclass(frozen=True, slots=True)
class _Card:
    """The fields of card.json that loading reads. A card of uivlm 0.2 has neither."""

    version: Literal[1] | None = None  # CARD_VERSION
    weights_sha256: dict[str, Digest] = field(default_factory=dict)  # by the file's path in the checkpoint


_CARD = TypeAdapter(_Card)


def weight_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each weight file, in hexadecimal, by its path in the folder."""
    files = [file for file in saved_files(folder) if file.suffix == ".safetensors"]
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in files}


def check_digests(folder: Path) -> None:
    """ValueError unless the weight files are as saved. A card without a version has no digests."""
    path = folder / CARD
    if not is_plain_file(path):
        raise ValueError(f"the folder {folder} is not a checkpoint: it has no {CARD}")
    card = parse_json(_CARD, path.read_bytes(), str(path))
    if card.version is None:
        return
    expected, actual = card.weights_sha256, weight_digests(folder)
    if missing := sorted(expected.keys() - actual.keys()):
        raise ValueError(f"{folder} lacks {missing[0]}, which {CARD} lists: copy the checkpoint again")
    for name, digest in actual.items():
        if digest != expected.get(name):
            raise ValueError(
                f"{folder / name} is damaged: its SHA-256 is {digest}; expected {expected.get(name)}, as in "
                f"{CARD}. Copy the checkpoint again"
            )


def saved_files(folder: Path) -> Iterator[Path]:
    """The files of `adapters.ALL_FILES`, with those in the folder of a whole model, in order."""
    for path in sorted(folder / name for name in ALL_FILES):
        if path.is_dir() and not path.is_symlink():
            yield from sorted(path.iterdir())
        elif path.exists():
            yield path


def is_plain_file(path: Path) -> bool:
    """Neither a link nor a device or pipe, which could block forever."""
    return path.is_file() and not path.is_symlink()


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

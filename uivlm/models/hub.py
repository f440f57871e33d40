"""A model's folder: in its name or hub id, out where it lies, downloaded once where it is not here."""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError


def fetch(name: str | Path, what: str, files: list[str]) -> Path:
    """The folder of that name, or else those `files` (patterns) of what the hub has under that id.

    `what` is the kind of model that was looked for; ValueError says it where there is none.
    """
    if (folder := Path(name)).is_dir():
        return folder
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        raise ValueError(f"there is no folder {name} with a {what}, and it is no hub id either")
    try:
        return Path(snapshot_download(str(name), allow_patterns=files))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"there is no folder {name}, and the model hub did not give it ({first_line(error)}): name a folder with a "
            f"{what}, or download it where there is a network"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, or else its kind."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

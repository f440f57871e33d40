"""Auto-UI's pickles (`*.obj`): refused. They hold features in place of pixels, and altered actions."""

from typing import NoReturn


def find(source: str) -> NoReturn:
    """ValueError, always. A pickle may run any program when it is opened, so none is."""
    raise ValueError(
        f"{source} is not read as Auto-UI's data: its pickles hold BLIP-2 features without pixels and altered "
        "actions, and opening a pickle may run any program; give the AITW shards that they were made of, with "
        "Auto-UI's list of ids as --split"
    )

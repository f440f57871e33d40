"""The names that the command line offers: protocols, baselines and answer formats.

They are apart from what they name, so that `uivlm --help` does not wait for NumPy and pydantic.
"""

from typing import Literal, get_args

AnswerFormat = Literal["ours", "seeclick", "showui", "autoui", "mobile_use", "uitars", "osatlas"]
BaselineName = Literal["majority", "repeat-last", "nearest", "oracle"]
ProtocolName = Literal["aitw", "autoui", "seeclick", "showui", "aitz", "androidcontrol"]

PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)
PROTOCOLS_WITHOUT_DEFECTS: tuple[ProtocolName, ...] = (
    "androidcontrol",
)  # none that moves the score is known

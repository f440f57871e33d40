"""What can be asked for by name when scores are made. Nothing is imported: the command line offers these."""

from typing import Literal, get_args

Protocol = Literal["aitw", "autoui", "seeclick", "showui", "aitz", "androidcontrol"]  # whose rules
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
SOUND: tuple[Protocol, ...] = ("androidcontrol",)  # no defect of its code is known that moves the score

Dialect = Literal["ours", "seeclick", "autoui", "mobile_use", "uitars"]  # how a model answers

Baseline = Literal["majority", "repeat-last", "nearest", "oracle"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

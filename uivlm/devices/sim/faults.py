"""What can go wrong with a phone, on the simulated one: set before a run or while it goes on, off by default."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Unplug:
    """The cable is pulled at a command."""

    at: int  # the command's number, counted from 0
    during: bool = False  # it is done, and its answer stops half-way; else it is not begun
    back_s: float = math.inf  # seconds until the cable is plugged in again


@dataclass(slots=True)
class Faults:
    refuses: bool = False  # input: as phones of some makers until a second switch is turned on
    black: bool = False  # screenshots: as of a window that keeps its contents secret
    frozen: bool = False  # screenshots show what the first one showed
    restless: bool = False  # uiautomator never finds an idle screen
    garbage: bool = False  # whatever is asked, noise is the answer
    cut: Collection[str] = ()  # ways of capture, "raw" and "png", whose bytes end half-way
    slow: Mapping[str, float] = field(default_factory=dict)  # way of capture: seconds more that it takes
    unplug: Unplug | None = None

"""Failures that the simulated phone can imitate: set before or during a run, off by default."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UnplugFault:
    """The cable is unplugged at a command."""

    command_index: int  # 0-based
    mid_output: bool = False  # the command runs and half of its output is sent; else it does not start
    reconnect_after_s: float = math.inf  # seconds


@dataclass(slots=True)
class Faults:
    rejects_input: bool = False  # as phones of some makers do until a second setting is enabled
    black_screenshots: bool = False  # as of a secure window
    frozen_screenshots: bool = False  # every screenshot shows the first screen
    never_idle: bool = False  # uiautomator never finds an idle screen
    garbage_output: bool = False  # every command prints noise
    truncated_captures: Collection[
        str
    ] = ()  # capture methods, "raw" and "png", that send half of their bytes
    capture_delay_s: Mapping[str, float] = field(default_factory=dict)  # capture method -> additional seconds
    unplug: UnplugFault | None = None

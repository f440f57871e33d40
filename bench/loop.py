"""What the loop costs a step, apart from model and device: the guard's rules, the history, the trace.

An agent that sleeps as long as a fast model takes, and a phone that takes no time: what else passes is ours. The trace
writes its pictures while the agent sleeps; they alone, one after the other, stand beside it.

    python bench/loop.py
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from uivlm.actions.action import Finish, Point, Tap
from uivlm.actions.gesture import Gesture
from uivlm.agents.agent import Decision
from uivlm.devices.sim.phone import Phone
from uivlm.episode import Element, History, Screen
from uivlm.loop import run_episode
from uivlm.safety.guard import Guard
from uivlm.safety.person import Nobody
from uivlm.safety.policy import Policy
from uivlm.trace import Trace

STEPS, RUNS = 20, 5
THINKS = 0.1  # seconds a step
SIZES = ((324, 648), (1080, 2400))  # pixels: the simulated phone's, a real one's


class Still:
    """Screens of a simulated phone, made before."""

    def __init__(self, width: int, height: int) -> None:
        drawn = [
            Image.fromarray(Phone(layout=i).screen().pixels).resize((width, height)) for i in range(STEPS)
        ]
        self.screens = [Screen(np.asarray(picture)) for picture in drawn]
        self.at = 0

    def screen(self) -> Screen:
        self.at += 1
        return self.screens[(self.at - 1) % STEPS]

    def perform(self, gesture: Gesture) -> None:
        pass

    def foreground(self) -> str:
        return "app.one"

    def elements(self) -> tuple[Element, ...]:
        return ()


class Taps:
    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        time.sleep(THINKS)
        done = len(history.steps) == STEPS - 1
        return Decision(Finish("complete") if done else Tap(Point(0.5, 0.5)), "tap at 50 50", 0.9)


def main() -> None:
    table = Table(title=f"ms a step beside model and device: median of {RUNS} runs of {STEPS} steps")
    for head in ("screen", "loop, guard and trace", "and the page at the end", "the PNGs alone"):
        table.add_column(head)
    for width, height in SIZES:
        phone = Still(width, height)
        rows = [_run(phone) for _ in range(RUNS)]
        floor = median(_pictures(phone) for _ in range(RUNS))
        whole, steps = (median(each) for each in zip(*rows, strict=True))
        table.add_row(f"{width} x {height}", f"{steps:.1f}", f"{whole:.1f}", f"{floor:.1f}")
    Console().print(table)


def _run(phone: Still) -> tuple[float, float]:
    """Milliseconds a step: with the trace's end (its page, what is still to be written), and of the steps alone."""
    with _folder() as folder:
        began = time.perf_counter()
        guard = Guard(phone, Policy(), Nobody(), trace := Trace(folder / "trace", "go"))
        ended = trace.ended
        at = [0.0]

        def end(status: str, message: str) -> None:
            at[0] = time.perf_counter()
            ended(status, message)

        trace.ended = end  # type: ignore[method-assign]
        outcome = run_episode(Taps(), guard, "go", STEPS, guard)
        assert outcome.status == "complete", outcome.message
        return _ms(began, time.perf_counter()) - 1000 * THINKS, _ms(began, at[0]) - 1000 * THINKS


def _pictures(phone: Still) -> float:
    with _folder() as folder:
        began = time.perf_counter()
        for i, screen in enumerate(phone.screens):
            Image.fromarray(screen.pixels).save(folder / f"{i}.png", compress_level=1)
        return _ms(began, time.perf_counter())


def _ms(began: float, ended: float) -> float:
    return 1000 * (ended - began) / STEPS


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()

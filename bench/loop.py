"""The loop's overhead per step, without model and device: the guard's rules, the history, the trace.

The agent sleeps as long as a fast model takes, and the phone takes no time; the rest is overhead. The trace
writes its images while the agent sleeps; the last column is the time to write them alone.

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
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.devices.sim.phone import SimPhone
from uivlm.episodes.episode import Element, History, Screen
from uivlm.rollout.loop import EndStatus, run_episode
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.guard import Guard
from uivlm.safety.policy import Policy
from uivlm.safety.redaction import MaskSecrets
from uivlm.safety.secrets import load_secrets
from uivlm.safety.supervisor import NoSupervisor

STEPS, RUNS = 20, 5
AGENT_SECONDS = 0.1  # seconds a step
SIZES = ((324, 648), (1080, 2400))  # pixels: the simulated phone, a real one


class ReplayedScreens:
    """Prepared screens of a simulated phone."""

    def __init__(self, width: int, height: int) -> None:
        images = [
            Image.fromarray(SimPhone(layout=i).screen().pixels).resize((width, height)) for i in range(STEPS)
        ]
        self.pixels = [np.asarray(image) for image in images]
        self.position = 0

    def screen(self) -> Screen:
        return Screen(self.pixels[self.position % STEPS])  # new: a screen keeps its PNG

    def perform(self, gesture: Gesture) -> None:
        self.position += 1

    def foreground(self) -> str:
        return "app.one"

    def elements(self) -> tuple[Element, ...]:
        return (Element(0, 0, 1, 1, "Page", clickable=False),)


class TapAgent:
    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        time.sleep(AGENT_SECONDS)
        done = len(history.steps) == STEPS - 1
        return Decision(Finish("complete") if done else Tap(Point(0.5, 0.5)), "tap at 50 50", 0.9)


def main() -> None:
    table = Table(title=f"overhead, ms a step: median of {RUNS} runs of {STEPS} steps")
    for head in ("screen", "loop, guard and trace", "with the page at the end", "PNGs alone"):
        table.add_column(head)
    for width, height in SIZES:
        phone = ReplayedScreens(width, height)
        rows = [_run(phone) for _ in range(RUNS)]
        floor = median(_time_pngs(phone) for _ in range(RUNS))
        total, steps = (median(column) for column in zip(*rows, strict=True))
        table.add_row(f"{width} x {height}", f"{steps:.1f}", f"{total:.1f}", f"{floor:.1f}")
    Console().print(table)


def _run(phone: ReplayedScreens) -> tuple[float, float]:
    """Milliseconds a step: with the end of the trace (its page, pending images), and without."""
    with _folder() as folder:
        start = time.perf_counter()
        policy = Policy()
        secrets = load_secrets(policy)
        guard = Guard(phone, policy, secrets, NoSupervisor())
        timer, trace = EndTimer(), TraceWriter(folder / "trace", "go")
        outcome = run_episode(TapAgent(), guard, "go", STEPS, (timer, MaskSecrets(trace, secrets)))
        assert outcome.status == "complete", outcome.message
        overhead = [
            _ms_per_step(start, end) - 1000 * AGENT_SECONDS for end in (time.perf_counter(), timer.end)
        ]
        return overhead[0], overhead[1]


class EndTimer:
    """A RunObserver that notes when the last step has ended."""

    end = 0.0

    def on_screen(self, t: int, screen: Screen, duration_ms: float) -> None:
        pass

    def on_decision(self, t: int, decision: Decision, duration_ms: float) -> None:
        pass

    def on_action(self, t: int, gesture: Gesture | None, duration_ms: float, by_human: bool = False) -> None:
        pass

    def on_end(self, status: EndStatus, message: str) -> None:
        self.end = time.perf_counter()


def _time_pngs(phone: ReplayedScreens) -> float:
    with _folder() as folder:
        start = time.perf_counter()
        for i, pixels in enumerate(phone.pixels):
            Image.fromarray(pixels).save(folder / f"{i}.png", compress_level=1)
        return _ms_per_step(start, time.perf_counter())


def _ms_per_step(started: float, ended: float) -> float:
    return 1000 * (ended - started) / STEPS


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()

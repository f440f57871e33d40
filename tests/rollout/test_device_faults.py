"""Whole runs through the real adb on a phone that answers badly: each ends in the right status.

`tests.helpers.faulty_run` checks of each run that its trace is whole and nothing is done after its end.
"""

import os
import re
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.faulty_run import ACTIONS, DONE, Event, Run
from uivlm.devices.sim.faults import Faults


def at_step(**fault: object) -> Event:
    def strike(run: Run) -> None:
        for name, value in fault.items():
            setattr(run.shell.faults, name, value)

    return strike


@pytest.mark.parametrize("t", range(len(ACTIONS) - 1))
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"rejects_input": True}, "rejects input"),
        ({"truncated_captures": ("raw", "png")}, "complete screenshot"),
        ({"garbage_output": True}, "complete screenshot|ADBKeyboard"),
    ],
)
def test_a_fault_from_each_step_on(adb, tmp_path, t, fault, words):
    run = Run(adb, tmp_path / "run", before_gesture={t: at_step(**fault)})
    if fault == {"rejects_input": True} and t == 2:  # a broadcast is no input
        t += 1
    assert run.outcome.status == "device_error"
    assert re.search(words, run.outcome.message)
    assert len(run.outcome.steps) in (t, t + 1)
    assert run.phone.gestures == DONE[: len(run.phone.gestures)]


@pytest.mark.parametrize("way", ["raw", "png"])
@pytest.mark.parametrize("t", [0, 3])
def test_one_broken_way_of_capture_does_not_end_a_run(adb, tmp_path, way, t):
    run = Run(adb, tmp_path / "run", before_screen={t: at_step(truncated_captures=(way,))})
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE


@pytest.mark.slow
def test_a_slow_capture_is_waited_for_and_one_without_end_is_not(adb, tmp_path):
    slow = {"raw": 0.3, "png": 0.3}
    assert Run(adb, tmp_path / "slow", Faults(capture_delay_s=slow)).outcome.status == "complete"
    hasty = replace(adb, timeout_s=1.5)
    endless = at_step(capture_delay_s={"raw": 2.5, "png": 2.5})
    run = Run(hasty, tmp_path / "endless", before_screen={2: endless})
    assert run.outcome.status == "device_error"
    assert "did not answer within 1.5 s" in run.outcome.message
    assert run.phone.gestures == DONE[:3]


@pytest.mark.parametrize("fault", ["black_screenshots", "frozen_screenshots"])
def test_what_is_a_screen_all_the_same_is_shown_to_the_agent(adb, tmp_path, fault):
    """What to make of it is for rules above the device."""
    run = Run(adb, tmp_path / "run", Faults(**{fault: True}), limit=3)
    assert run.outcome.status == "max_steps"
    screens = [step.screen.pixels for step in run.outcome.steps]
    assert all(np.array_equal(screen, screens[0]) for screen in screens)
    assert (screens[0].max() == 0) == (fault == "black_screenshots")
    assert run.phone.gestures == DONE[:4]


@pytest.mark.slow
def test_ctrl_c_while_a_screen_is_awaited(adb, tmp_path):
    def press(run: Run) -> None:
        run.shell.faults.capture_delay_s = {"raw": 1.0, "png": 1.0}
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = Run(adb, tmp_path / "run", before_screen={1: press})
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.outcome.status == "interrupted"
    assert run.phone.gestures == DONE[:1]

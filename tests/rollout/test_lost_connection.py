"""Whole runs through the real adb whose phone is unplugged or whose adb server is killed.

A run ends in the right status, or continues where nothing can have been done twice.
"""

import os
import signal
from dataclasses import replace

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import processes
from tests.helpers.faulty_run import ACTIONS, DONE, Run
from uivlm.actions.action import Press, Type
from uivlm.devices.adb.server import private_server
from uivlm.devices.sim.faults import Faults, UnplugFault
from uivlm.devices.sim.shell import LATIN_KEYBOARD

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clean(adb, tmp_path_factory) -> Run:
    """A run in which nothing goes wrong: what all others are measured by."""
    run = Run(adb, tmp_path_factory.mktemp("clean") / "run")
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE
    return run


# -- unplugged -----------------------------------------------------------------------------------------------

ACTING = ("input", "am", "ime enable")  # how the lines begin that must not be given twice


def stages(clean: Run) -> list[tuple[int, str]]:
    """One command of each sort, with its index: screenshots, dumpsys, taps, text, keyboards, broadcasts."""
    kinds = {
        tuple(line.split()[:2]): (at, line) for at, line in reversed([*enumerate(clean.shell.command_lines)])
    }
    assert len(kinds) == 12
    return sorted(kinds.values())


@pytest.mark.parametrize("during", [False, True])
def test_unplugged_at_each_stage_for_good(adb, clean, tmp_path, during):
    for at, line in stages(clean):
        run = Run(adb, tmp_path / str(at), Faults(unplug=UnplugFault(at, during)), patience_s=0.2)
        assert run.outcome.status == "device_error", line
        assert "not repeated" in run.outcome.message or "is gone" in run.outcome.message
        assert run.phone.gestures == DONE[: len(run.phone.gestures)]
        assert len(run.shell.command_lines) == at + during  # nothing came after


@pytest.mark.parametrize("during", [False, True])
def test_unplugged_at_each_stage_and_plugged_in_again(adb, clean, tmp_path, during):
    """What only asks is asked again and the run goes on; what acts ends it, for it may have been done."""
    for at, line in stages(clean):
        unplug = UnplugFault(at, during, reconnect_after_s=0.05)
        run = Run(adb, tmp_path / str(at), Faults(unplug=unplug), patience_s=10.0)
        if line.startswith(ACTING):
            assert run.outcome.status == "device_error", line
            assert "not repeated" in run.outcome.message
            assert run.phone.gestures == DONE[: len(run.phone.gestures)]
        else:
            assert run.outcome.status == "complete", line
            assert run.phone.gestures == DONE


def test_the_users_keyboard_is_back_after_a_short_loss(adb, clean, tmp_path):
    (at,) = (i for i, line in enumerate(clean.shell.command_lines) if line.startswith("am broadcast"))
    run = Run(
        adb,
        tmp_path / "run",
        Faults(unplug=UnplugFault(at, mid_output=True, reconnect_after_s=0.1)),
        patience_s=10.0,
    )
    assert run.outcome.status == "device_error"
    assert run.shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD


# -- adb's server --------------------------------------------------------------------------------------------


def kill_server(run: Run) -> None:
    (pid,) = processes(f"-L tcp:localhost:{run.adb.options[-1]} ")
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("t", range(len(ACTIONS) - 1))
def test_adbs_server_killed_before_a_screen_and_before_a_gesture(adb, tmp_path, t):
    run = Run(adb, tmp_path / "screen", patience_s=10.0, before_screen={t: kill_server})
    assert run.outcome.status == "complete"
    assert run.phone.gestures == DONE
    run = Run(adb, tmp_path / "gesture", patience_s=10.0, before_gesture={t: kill_server})
    if isinstance(ACTIONS[t], Type | Press) and t != 2:
        assert run.outcome.status == "device_error"
        assert "not repeated" in run.outcome.message
        assert len(run.outcome.steps) == t
    else:  # something is asked before it is done, which starts the server again
        assert run.outcome.status == "complete"
        assert run.phone.gestures == DONE


def test_a_users_server_killed_is_not_started_again(tmp_path):
    with private_server() as server:
        theirs = replace(server, ensure_running=lambda: None)
        run = Run(theirs, tmp_path / "run", before_screen={1: kill_server}, patience_s=0.3)
        assert run.outcome.status == "device_error"
        assert "adb server does not answer" in run.outcome.message
        assert processes(f":{server.options[-1]} ") == {}

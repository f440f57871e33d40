"""A run whose terminal closes while it types: the trace is finished, and the phone has its keyboard back."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.console_client import Scripted
from tests.helpers.fake_phone import FakePhone
from tests.helpers.paths import ROOT
from uivlm.actions.action import Type
from uivlm.devices.adb.server import private_server
from uivlm.devices.sim.adbd import serve_adb
from uivlm.devices.sim.shell import LATIN_KEYBOARD, Shell
from uivlm.serving.server import serve_in_thread

POLICY = "[safety]\nconfirm_apps = []\nconfirm_labels = []\n"


@pytest.mark.slow
def test_a_run_whose_terminal_closes_restores_the_phone(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    agent, shell = Scripted(Type("é" * 10_000)), Shell(FakePhone())
    with private_server() as adb, serve_adb(shell) as port, serve_in_thread({"typing": agent}) as url:
        words = [
            *("run", "go", "--agent", url, "--device", "adb", "--serial", f"127.0.0.1:{port}"),
            *("--policy", "policy.toml", "--trace-dir", "trace"),
        ]
        terminal, inner = pty.openpty()
        run = subprocess.Popen(
            [sys.executable, "-c", CONTROLLED, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "ANDROID_ADB_SERVER_PORT": adb.options[-1]},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        until = time.monotonic() + 60
        while not any(line.startswith("am broadcast") for line in shell.command_lines):
            assert time.monotonic() < until
            assert run.poll() is None, os.read(terminal, 1 << 16).decode()
            time.sleep(0.005)
        os.close(terminal)
        run.wait(30)
    info = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert (info["status"], info["num_steps"]) == ("interrupted", 1)
    assert shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD


# The pseudo-terminal becomes the terminal that controls the process, as in a terminal's window.
CONTROLLED = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` would ignore it here, too
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from uivlm.cli.main import main
main()
"""

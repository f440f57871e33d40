"""The verbs that run agents, on the simulated phone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from PIL import Image

from tests.helpers.command_line import Scripted, Uivlm, refused
from tests.helpers.paths import ROOT
from uivlm.actions.action import Finish
from uivlm.devices.adb.server import private_server
from uivlm.devices.sim.tasks import make_task
from uivlm.rollout.loop import EXIT_STATUS
from uivlm.serving.server import serve_in_thread


@pytest.mark.parametrize(
    ("agent", "max_steps", "status"),
    [
        (Scripted(Finish("complete")), 5, 0),
        (Scripted(Finish("impossible")), 5, 3),
        (Scripted(Finish("complete"), presses=9), 2, 4),
    ],
)
def test_run_on_the_simulated_phone(uivlm: Uivlm, agent: Scripted, max_steps: int, status: int) -> None:
    with serve_in_thread({"scripted": agent}) as address:
        exit_status, out, err = uivlm(
            "run", "go [red]home", "--agent", address, "--max-steps", str(max_steps), "--trace-dir", "trace"
        )
    assert exit_status == status, err
    assert "goal: go [red]home" in out
    rows = [json.loads(row) for row in Path("trace/trace.jsonl").read_text().splitlines()]
    assert len(rows) == min(max_steps, agent.presses + 1)
    assert rows[0]["gesture"] == {"type": "key", "key": "home"}
    assert Path("trace/index.html").is_file()


def test_run_a_task(uivlm: Uivlm, url: str) -> None:
    """The phone judges: pressing home does not reach this goal."""
    number = next(n for n in range(1000) if make_task(n, "test").template_name == "message")
    status, out, _ = uivlm("run", "--sim-task", str(number), "--agent", url)
    assert status == 0  # the agent did say complete
    assert f"goal: {make_task(number, 'test').goal}" in out
    assert "goal not reached" in out
    assert len(list(Path("runs/trace").iterdir())) == 1


def test_live(uivlm: Uivlm, url: str) -> None:
    status, out, err = uivlm(
        "eval-online", url, "--num-goals", "2", "--num-seeds", "2", "--trace-dir", "traces"
    )
    assert status == 0, err
    assert "of 4 goals" in out
    assert "seed 1" in out
    assert sorted(path.name for path in Path("traces").iterdir()) == ["0", "1", "index.html"]
    assert sorted(path.name for path in Path("traces/1").iterdir()) == ["0000", "0001"]
    assert json.loads(Path("traces/1/0001/run.json").read_text())["task_success"] is False
    assert Path("traces/index.html").read_text().count("<tr>") == 5


def test_a_policy_holds(uivlm: Uivlm, url: str) -> None:
    """The agent presses home, which the policy's list of apps does not allow where it starts."""
    Path("policy.toml").write_text('[safety]\nallow_apps = ["com.android.deskclock"]\n')
    status, out, _ = uivlm("run", "go", "--agent", url, "--policy", "policy.toml", "--trace-dir", "trace")
    assert status == EXIT_STATUS["denied"]
    assert "the policy does not allow" in out
    assert json.loads(Path("trace/run.json").read_text())["status"] == "denied"
    Path("policy.toml").write_text("[safety]\nalow = []\n")
    assert "policy.toml: safety.alow" in refused(
        uivlm("run", "go", "--agent", url, "--policy", "policy.toml")
    )


@pytest.mark.parametrize(
    "words", [("run", "go"), ("console", "--port", "0"), ("replay", "trace")], ids=lambda words: words[0]
)
def test_a_secret_without_its_variable_is_refused_before_anything_opens(
    uivlm: Uivlm, url: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert uivlm("run", "go home", "--agent", url, "--trace-dir", "trace")[0] == 0
    Path("policy.toml").write_text('[secrets]\npin = {env = "UIVLM_TEST_PIN", apps = ["sim.*"]}\n')
    monkeypatch.delenv("UIVLM_TEST_PIN", raising=False)
    opened: list[str] = []

    def opens(name: str) -> Callable[..., NoReturn]:
        def open_it(*_: object, **__: object) -> NoReturn:
            opened.append(name)
            raise AssertionError(name)

        return open_it

    for name in ("agents.open_agent", "devices.open_device"):
        monkeypatch.setattr(f"uivlm.cli.{name}", opens(name))
    monkeypatch.setattr("uivlm.console.server.console", opens("console"))
    before = sorted(Path().rglob("*"))
    sentence = refused(uivlm(*words, "--policy", "policy.toml"))
    assert "secrets.pin: the environment variable UIVLM_TEST_PIN is not set" in sentence
    assert opened == []
    assert sorted(Path().rglob("*")) == before
    monkeypatch.setenv("UIVLM_TEST_PIN", "1234")
    with pytest.raises(AssertionError, match="open_"):  # with the variable, it goes on to open
        uivlm(*words, "--policy", "policy.toml")


def test_a_run_is_done_again_and_filmed(uivlm: Uivlm, url: str) -> None:
    assert uivlm("run", "go home", "--agent", url, "--sim-seed", "3", "--trace-dir", "trace")[0] == 0
    status, _, err = uivlm("replay", "trace", "--sim-seed", "3", "--trace-dir", "again")
    assert status == 0, err
    assert json.loads(Path("again/run.json").read_text())["metadata"]["replay_of"] == "trace"
    assert (
        uivlm("replay", "trace", "--sim-seed", "4", "--trace-dir", "other")[0] == EXIT_STATUS["agent_error"]
    )
    assert "nowhere is not a trace" in refused(uivlm("replay", "nowhere"))
    status, _, err = uivlm("gif", "trace", "trace.gif")
    assert status == 0, err
    with Image.open("trace.gif") as image:
        assert image.format == "GIF"
        assert getattr(image, "n_frames", 1) == 2
    assert "GIF" in refused(uivlm("gif", "trace", "trace.mp4"))


def test_doctor_finds_no_phone(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_server() as adb:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", adb.options[-1])
        status, out, _ = uivlm("doctor")
    assert status == 1
    assert "no phone" in out


def _heed_interrupts() -> None:
    """A shell lets its background jobs ignore SIGINT, and so their children, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
def test_a_run_ends_on_request(signal_name: str, url: str, tmp_path: Path) -> None:
    """Whole trace, its own status, and no adb server left."""
    command = [
        sys.executable,
        "-m",
        "uivlm",
        "run",
        "go",
        "--agent",
        url,
        "--max-steps",
        "100000",
        "--trace-dir",
        "trace",
    ]
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "[safety]\nconfirm_apps = []\nconfirm_labels = []\nmax_repeats = 100000\nmax_steps = 100000\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with serve_in_thread({"slow": Scripted(Finish("complete"), 100_000, seconds=0.3)}) as slow:
        command[command.index(url)] = slow
        run = subprocess.Popen(
            [*command, "--policy", str(policy)],
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            preexec_fn=_heed_interrupts,
        )
        rows = tmp_path / "trace" / "trace.jsonl"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (rows.is_file() and rows.stat().st_size):
            time.sleep(0.05)
        servers = psutil.Process(run.pid).children(recursive=True)
        assert servers, "the run's own adb server"
        run.send_signal(getattr(signal, signal_name))
        out, _ = run.communicate(timeout=30)
    assert run.returncode == EXIT_STATUS["interrupted"], out
    run_info = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert run_info["status"] == "interrupted"
    assert run_info["num_steps"] == len(rows.read_text().splitlines())
    assert not psutil.wait_procs(servers, timeout=10)[1]


WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "peft", "tokenizers", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from uivlm.cli.main import main
main()
"""


def without_torch(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", WITHOUT_TORCH, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(program, capture_output=True, text=True, cwd=cwd, timeout=60, env=environment)


@pytest.mark.slow
def test_a_phone_host_runs_without_torch(url: str, tmp_path: Path) -> None:
    done = without_torch("run", "go home", "--agent", url, "--trace-dir", "trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace" / "index.html").is_file()


def test_the_missing_extra_is_named(tmp_path: Path) -> None:
    done = without_torch("serve", "checkpoint", cwd=tmp_path)
    assert done.returncode == 2
    assert "`model` extra" in done.stderr
    assert "Traceback" not in done.stderr

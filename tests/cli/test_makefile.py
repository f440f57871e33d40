"""The Makefile's targets, expanded by `make -n`: what they pass to the commands."""

import shlex
import shutil
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def expand(*arguments: str) -> list[str]:
    """The words of the last command that a target runs."""
    command = ["make", "-n", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return shlex.split(result.stdout.replace("\\\n", " ").splitlines()[-1])


def settings_of(words: list[str]) -> list[str]:
    return [value for name, value in zip(words, words[1:], strict=False) if name == "--set"]


@pytest.mark.parametrize("gpus", ["", "2", "8"])
def test_finetune_passes_settings_on(gpus: str) -> None:
    settings = "model.base_model=/models/qwen optim.lr=3e-4"
    words = expand("finetune", "RECIPE=qwenvl", "DATA=/data", f"SET={settings}", f"GPUS={gpus}", "RESUME=1")
    assert settings_of(words) == [
        "data.path=/data", "train.seed=0", "model.base_model=/models/qwen", "optim.lr=3e-4",
    ]  # fmt: skip
    assert words[words.index("train") + 1] == "qwenvl"
    assert words[-3:] == ["--resume", "--out", "runs/qwenvl"]
    assert ("--nproc-per-node" in words) == bool(gpus)
    if gpus:
        assert words[words.index("--nproc-per-node") + 1] == gpus


def test_finetune_by_default() -> None:
    words = expand("finetune", "DATA=/data", "SEED=3", "OUT=mine")
    assert words[1:5] == ["-m", "uivlm", "train", "tiny"]
    assert settings_of(words) == ["data.path=/data", "train.seed=3"]


def test_limits_have_a_unit() -> None:
    run = expand("run", "GOAL=Open the Clock app", "AGENT=http://127.0.0.1:1", "MAX_STEPS=7")
    assert run[run.index("run") + 1] == "Open the Clock app"
    assert run[run.index("--max-steps") + 1] == "7"
    assert run[run.index("--sim-seed") + 1] == "0"
    assert "--sim-seed" not in expand("run", "GOAL=go", "AGENT=http://127.0.0.1:1", "DEVICE=adb")
    online = expand("live", "CKPT=/ckpt", "NUM_GOALS=5")
    assert online[online.index("eval-online") + 1] == "/ckpt"
    assert online[online.index("--num-goals") + 1] == "5"
    offline = expand("eval", "CKPT=/ckpt", "DATA=/data", "MAX_EPISODES=4", "FREE_RUNNING=1")
    assert offline[offline.index("--max-episodes") + 1] == "4"
    assert "--free-running" in offline


def test_measurements_on_a_gpu() -> None:
    assert expand("bench-gpu")[1:] == ["bench/gpu/all.py", "runs/bench-gpu"]
    assert expand("bench-gpu", "OUT=mine")[1:] == ["bench/gpu/all.py", "mine"]


def test_faults_and_attacks() -> None:
    assert expand("bench-faults")[1:] == ["bench/faults/all.py"]


def test_quick_tests_leave_out_slow_ones() -> None:
    quick, full = expand("test-quick"), expand("test")
    assert quick[quick.index("-m", 3) + 1] == "not slow and not exhaustive"
    assert "not slow" not in " ".join(full)

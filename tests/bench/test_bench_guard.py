"""bench/guard.py runs and prints its figures."""

import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT


@pytest.mark.slow
def test_the_program_prints_recall_and_false_asks() -> None:
    command = [sys.executable, str(ROOT / "bench" / "guard.py"), "--mistakes"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    for text in ("recall, held out", "zero width", "200 simulated episodes", "recorded", "harmless en-"):
        assert text in done.stdout

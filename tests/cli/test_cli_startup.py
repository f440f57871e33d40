"""The start of the command: help and mistakes are printed before the slow packages are imported."""

import subprocess
import sys

SLOW = ("numpy", "pydantic", "pyarrow", "PIL", "rapidfuzz", "torch", "transformers")


def test_the_help_needs_no_slow_package() -> None:
    code = (
        "import sys; from uivlm.cli import main\n"
        "try: main.app(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {SLOW} if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "train" in run.stdout
    assert run.stderr == "[]\n"

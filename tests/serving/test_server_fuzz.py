"""schemathesis sends what the server's description allows and what it does not: never a status 500."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.served import HeldAgent
from uivlm.serving.server import serve_in_thread

pytestmark = pytest.mark.slow


def test_no_request_makes_the_server_fail(tmp_path: Path) -> None:
    checks = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
    agent = HeldAgent()
    agent.release.set()
    with serve_in_thread({"tiny": agent}, {"bins": 100}) as url:
        run = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json",
                "--checks", ",".join(checks),
                "--max-examples", "20", "--seed", "1", "--generation-database", "none",
            ],
            capture_output=True, text=True, cwd=tmp_path, timeout=300, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "passed" in run.stdout
    assert "failed" not in run.stdout

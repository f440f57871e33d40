"""Silent and slow connections: they end in time, and leave the server free to answer others."""

import asyncio
import errno
import logging
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.applications import Starlette

from tests.helpers.paths import ROOT
from tests.helpers.raw_requests import answer, line
from tests.helpers.served import released_agent
from uivlm.serving import connections
from uivlm.serving.connections import MAX_CONNECTIONS, connection_limit
from uivlm.serving.listen import LimitedServer
from uivlm.serving.server import serve_in_thread

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.slow
def test_silent_connections_leave_the_server_free(tmp_path: Path) -> None:
    """More of them than the process may have files."""
    program = [sys.executable, "-m", "tests.helpers.server_under_file_limit", "256"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as server,
        ExitStack() as lines,
    ):
        lines.callback(server.kill)
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        for i in range(260):
            lines.enter_context(line(url, *([b"POST /act HTT"] if i % 2 else [])))
        start = time.monotonic()
        assert answer(lines.enter_context(line(url, HEALTH))).startswith(b"HTTP/1.1 200")
        elapsed_s = time.monotonic() - start
    assert elapsed_s < 1
    assert (tmp_path / "log").read_text() == ""


def test_a_head_that_does_not_arrive_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, and one after an answer: a byte of it ends uvicorn's own wait."""
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.3)
    with (
        serve_in_thread({"tiny": released_agent()}) as url,
        line(url) as silent,
        line(url, b"GET /hea") as half,
        line(url, HEALTH) as second,
    ):
        assert answer(second).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /hea")
        assert [answer(each) for each in (silent, half, second)] == [b"", b"", b""]


def test_the_longest_silent_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    with (
        serve_in_thread({"tiny": released_agent()}) as url,
        line(url, HEALTH) as first,
        line(url, HEALTH) as second,
    ):
        assert answer(first).startswith(b"HTTP/1.1 200")
        assert answer(second).startswith(b"HTTP/1.1 200")
        with line(url, HEALTH) as third:
            assert answer(third).startswith(b"HTTP/1.1 200")
            assert answer(first) == b""
            second.sendall(HEALTH)
            assert answer(second).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("soft", "limit"),
    [(1024, 512), (256, 128), (10**6, MAX_CONNECTIONS), (resource.RLIM_INFINITY, MAX_CONNECTIONS)],
)
def test_connections_leave_room_for_files(soft: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert connection_limit() == limit


def test_the_log_names_the_limit_of_files_once(caplog: pytest.LogCaptureFixture) -> None:
    server, loop = LimitedServer(Starlette()), asyncio.new_event_loop()
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "many"),
    }
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            server.report_error(loop, context)
        assert [record.message for record in caplog.records] == [
            "cannot accept connections: no file descriptor is free; raise the limit (ulimit -n)"
        ]
        server.report_error(loop, {"message": "another defect"})
    loop.close()
    assert "another defect" in caplog.text

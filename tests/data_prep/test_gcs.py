"""Shards in a bucket: gcsfs itself against an emulator of Google's store, and against servers that refuse."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data_prep.__main__ import prepare
from data_prep.settings import PrepSettings
from data_prep.source_files import list_files, open_binary
from tests.helpers.prepared_data import FIXTURE, content, made, refused

gcsfs = pytest.importorskip("gcsfs", reason="gcsfs is not installed")
emulator = pytest.importorskip("gcp_storage_emulator.server", reason="the emulator is not installed")


@contextmanager
def store_at(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """gcsfs, here and in processes that are started from here, speaks to this address."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    monkeypatch.setenv(
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false"
    )  # it asks by gRPC, which the emulator lacks
    gcsfs.GCSFileSystem.clear_instance_cache()
    try:
        yield
    finally:
        gcsfs.GCSFileSystem.clear_instance_cache()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The fixture's shards in a bucket."""
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="shards")
    server.start()
    host, port = server._api._httpd.socket.getsockname()
    try:
        with store_at(f"http://{host}:{port}", monkeypatch):
            files = gcsfs.GCSFileSystem()
            for path in FIXTURE.rglob("*-of-*"):
                files.pipe(f"shards/aitw/{path.relative_to(FIXTURE)}", path.read_bytes())
            yield "gs://shards/aitw"
    finally:
        server.stop()


@contextmanager
def refusing(status: int) -> Iterator[str]:
    """A server that answers everything with this status."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"error": {"code": %d, "message": "log in again"}}' % status
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # who knows enough by the status hangs up
                self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://{}:{}".format(*server.server_address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_shards_of_a_bucket_give_the_same_bytes(bucket: str, tmp_path: Path, workers: int) -> None:
    near = made(FIXTURE, tmp_path / "near")
    far = prepare(bucket, tmp_path / "far", PrepSettings(), workers)
    assert content(tmp_path / "far") == content(tmp_path / "near")
    assert far["steps"] == near["steps"] > 0
    one = next(file for file in list_files(bucket))
    with open_binary(one.path) as file:
        assert file.read() == (FIXTURE / one.name).read_bytes()


def test_a_bucket_that_is_not_there(bucket: str, tmp_path: Path) -> None:
    for where in ("gs://nobody/aitw", f"{bucket}/none"):
        assert f"there is no folder or file {where}" in refused(tmp_path, where, str(tmp_path / "out"))


@pytest.mark.parametrize(("status", "message"), [(401, "log in again"), (403, "Forbidden")])
def test_a_store_that_refuses(
    status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gcsfs' error for 401 is no OSError: an expired login would have ended in a traceback."""
    with refusing(status) as url, store_at(url, monkeypatch):
        assert message in refused(tmp_path, "gs://shards/aitw", str(tmp_path / "out"))
        with pytest.raises(OSError, match=message):
            open_binary("gs://shards/aitw/general-00000-of-00001")

"""Serve a folder of web pages on a loopback port: the folder in, its address out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve a folder at http://127.0.0.1:PORT until the block ends. No other machine can reach it."""
    if not folder.is_dir():
        raise ValueError(f"the folder {folder} to serve does not exist")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

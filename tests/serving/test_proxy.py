"""The TLS proxy of docs/serving.md, as it is written there but for ports and files."""

import getpass
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.helpers.paths import ROOT
from tests.helpers.served import JSON, released_agent, small_history
from uivlm.agents.agent import AgentError
from uivlm.serving.client import RemoteAgent
from uivlm.serving.server import serve_in_thread

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl"),
]


@contextmanager
def proxy(url: str, folder: Path) -> Iterator[str]:
    """The address of the documented proxy in front of a server. Its certificate is `folder/cert.pem`."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {certificate}"
    names = ("-addext", "subjectAltName=DNS:localhost")
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    match = re.search(r"```nginx\n(.*?)```", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.S)
    assert match
    server = match[1].replace("listen 443", f"listen 127.0.0.1:{port}").replace("http://127.0.0.1:8000", url)
    server = re.sub(r"/etc/ssl/certs/\S+;", f"{certificate};", server)
    server = re.sub(r"/etc/ssl/private/\S+;", f"{key};", server)
    paths = "".join(
        f"{kind}_temp_path {folder / kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"user {getpass.getuser()}; daemon off; pid {folder / 'pid'}; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {paths}\n{server} }}"
    )
    with subprocess.Popen(
        [NGINX or "", "-e", "stderr", "-c", str(config)], stderr=subprocess.PIPE, text=True
    ) as nginx:
        try:
            wait_for_port(port, nginx)
            yield f"https://localhost:{port}"
        finally:
            nginx.terminate()


def wait_for_port(port: int, nginx: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < until
            assert nginx.poll() is None, nginx.communicate()
            time.sleep(0.02)
        else:
            return


def test_the_documented_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_in_thread({"tiny": released_agent()}, api_key="s3cret") as url, proxy(url, tmp_path) as public:
        with RemoteAgent(public, 20) as stranger, pytest.raises(AgentError, match="certificate"):
            stranger.health()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with RemoteAgent(public, 20, api_key="s3cret") as remote:
            assert remote.act(small_history(2)).text == "tap at 2 7"
        with RemoteAgent(public, 20) as stranger, pytest.raises(AgentError, match="status 401"):
            stranger.act(small_history())
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        large = b" " * (2 << 20)  # nginx's own limit is 1 MiB
        with httpx.Client(base_url=public, verify=trusting, timeout=20, trust_env=False) as client:
            key = {"authorization": "Bearer s3cret"}
            assert client.post("/act", content=large, headers=JSON | key).status_code == 422

"""RemoteAgent: what it sends, and what it makes of a server's answers."""

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from PIL import Image

from tests.helpers.served import CountingPhone, ScriptByLength, released_agent, small_history, small_screen
from uivlm.actions.action import Finish, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import Element, History, Step
from uivlm.rollout.loop import run_episode
from uivlm.serving.client import MAX_ANSWER_BYTES, RemoteAgent
from uivlm.serving.protocol import EncodedScreen, Timings, write_decision
from uivlm.serving.server import serve_in_thread


def answering(body: bytes, status: int = 200):
    """A client whose server always gives this answer."""
    remote = RemoteAgent("http://phone.test")
    remote._http = httpx.AsyncClient(
        base_url="http://phone.test",
        transport=httpx.MockTransport(lambda _: httpx.Response(status, stream=httpx.ByteStream(body))),
    )
    return remote


def valid_decision() -> dict:
    decision = Decision(Finish("complete"), "complete", 0.5, 0.5)
    return json.loads(write_decision(decision, (12, 9), Timings(1.0, 2.0, 1)))


INVALID_DECISIONS = {
    "empty": b"",
    "not JSON": b"<html>",
    "a list": b"[]",
    "coordinate NaN": {"action": {"type": "tap", "at": {"y": 0.5, "x": float("nan")}}},
    "unknown status": {"action": {"type": "finish", "status": "done"}},
    "confidence above 1": {"confidence": 2},
    "action type confidence below 0": {"action_type_confidence": -0.1},
    "unknown gesture": {"gesture": {"type": "keys", "text": ""}},
    "empty timings": {"timings": {}},
    "unknown field": {"words": "complete"},
    **{f"no {name}": name for name in valid_decision()},
}


@pytest.mark.parametrize("name", INVALID_DECISIONS)
def test_an_invalid_decision_is_an_agent_error(name: str) -> None:
    assert answering(json.dumps(valid_decision()).encode()).act(small_history(1)).text == "complete"
    body = valid_decision()
    match INVALID_DECISIONS[name]:
        case bytes(data):
            body = data
        case str(field):
            del body[field]
        case changed:
            body |= changed
    with pytest.raises(AgentError, match="invalid answer from the server at http://phone.test: decision"):
        answering(body if isinstance(body, bytes) else json.dumps(body).encode()).act(small_history(1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"status": "ok", "checkpoint": "tiny", "grammar": {"bins": 100}}',  # uivlm 0.1
        b'{"status": "ok", "protocol_version": 3, "checkpoint": "tiny", "prompt_format": {}}',
        b'{"status": "no", "protocol_version": 2, "checkpoint": "tiny", "prompt_format": {}}',
    ],
)
def test_another_server_or_protocol_is_an_agent_error(body: bytes) -> None:
    with pytest.raises(AgentError, match="http://phone.test.*release"):
        answering(body).health()


def test_a_client_with_a_wrong_address():
    for url in ("localhost:8000", "ftp://x", "", "http://a:b:c"):
        with pytest.raises(ValueError, match="server URL: got"):
            RemoteAgent(url)


def test_a_slow_server_is_an_agent_error():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "http://{}:{}".format(*silent.getsockname())
        with (
            RemoteAgent(url, timeout_s=0.1) as remote,
            pytest.raises(AgentError, match="did not answer in time"),
        ):
            remote.act(small_history())


@contextmanager
def server_that_sends(*parts: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """The URL of a server that answers one request with these bytes, and then says nothing."""
    gone = threading.Event()

    def send(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            for part in parts:
                connection.sendall(part)
                gone.wait(pause_s)
            gone.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=send, args=(listener,))
        thread.start()
        try:
            yield "http://{}:{}".format(*listener.getsockname())
        finally:
            gone.set()
            thread.join()


def test_an_endless_answer_is_cut() -> None:
    """The size is not believed, and nothing is unpacked: a gzip of blanks is a thousand times smaller."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 3000000000\r\n\r\n"
    with (
        server_that_sends(head, b" " * (MAX_ANSWER_BYTES + 1)) as url,
        RemoteAgent(url, 20) as remote,
        pytest.raises(AgentError, match=f"{url} sent more than {MAX_ANSWER_BYTES} bytes"),
    ):
        remote.act(small_history())
    packed = gzip.compress(b" " * (MAX_ANSWER_BYTES + 1))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    with (
        server_that_sends(head, packed) as url,
        RemoteAgent(url, 20) as remote,
        pytest.raises(AgentError, match="invalid answer"),
    ):
        remote.act(small_history())


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"]
)
def test_an_answer_that_trickles_does_not_extend_the_deadline(head: bytes) -> None:
    with server_that_sends(head, *[b" "] * 100, pause_s=0.1) as url, RemoteAgent(url, 0.5) as remote:
        start = time.monotonic()
        with pytest.raises(AgentError, match="did not answer in time"):
            remote.act(small_history())
        assert time.monotonic() - start < 5


def test_each_screen_is_encoded_once(monkeypatch):
    encoded = []
    save = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda self, *a, **k: encoded.append(1) or save(self, *a, **k))
    with serve_in_thread({"tiny": ScriptByLength()}) as url, RemoteAgent(url) as remote:
        run_episode(remote, CountingPhone(), "goal", 9)
    assert len(encoded) == 5


def test_the_phone_side_needs_no_torch_and_no_server():
    code = (
        "import sys; import uivlm.serving.client, uivlm.rollout.loop, uivlm.rollout.trace_writer;"
        "import uivlm.evaluation.online, uivlm.devices.adb.device;"
        "print([m for m in ('torch', 'transformers', 'fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        == "[]\n"
    )


def test_a_screen_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    stream = httpx.AsyncClient.stream

    def watched(self: httpx.AsyncClient, method: str, path: str, **rest: object) -> object:
        sent.append(str(rest.get("content")).count('"png"'))
        return stream(self, method, path, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx.AsyncClient, "stream", watched)
    past: tuple[Step, ...] = ()
    agent = released_agent()
    with serve_in_thread({"tiny": agent}) as url, RemoteAgent(url) as remote:
        for i in range(4):
            now = History("g", past, small_screen(i, Element(0, 0, 1, 1, str(i))))
            assert remote.act(now).text == f"tap at {i} 7"
            past = (*past, Step(now.screen, Tap(Point(0.5, 0.5))))
        assert sent == [1, 1, 1, 1]
        remote.reset()
        remote.act(now)
        assert sent[4:] == [4]
    # another server, which has none of them: it answers 409, and all are sent
    with serve_in_thread({"tiny": released_agent()}) as other:
        remote = RemoteAgent(other)
        remote._known_digests = frozenset(EncodedScreen.from_screen(step.screen).sha256 for step in past)
        assert remote.act(now).text == "tap at 3 7"
        remote.close()
    assert sent[5:] == [0, 4]

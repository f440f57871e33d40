"""A request from its body to its decision: limits, timeouts, clients that disconnect, a server that stops."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.helpers.served import JSON, HeldAgent, metric_sums, released_agent, small_history, small_screen
from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History, HistoryError
from uivlm.serving import handler
from uivlm.serving.protocol import write_history
from uivlm.serving.screen_cache import screen_bytes
from uivlm.serving.server import create_app, serve_in_thread


def test_the_request_of_a_disconnected_client_is_cancelled() -> None:
    agent = HeldAgent()
    with serve_in_thread({"tiny": agent}) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            httpx.post, f"{url}/act", content=write_history(small_history()), headers=JSON, timeout=20
        )
        assert agent.started.wait(10)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/act", content=write_history(small_history(goal="gone")), headers=JSON, timeout=0.3
            )
        while metric_sums(url)["uivlm_num_requests_running"] > 1:
            time.sleep(0.01)
        agent.release.set()
        assert first.result().status_code == 200
    assert agent.batches == [["g"]]


def test_a_decision_that_takes_too_long_gets_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "DECISION_TIMEOUT_S", 0.2)
    agent = HeldAgent()
    with serve_in_thread({"tiny": agent}) as url:
        answer = httpx.post(f"{url}/act", content=write_history(small_history()), headers=JSON, timeout=20)
        agent.release.set()
    assert (answer.status_code, answer.text) == (503, "no decision within 0.2 s")


@pytest.mark.slow
def test_a_body_that_does_not_arrive_gets_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "BODY_TIMEOUT_S", 0.2)

    def slowly() -> Iterator[bytes]:
        yield b"{"
        time.sleep(1)
        yield b"}"

    with serve_in_thread({"tiny": released_agent()}) as url:
        answer = httpx.post(f"{url}/act", content=slowly(), headers=JSON, timeout=20)
    assert answer.status_code == 408


@pytest.mark.slow
def test_a_server_that_stops_finishes_its_batch_and_rejects_the_queue() -> None:
    agent = HeldAgent()
    with ThreadPoolExecutor(2) as pool:
        with serve_in_thread({"tiny": agent}) as url:

            def ask() -> Future[httpx.Response]:
                return pool.submit(
                    httpx.post, f"{url}/act", content=write_history(small_history()), headers=JSON, timeout=20
                )

            first = ask()
            assert agent.started.wait(10)
            second = ask()
            while metric_sums(url)["uivlm_num_requests_running"] < 2:
                time.sleep(0.01)
            time.sleep(0.2)  # until it waits for its turn
            threading.Timer(1, agent.release.set).start()
        assert first.result().status_code == 200
        refused = second.result()
    assert (refused.status_code, refused.text) == (503, "the server is stopping")
    assert refused.headers["retry-after"] == "10"


def test_the_memory_of_queued_histories_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = small_screen(0)
    assert screen.png  # a screen of a request keeps its PNG
    monkeypatch.setattr(handler, "MAX_HELD_BYTES", 3 * screen_bytes(screen))
    agent = HeldAgent()
    with serve_in_thread({"tiny": agent}) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            httpx.post, f"{url}/act", content=write_history(small_history(1)), headers=JSON, timeout=20
        )
        assert agent.started.wait(10)
        second = httpx.post(f"{url}/act", content=write_history(small_history(1)), headers=JSON, timeout=20)
        assert (second.status_code, second.headers["retry-after"]) == (503, "10")
        agent.release.set()
        assert first.result().status_code == 200
        assert (
            httpx.post(f"{url}/act", content=write_history(small_history(2)), headers=JSON).status_code == 200
        )


def test_a_history_that_gives_no_prompt_gets_422() -> None:
    class NoPromptAgent(HeldAgent):
        def act_batch(self, histories: Sequence[History]) -> list[Decision]:
            raise HistoryError("the prompt has 9 tokens, the model reads 8")

    with TestClient(create_app({"tiny": NoPromptAgent()})) as client:
        answer = client.post("/act", content=write_history(small_history()), headers=JSON)
        assert (answer.status_code, answer.text) == (422, "the prompt has 9 tokens, the model reads 8")


def test_a_client_that_disconnects_within_the_body_is_counted_as_499(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve_in_thread({"tiny": released_agent()}) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            head = f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: 99"
            line.sendall(f"POST /act HTTP/1.1\r\n{head}\r\n\r\n{{".encode())
            while metric_sums(url)["uivlm_num_requests_running"] < 1:
                time.sleep(0.01)
        while metric_sums(url)["uivlm_num_requests_running"]:
            time.sleep(0.01)
        assert 'uivlm_requests_total{path="/act",status="499"} 1.0' in httpx.get(f"{url}/metrics").text
    assert "Traceback" not in caplog.text


def test_other_requests_get_sentences(monkeypatch: pytest.MonkeyPatch):
    with TestClient(create_app({"tiny": released_agent()})) as client:
        for answer, status in (
            (client.get("/act"), 405),
            (client.get("/nothing"), 404),
            (client.get("/docs"), 404),
            (client.post("/act", content=b"{}", headers={"content-type": "text/plain"}), 415),
            (client.post("/act", content=b"{}"), 415),
        ):
            assert answer.status_code == status
            assert answer.headers["content-type"].startswith("text/plain")
            assert answer.text
        monkeypatch.setattr(handler, "MAX_BODY_BYTES", 100)
        too_large = client.post("/act", content=b" " * 101, headers=JSON)
        assert too_large.status_code == 413
        assert "more than 100 bytes" in too_large.text

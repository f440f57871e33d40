"""What every request passes: API key, Host, number in flight, metrics."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.helpers.served import JSON, HeldAgent, metric_sums, released_agent, small_history
from uivlm.agents.agent import AgentError
from uivlm.cli import agents
from uivlm.serving.client import RemoteAgent
from uivlm.serving.protocol import write_history
from uivlm.serving.server import create_app, serve, serve_in_thread


def test_every_path_but_health_needs_the_api_key() -> None:
    with TestClient(create_app({"tiny": released_agent()}, api_key="s3cret")) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            for path in ("/act", "/v1/chat/completions"):
                assert client.post(path, content=b"{}", headers=JSON | headers).status_code == 401
            for path in ("/metrics", "/v1/models", "/openapi.json", "/nothing"):
                assert client.get(path, headers=headers).status_code == 401
        assert client.get("/health").status_code == 200
    with serve_in_thread({"tiny": released_agent()}, api_key="s3cret") as url:
        with RemoteAgent(url, api_key="s3cret") as remote:
            assert remote.act(small_history()).text == "tap at 0 7"
        with RemoteAgent(url) as remote, pytest.raises(AgentError, match="status 401"):
            remote.act(small_history())


def test_without_an_api_key_the_server_listens_on_loopback_alone() -> None:
    with pytest.raises(ValueError, match="0.0.0.0.*UIVLM_API_KEY"):
        serve({"tiny": released_agent()}, host="0.0.0.0", port=0)
    with serve_in_thread({"tiny": released_agent()}) as url:  # a web page whose name was bent to this address
        assert httpx.get(f"{url}/health", headers={"host": "evil.example:8000"}).status_code == 400
        assert httpx.get(f"{url}/health", headers={"host": "localhost:8000"}).status_code == 200


def test_one_request_too_many_gets_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not held up: those that are here are answered."""
    monkeypatch.setattr("uivlm.serving.server.MAX_REQUESTS", 3)
    agent = HeldAgent()
    with serve_in_thread({"tiny": agent}) as url, ThreadPoolExecutor(3) as pool:
        body = write_history(small_history())
        waiting = [
            pool.submit(httpx.post, f"{url}/act", content=body, headers=JSON, timeout=20) for _ in range(3)
        ]
        while metric_sums(url)["uivlm_num_requests_running"] < 3:
            time.sleep(0.01)
        refused = httpx.post(f"{url}/act", content=body, headers=JSON)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "3 requests in flight" in refused.text
        assert httpx.get(f"{url}/health").status_code == 200
        agent.release.set()
        assert [response.result().status_code for response in waiting] == [200] * 3


def test_what_is_counted() -> None:
    with serve_in_thread({"tiny": released_agent()}) as url:
        with RemoteAgent(url) as remote:
            for steps in (0, 1, 2):
                remote.act(small_history(steps))
        httpx.post(f"{url}/act", content=b"{", headers=JSON)
        httpx.get(f"{url}/no/such/path/{time.time()}")
        text = httpx.get(f"{url}/metrics").text
        sums = metric_sums(url)
    assert 'uivlm_requests_total{path="/act",status="200"} 3.0' in text
    assert 'uivlm_requests_total{path="/act",status="422"} 1.0' in text
    assert 'uivlm_requests_total{path="other",status="404"} 1.0' in text  # paths of others make no new lines
    assert 'uivlm_decisions_total{action_type="tap"} 3.0' in text
    assert sums["uivlm_batch_size_count"] == 3
    assert sums["uivlm_request_inference_time_seconds_count"] == 3
    assert sums["uivlm_request_queue_time_seconds_count"] == 3
    assert sums["uivlm_e2e_request_latency_seconds_count"] >= 5


@pytest.mark.parametrize(("value", "key"), [("", None), (" \n", None), ("s3cret\n", "s3cret")])
def test_the_api_key_of_the_environment(value: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIVLM_API_KEY", value)
    assert agents.server_api_key() == key


def test_an_api_key_that_is_not_ascii_is_an_error_that_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIVLM_API_KEY", "geh\u00e4im")
    with pytest.raises(ValueError, match="UIVLM_API_KEY.*printable ASCII") as refused:
        agents.server_api_key()
    assert "geh" not in str(refused.value)

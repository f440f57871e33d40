"""A served agent decides as the local one; the server starts, stops and describes itself."""

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import jsonschema
import pytest
from fastapi.testclient import TestClient

from tests.helpers.served import (
    JSON,
    ChecksumAgent,
    CountingPhone,
    HeldAgent,
    ScriptByLength,
    random_history,
    released_agent,
    same_history,
    small_history,
)
from uivlm.actions.action import Point, Tap
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import PressKey
from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import History
from uivlm.rollout.loop import run_episode
from uivlm.serving.client import RemoteAgent
from uivlm.serving.protocol import VERSION, Health, write_history
from uivlm.serving.server import create_app, serve, serve_in_thread


class FailingAgent:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        raise self.error


@pytest.mark.slow
def test_the_served_agent_decides_as_the_local_one():
    local, remote_end = ChecksumAgent(), ChecksumAgent()
    action_types = set()
    with serve_in_thread({"tiny": remote_end}, {"num_bins": 100}) as url, RemoteAgent(url) as remote:
        assert remote.health() == Health("ok", VERSION, "tiny", {"num_bins": 100})
        for i in range(40):
            history = random_history(random.Random(i), i % 6)
            here, there = local.act(history), remote.act(history)
            assert here == there
            action_types.add(here.action.type)
            assert same_history(remote_end.histories[-1], history)
    assert "invalid" in action_types
    assert len(action_types) >= 5


def test_an_episode_with_the_served_agent_is_that_with_the_local_one():
    here, there = CountingPhone(), CountingPhone()
    local = run_episode(ScriptByLength(), here, "goal", 9)
    with serve_in_thread({"tiny": ScriptByLength()}) as url, RemoteAgent(url) as remote:
        served = run_episode(remote, there, "goal", 9)
        again = run_episode(remote, CountingPhone(), "goal", 9)
    assert (
        (served.status, served.message)
        == (local.status, local.message)
        == ("complete", "complete after 5 steps")
    )
    assert [step.action for step in served.steps] == [step.action for step in local.steps]
    assert [step.action for step in again.steps] == [step.action for step in local.steps]
    assert there.done == here.done
    assert PressKey("back") in here.done


def test_a_failing_agent_is_one_sentence_without_paths():
    with serve_in_thread({"tiny": FailingAgent(RuntimeError("boom in /secret/model.py"))}) as url:
        answer = httpx.post(
            f"{url}/act",
            content=write_history(small_history()),
            headers=JSON,
        )
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert "RuntimeError" in answer.text
        with RemoteAgent(url) as remote:
            with pytest.raises(AgentError, match="the agent failed"):
                remote.act(small_history())
            outcome = run_episode(remote, CountingPhone(), "goal", 3)
    assert (outcome.status, outcome.exit_status) == ("agent_error", 7)


def test_the_agent_decides_one_thing_at_a_time():
    inside, counts = [], []

    class Slow(ChecksumAgent):
        def act(self, history: History) -> Decision:
            inside.append(1)
            counts.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            return super().act(history)

    histories = [random_history(random.Random(i), 1) for i in range(6)]
    answers: dict[int, Decision] = {}
    with serve_in_thread({"tiny": Slow()}) as url:

        def ask(i: int) -> None:
            with RemoteAgent(url) as remote:
                answers[i] = remote.act(histories[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(counts) == 1
    assert len(counts) == 6
    for i, history in enumerate(histories):
        assert answers[i] == ChecksumAgent().act(history)


def test_serve_says_its_address_and_ends_with_ctrl_c():
    code = (
        "from uivlm.serving.server import serve; from uivlm.agents.agent import Agent;"
        "serve({'tiny': Agent}, {'num_bins': 7}, port=0)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = server.stdout.readline()
        assert line.startswith("serving at http://127.0.0.1:")
        with RemoteAgent(line.split()[-1]) as remote:
            assert remote.health().prompt_format == {"num_bins": 7}
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=20)
    finally:
        server.kill()
    assert server.returncode == 0
    assert errors == ""


def test_a_taken_port_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1:{port}"):
            serve({"tiny": ChecksumAgent()}, port=port)
    with pytest.raises(ValueError, match="cannot listen at"):
        serve({"tiny": ChecksumAgent()}, port=70_000)


def test_a_server_that_ended_leaves_nothing():
    threads = threading.active_count()
    with serve_in_thread({"tiny": ChecksumAgent()}) as url:
        httpx.get(f"{url}/health")
    deadline = time.monotonic() + 10  # the workers of the event loop end by themselves, a moment after it
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads  # an earlier test's may have ended meanwhile
    with (
        RemoteAgent(url) as remote,
        pytest.raises(AgentError, match=rf"{url}.*`uivlm serve`"),
    ):
        remote.health()


class HeldRankingAgent(HeldAgent):
    def top_k(self, history: History, k: int) -> list[Decision]:
        return [Decision(Tap(Point(0.5, i / 10)), f"tap at 50 {i}0", 0.5 / (i + 1), 0.75) for i in range(k)]


def test_candidates_are_sent_on_request() -> None:
    agent = HeldRankingAgent()
    agent.release.set()
    body = write_history(small_history())
    with TestClient(create_app({"tiny": agent})) as client:
        plain = client.post("/act", content=body, headers=JSON).json()
        ranked = client.post("/act?top_k=3", content=body, headers=JSON).json()
        assert plain["candidates"] == []
        candidates = ranked["candidates"]
        assert [item["text"] for item in candidates] == ["tap at 50 00", "tap at 50 10", "tap at 50 20"]
        assert [item["confidence"] for item in candidates] == [0.5, 0.25, pytest.approx(0.5 / 3)]
        assert candidates[1]["action_type_confidence"] == 0.75
        assert candidates[1]["gesture"] == {"type": "touch", "points": [[0, 6]], "duration_ms": 60}
        assert {name: ranked[name] for name in candidates[0]} == candidates[0]
        for wrong in ("-1", "11", "many"):
            answer = client.post(f"/act?top_k={wrong}", content=body, headers=JSON)
            assert answer.status_code == 422
            assert answer.text.startswith("top_k: ")
    with TestClient(create_app({"tiny": released_agent()})) as client:
        refused = client.post("/act?top_k=3", content=body, headers=JSON)
        assert (refused.status_code, refused.text[:6]) == (422, "top_k:")


@pytest.mark.slow
def test_a_request_for_candidates_is_a_batch_of_its_own() -> None:
    agent = HeldRankingAgent()
    with serve_in_thread({"tiny": agent}) as url, ThreadPoolExecutor(4) as pool:
        body = write_history(small_history())

        def ask(path: str) -> Future[httpx.Response]:
            response = pool.submit(httpx.post, f"{url}{path}", content=body, headers=JSON, timeout=20)
            time.sleep(0.2)  # so that they arrive in this order
            return response

        requests = [ask(path) for path in ("/act", "/act", "/act?top_k=2", "/act")]
        agent.release.set()
        answers = [request.result().json() for request in requests]
    assert [answer["timings"]["batch_size"] for answer in answers] == [1, 1, 1, 1]
    assert len(answers[2]["candidates"]) == 2


@pytest.mark.parametrize("top_k", [0, 2])
def test_answers_fit_the_description(top_k: int) -> None:
    agent = HeldRankingAgent()
    agent.release.set()
    with TestClient(create_app({"tiny": agent})) as client:
        components = client.get("/openapi.json").json()["components"]
        body = write_history(small_history(2))
        answer = client.post(f"/act?top_k={top_k}", content=body, headers=JSON).json()
    for name, value in (("HistoryMessage", json.loads(body)), ("DecisionMessage", answer)):
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        jsonschema.validate(value, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value | {"more": 1}, schema)

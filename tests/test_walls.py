"""What every request of a server passes: token, name, sizes, numbers; screens that are named; what is counted."""

import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from agents import Held
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from uivlm.actions.action import Point, Tap
from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import Element, History, Screen, Step
from uivlm.serving import server as serving_server
from uivlm.serving import wire
from uivlm.serving.client import RemoteAgent
from uivlm.serving.pictures import Pictures
from uivlm.serving.server import app, serve, serving
from uivlm.serving.strict import WireError
from uivlm.serving.wire import Packed, UnknownScreenError, read_history, write_history

JSON = {"content-type": "application/json"}


def screen(seed: int, *elements: Element) -> Screen:
    return Screen(np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8), elements)


def history(steps: int = 0, goal: str = "g") -> History:
    past = tuple(Step(screen(i), Tap(Point(0.5, 0.5))) for i in range(steps))
    return History(goal, past, screen(steps))


def ready() -> Held:
    agent = Held()
    agent.let.set()
    return agent


def test_a_token_is_asked_for_everywhere_but_for_health() -> None:
    with TestClient(app(ready(), "tiny", token="s3cret")) as client:
        for brought in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            for path in ("/act", "/v1/chat/completions"):
                assert client.post(path, content=b"{}", headers=JSON | brought).status_code == 401
            for path in ("/metrics", "/v1/models", "/openapi.json", "/nothing"):
                assert client.get(path, headers=brought).status_code == 401
        assert client.get("/health").status_code == 200
    with serving(ready(), "tiny", token="s3cret") as url:
        with RemoteAgent(url, token="s3cret") as remote:
            assert remote.act(history()).words == "tap at 0 7"
        with RemoteAgent(url) as remote, pytest.raises(AgentError, match=r"refused \(401\)"):
            remote.act(history())


def test_without_a_token_it_is_served_to_this_machine_alone() -> None:
    with pytest.raises(ValueError, match="0.0.0.0 can be reached by others"):
        serve(ready(), "tiny", host="0.0.0.0", port=0)
    with serving(ready(), "tiny") as url:  # a web page whose name was bent to this address
        assert httpx.get(f"{url}/health", headers={"host": "evil.example:8000"}).status_code == 400
        assert httpx.get(f"{url}/health", headers={"host": "localhost:8000"}).status_code == 200


def test_too_many_requests_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not held up: those that are here are answered."""
    monkeypatch.setattr("uivlm.serving.server.MOST_REQUESTS", 3)
    agent = Held()
    with serving(agent, "tiny") as url, ThreadPoolExecutor(3) as pool:
        body = write_history(history())
        waiting = [
            pool.submit(httpx.post, f"{url}/act", content=body, headers=JSON, timeout=20) for _ in range(3)
        ]
        while told(url)["uivlm_requests_here"] < 3:
            time.sleep(0.01)
        refused = httpx.post(f"{url}/act", content=body, headers=JSON)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "3 requests are here already" in refused.text
        assert httpx.get(f"{url}/health").status_code == 200
        agent.let.set()
        assert [one.result().status_code for one in waiting] == [200] * 3


def told(url: str) -> dict[str, float]:
    """The sums over all labels."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def test_what_is_counted() -> None:
    with serving(ready(), "tiny") as url:
        with RemoteAgent(url) as remote:
            for steps in (0, 1, 2):
                remote.act(history(steps))
        httpx.post(f"{url}/act", content=b"{", headers=JSON)
        httpx.get(f"{url}/no/such/path/{time.time()}")
        text = httpx.get(f"{url}/metrics").text
        sums = told(url)
    assert 'uivlm_requests_total{path="/act",status="200"} 3.0' in text
    assert 'uivlm_requests_total{path="/act",status="422"} 1.0' in text
    assert 'uivlm_requests_total{path="other",status="404"} 1.0' in text  # paths of others make no new lines
    assert 'uivlm_decisions_total{kind="Tap"} 3.0' in text
    assert sums["uivlm_together_count"] == sums["uivlm_took_seconds_count"] == 3


def test_a_client_that_goes_away_is_not_thought_of() -> None:
    agent = Held()
    with serving(agent, "tiny") as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            httpx.post, f"{url}/act", content=write_history(history()), headers=JSON, timeout=20
        )
        assert agent.begun.wait(10)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/act", content=write_history(history(goal="gone")), headers=JSON, timeout=0.3)
        while told(url)["uivlm_requests_here"] > 1:
            time.sleep(0.01)
        agent.let.set()
        assert first.result().status_code == 200
    assert agent.asked == [["g"]]


def test_a_decision_that_takes_too_long_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_server, "ANSWER_S", 0.2)
    agent = Held()
    with serving(agent, "tiny") as url:
        answer = httpx.post(f"{url}/act", content=write_history(history()), headers=JSON, timeout=20)
        agent.let.set()
    assert (answer.status_code, answer.text) == (503, "there was no decision within 0.2 seconds")


def test_a_body_that_does_not_come_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_server, "BODY_S", 0.2)

    def slowly():
        yield b"{"
        time.sleep(1)
        yield b"}"

    with serving(ready(), "tiny") as url:
        answer = httpx.post(f"{url}/act", content=slowly(), headers=JSON, timeout=20)
    assert answer.status_code == 408


def test_a_server_that_stops_answers_who_waits() -> None:
    agent = Held()
    with ThreadPoolExecutor(1) as pool:
        with serving(agent, "tiny") as url:
            first = pool.submit(
                httpx.post, f"{url}/act", content=write_history(history()), headers=JSON, timeout=20
            )
            assert agent.begun.wait(10)
            threading.Timer(0.3, agent.let.set).start()
        assert first.result().status_code == 200


# -- screens that are named --------------------------------------------------------------------------------------


def test_a_screen_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    post = httpx.Client.request

    def watched(self: httpx.Client, method: str, path: str, **rest: object) -> httpx.Response:
        sent.append(str(rest.get("content")).count('"png"'))
        return post(self, method, path, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx.Client, "request", watched)
    past: tuple[Step, ...] = ()
    agent = ready()
    with serving(agent, "tiny") as url, RemoteAgent(url) as remote:
        for i in range(4):
            now = History("g", past, screen(i, Element(0, 0, 1, 1, str(i))))
            assert remote.act(now).words == f"tap at {i} 7"
            past = (*past, Step(now.screen, Tap(Point(0.5, 0.5))))
        assert sent == [1, 1, 1, 1]
        remote.reset()
        remote.act(now)
        assert sent[4:] == [4]
    # another server, which has none of them: it is told so, and all are sent
    with serving(ready(), "tiny") as other:
        remote = RemoteAgent(other)
        remote._known = frozenset(Packed.of(step.screen).sha256 for step in past)
        assert remote.act(now).words == "tap at 3 7"
        remote.close()
    assert sent[5:] == [0, 4]


def test_a_named_screen_is_the_same_object_and_its_elements_are_its_own() -> None:
    seen = Pictures()
    first = read_history(write_history(history()), seen).screen
    name = Packed.of(screen(0)).sha256
    body = json.loads(write_history(history(), known={name}))
    assert body["screen"] == {"sha256": name, "elements": []}
    assert read_history(json.dumps(body), seen).screen is first
    assert read_history(write_history(history()), seen).screen is first  # sent again, the same
    body["screen"]["elements"] = [{"y": 0, "x": 0, "height": 1, "width": 1, "text": "a", "kind": "TEXT"}]
    other = read_history(json.dumps(body), seen).screen
    assert other.elements[0].text == "a"
    assert other.pixels is first.pixels
    with pytest.raises(UnknownScreenError, match=r"screen.sha256 names a picture that is not kept here"):
        read_history(json.dumps(body), Pictures())


def test_pictures_are_bounded_and_the_least_used_go_first() -> None:
    one = screen(0).pixels.nbytes
    kept = Pictures(3 * one)
    for i in range(3):
        kept.add(str(i), screen(i))
    assert kept.find("0", ()) is not None
    kept.add("3", screen(3))
    assert kept.find("1", ()) is None
    assert kept.bytes == 3 * one
    assert all(kept.find(name, ()) is not None for name in ("0", "2", "3"))
    kept.add("3", screen(3))
    assert kept.bytes == 3 * one


def test_all_screens_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_SEEN", 2 * 12 * 9)
    read_history(write_history(history(2)), Pictures())
    with pytest.raises(WireError, match=r"steps\[2\].screen is one too many"):
        read_history(write_history(history(3)), Pictures())


# -- the likeliest decisions ---------------------------------------------------------------------------------------


class Ranks(Held):
    def rank(self, history: History, most: int) -> list[Decision]:
        return [
            Decision(Tap(Point(0.5, i / 10)), f"tap at 50 {i}0", 0.5 / (i + 1), 0.75) for i in range(most)
        ]


def test_the_likeliest_decisions_are_told_to_who_asks() -> None:
    agent = Ranks()
    agent.let.set()
    body = write_history(history())
    with TestClient(app(agent, "tiny")) as client:
        plain = client.post("/act", content=body, headers=JSON).json()
        told = client.post("/act?likeliest=3", content=body, headers=JSON).json()
        assert "likeliest" not in plain
        assert [one["words"] for one in told["likeliest"]] == ["tap at 50 00", "tap at 50 10", "tap at 50 20"]
        assert [one["confidence"] for one in told["likeliest"]] == [0.5, 0.25, pytest.approx(0.5 / 3)]
        assert told["likeliest"][1]["kind_confidence"] == 0.75
        assert told["likeliest"][1]["gesture"]["path"] == [[0, 6]]
        assert {name: told[name] for name in told["likeliest"][0]} == told["likeliest"][0]
        for wrong in ("-1", "11", "many"):
            answer = client.post(f"/act?likeliest={wrong}", content=body, headers=JSON)
            assert answer.status_code == 422
            assert answer.text.startswith("likeliest: ")
    with TestClient(app(ready(), "tiny")) as client:
        refused = client.post("/act?likeliest=3", content=body, headers=JSON)
        assert (refused.status_code, refused.text[:9]) == (422, "likeliest")


def test_who_wants_the_likeliest_is_answered_alone() -> None:
    agent = Ranks()
    with serving(agent, "tiny") as url, ThreadPoolExecutor(4) as pool:
        body = write_history(history())

        def ask(path: str) -> Future[httpx.Response]:
            asked = pool.submit(httpx.post, f"{url}{path}", content=body, headers=JSON, timeout=20)
            time.sleep(0.2)  # so that they come one after the other
            return asked

        asked = [ask(path) for path in ("/act", "/act", "/act?likeliest=2", "/act")]
        agent.let.set()
        answers = [one.result().json() for one in asked]
    assert [one["timings"]["together"] for one in answers] == [1, 1, 1, 1]
    assert len(answers[2]["likeliest"]) == 2

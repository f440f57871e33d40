"""What every request of a server passes: token, name, sizes, numbers; screens that are named; what is counted."""

import base64
import io
import json
import socket
import threading
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from agents import Held
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from uivlm import wiring
from uivlm.actions.action import Point, Tap
from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import Element, History, HistoryError, Screen, Step
from uivlm.serving import desk as serving_desk
from uivlm.serving import pictures
from uivlm.serving.client import RemoteAgent
from uivlm.serving.pictures import PictureError, Pictures, read_picture, weight
from uivlm.serving.server import app, serve, serving
from uivlm.serving.strict import WireError, read_json
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
    with TestClient(app({"tiny": ready()}, token="s3cret")) as client:
        for brought in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            for path in ("/act", "/v1/chat/completions"):
                assert client.post(path, content=b"{}", headers=JSON | brought).status_code == 401
            for path in ("/metrics", "/v1/models", "/openapi.json", "/nothing"):
                assert client.get(path, headers=brought).status_code == 401
        assert client.get("/health").status_code == 200
    with serving({"tiny": ready()}, token="s3cret") as url:
        with RemoteAgent(url, token="s3cret") as remote:
            assert remote.act(history()).words == "tap at 0 7"
        with RemoteAgent(url) as remote, pytest.raises(AgentError, match=r"refused \(401\)"):
            remote.act(history())


def test_without_a_token_it_is_served_to_this_machine_alone() -> None:
    with pytest.raises(ValueError, match="0.0.0.0 can be reached by others"):
        serve({"tiny": ready()}, host="0.0.0.0", port=0)
    with serving({"tiny": ready()}) as url:  # a web page whose name was bent to this address
        assert httpx.get(f"{url}/health", headers={"host": "evil.example:8000"}).status_code == 400
        assert httpx.get(f"{url}/health", headers={"host": "localhost:8000"}).status_code == 200


def test_too_many_requests_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not held up: those that are here are answered."""
    monkeypatch.setattr("uivlm.serving.server.MOST_REQUESTS", 3)
    agent = Held()
    with serving({"tiny": agent}) as url, ThreadPoolExecutor(3) as pool:
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
    with serving({"tiny": ready()}) as url:
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
    with serving({"tiny": agent}) as url, ThreadPoolExecutor(1) as pool:
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
    monkeypatch.setattr(serving_desk, "ANSWER_S", 0.2)
    agent = Held()
    with serving({"tiny": agent}) as url:
        answer = httpx.post(f"{url}/act", content=write_history(history()), headers=JSON, timeout=20)
        agent.let.set()
    assert (answer.status_code, answer.text) == (503, "there was no decision within 0.2 seconds")


def test_a_body_that_does_not_come_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_desk, "BODY_S", 0.2)

    def slowly():
        yield b"{"
        time.sleep(1)
        yield b"}"

    with serving({"tiny": ready()}) as url:
        answer = httpx.post(f"{url}/act", content=slowly(), headers=JSON, timeout=20)
    assert answer.status_code == 408


def test_a_server_that_stops_answers_whom_it_thinks_of_and_tells_the_others() -> None:
    agent = Held()
    with ThreadPoolExecutor(2) as pool:
        with serving({"tiny": agent}) as url:

            def ask() -> Future[httpx.Response]:
                return pool.submit(
                    httpx.post, f"{url}/act", content=write_history(history()), headers=JSON, timeout=20
                )

            first = ask()
            assert agent.begun.wait(10)
            second = ask()
            while told(url)["uivlm_requests_here"] < 2:
                time.sleep(0.01)
            time.sleep(0.2)  # until it waits for its turn
            threading.Timer(1, agent.let.set).start()
        assert first.result().status_code == 200
        refused = second.result()
    assert (refused.status_code, refused.text) == (503, "the server is stopping")
    assert refused.headers["retry-after"] == "10"


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
    with serving({"tiny": agent}) as url, RemoteAgent(url) as remote:
        for i in range(4):
            now = History("g", past, screen(i, Element(0, 0, 1, 1, str(i))))
            assert remote.act(now).words == f"tap at {i} 7"
            past = (*past, Step(now.screen, Tap(Point(0.5, 0.5))))
        assert sent == [1, 1, 1, 1]
        remote.reset()
        remote.act(now)
        assert sent[4:] == [4]
    # another server, which has none of them: it is told so, and all are sent
    with serving({"tiny": ready()}) as other:
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
    one = weight(screen(0))
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


def test_texts_of_small_pictures_count_too() -> None:
    kept = Pictures(1_000_000)
    for i in range(50):
        kept.add(str(i), screen(i, *(Element(0, 0, 1, 1, "x" * 20_000) for _ in range(5))))
    assert 0 < len(kept._kept) <= 2
    assert kept.bytes <= 1_000_000


def test_all_screens_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are sent, and those that are named."""
    monkeypatch.setattr(pictures, "MOST_SEEN", 3 * 12 * 9)
    seen = Pictures()
    read_history(write_history(history(2)), seen)
    known = {Packed.of(screen(i)).sha256 for i in range(4)}
    with pytest.raises(WireError, match=r"screen.png is one too many"):
        read_history(write_history(history(3)), seen)
    seen.add(Packed.of(screen(3)).sha256, screen(3))
    with pytest.raises(WireError, match=r"screen.sha256 is one too many"):
        read_history(write_history(history(3), known=known), seen)


def test_the_histories_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_desk, "MOST_HELD", 3 * weight(screen(0)))
    agent = Held()
    with serving({"tiny": agent}) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            httpx.post, f"{url}/act", content=write_history(history(1)), headers=JSON, timeout=20
        )
        assert agent.begun.wait(10)
        second = httpx.post(f"{url}/act", content=write_history(history(1)), headers=JSON, timeout=20)
        assert (second.status_code, second.headers["retry-after"]) == (503, "10")
        agent.let.set()
        assert first.result().status_code == 200
        assert httpx.post(f"{url}/act", content=write_history(history(2)), headers=JSON).status_code == 200


# -- what cannot be read --------------------------------------------------------------------------------------------


def chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def test_a_decoder_that_fails_in_its_own_way_is_a_sentence() -> None:
    png = base64.b64decode(Packed.of(screen(0)).png)
    end = png.index(b"IEND") - 4
    with pytest.raises(PictureError, match="is damaged"):
        read_picture(png[:end] + chunk(b"iCCP", b"") + png[end:], 10**6, "PNG")


def test_a_jpeg_of_many_scans_is_refused_unread() -> None:
    file = io.BytesIO()
    Image.fromarray(screen(0).pixels).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    assert read_picture(data, 10**6, "JPEG").shape == (12, 9, 3)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(PictureError, match="more than 100 scans"):
        read_picture(data[:-2] + 100 * data[last:-2] + data[-2:], 10**6, "JPEG")


def test_a_history_without_a_prompt_is_the_clients_mistake() -> None:
    class Reads(Held):
        def act_all(self, histories: Sequence[History]) -> list[Decision]:
            raise HistoryError("the prompt has 9 tokens, the model reads 8")

    with TestClient(app({"tiny": Reads()})) as client:
        answer = client.post("/act", content=write_history(history()), headers=JSON)
        assert (answer.status_code, answer.text) == (422, "the prompt has 9 tokens, the model reads 8")


def test_json_of_very_many_values_is_refused_unread() -> None:
    with pytest.raises(WireError, match="more than 5000000 values"):
        read_json(b"[" + 5_000_000 * b"0," + b"0]")


def test_who_hangs_up_within_the_body_is_no_failure_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    with serving({"tiny": ready()}) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            head = f"POST /act HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
            line.sendall(head.encode())
            while told(url)["uivlm_requests_here"] < 1:
                time.sleep(0.01)
        while told(url)["uivlm_requests_here"]:
            time.sleep(0.01)
        assert 'uivlm_requests_total{path="/act",status="499"} 1.0' in httpx.get(f"{url}/metrics").text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("said", "token"), [("", None), (" \n", None), ("s3cret\n", "s3cret")])
def test_the_token_of_the_environment(said: str, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIVLM_TOKEN", said)
    assert wiring.server_token() == token


def test_a_token_that_is_no_header_is_refused_without_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIVLM_TOKEN", "geh\u00e4im")
    with pytest.raises(ValueError, match="UIVLM_TOKEN must be of printable ASCII") as refused:
        wiring.server_token()
    assert "geh" not in str(refused.value)


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
    with TestClient(app({"tiny": agent})) as client:
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
    with TestClient(app({"tiny": ready()})) as client:
        refused = client.post("/act?likeliest=3", content=body, headers=JSON)
        assert (refused.status_code, refused.text[:9]) == (422, "likeliest")


def test_who_wants_the_likeliest_is_answered_alone() -> None:
    agent = Ranks()
    with serving({"tiny": agent}) as url, ThreadPoolExecutor(4) as pool:
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

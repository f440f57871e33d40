"""A served agent is the local one; what is no history gets a sentence."""

import base64
import io
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Button
from uivlm.actions.language import Language, NotAnAction
from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import Element, History, Screen, Step
from uivlm.loop import run_episode
from uivlm.serving import desk as serving_desk
from uivlm.serving.client import RemoteAgent
from uivlm.serving.pictures import MOST_PIXELS, Pictures
from uivlm.serving.server import app, serve, serving
from uivlm.serving.strict import WireError
from uivlm.serving.wire import (
    MOST_STEPS,
    read_decision,
    read_history,
    write_decision,
    write_history,
)

TEXTS = ["", "plain", 'it\'s "q" \\ \n\t %s', "日本語 👩‍👩‍👧", "</script>\0\x7f\u2028", "x" * 10_000]
DRAW = random.Random(11)


def screen(seed: int, height: int = 31, width: int = 17, elements: tuple[Element, ...] = ()) -> Screen:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Screen(pixels, elements)


def any_action(draw: random.Random):
    def point():
        return Point(draw.random(), float(np.float32(draw.random())))

    return draw.choice(
        [
            Tap(point()),
            Swipe(point(), point()),
            Type(draw.choice(TEXTS)),
            Press(draw.choice(["back", "home", "enter"])),
            Finish(draw.choice(["complete", "impossible"])),
        ]
    )


def any_history(draw: random.Random, steps: int) -> History:
    boxes = (Element(0.1, 0.2, 1 / 3, 0.4, "Wi-Fi é", "ICON_X"), Element(0.0, 0.0, 1.0, 1.0))
    return History(
        draw.choice(TEXTS),
        tuple(Step(screen(draw.randrange(99)), any_action(draw)) for _ in range(steps)),
        screen(draw.randrange(99), draw.randrange(1, 40), draw.randrange(1, 40), draw.choice([(), boxes])),
    )


def same(a: History, b: History) -> bool:
    screens = [(x.screen, y.screen) for x, y in zip(a.steps, b.steps, strict=True)] + [(a.screen, b.screen)]
    return (
        a.goal == b.goal
        and [step.action for step in a.steps] == [step.action for step in b.steps]
        and all(np.array_equal(x.pixels, y.pixels) and x.elements == y.elements for x, y in screens)
    )


class ReadsEverything:
    """A decision that any change of the history would change."""

    def __init__(self) -> None:
        self.seen: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.seen.append(history)
        summed = zlib.crc32(history.screen.pixels.tobytes() + repr(history.screen.elements).encode())
        for step in history.steps:
            summed = zlib.crc32(step.screen.pixels.tobytes() + repr(step.action).encode(), summed)
        summed = zlib.crc32(history.goal.encode(), summed)
        draw = random.Random(summed)
        action = draw.choice([any_action(draw), NotAnAction(draw.choice(TEXTS), "no verb: \0\ud800")])
        return Decision(action, draw.choice(TEXTS), draw.choice([None, 0.0, 1.0, draw.random()]))


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        raise self.error


# -- the wire ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_histories_come_back_the_same(steps):
    draw = random.Random(steps)
    for _ in range(20):
        history = any_history(draw, steps)
        assert same(read_history(write_history(history), Pictures()), history)


def test_numbers_of_numpy_are_written_exactly():
    at = Point(np.float32(0.1), np.float64(1) / 3)
    history = History("g", (Step(screen(1), Tap(at)),), screen(2))
    back = read_history(write_history(history), Pictures()).steps[0].action.at
    assert (back.y, back.x) == (float(np.float32(0.1)), 1 / 3)


def test_decisions_come_back_the_same():
    for _ in range(300):
        action = DRAW.choice([any_action(DRAW), NotAnAction(DRAW.choice(TEXTS), "reason \ud800")])
        decision = Decision(
            action, DRAW.choice(TEXTS), *DRAW.choice([(None, None), (0.0, 0.5), (0.25, 0.25), (1.0, 1.0)])
        )
        assert read_decision(write_decision(decision, (30, 20), {"took_ms": 1.5})) == decision


def message(**changed):
    return (
        json.loads(write_history(History("goal", (Step(screen(1), Tap(Point(0.5, 0.5))),), screen(2))))
        | changed
    )


def png(width: int, height: int, whole: bool = True) -> str:
    """A PNG whose header claims a size; only that many rows as it really has."""
    packed = io.BytesIO()
    Image.new("RGB", (1, 1)).save(packed, "PNG")
    data = bytearray(packed.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return base64.b64encode(bytes(data if whole else data[:-20])).decode()


def with_png(text: object):
    return message(screen={"png": text, "elements": []})


def with_action(action: object):
    return message(steps=[{"screen": message()["screen"], "action": action}])


HOSTILE = {
    "no json": b"{",
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "long number": b"9" * 10_000,
    "a list": [],
    "null": None,
    "no goal": {"steps": [], "screen": {}},
    "extra": message(more=1),
    "goal of another type": message(goal=["g"]),
    "half a surrogate": b'{"goal": "\\ud800", "steps": [], "screen": {}}',
    "long goal": message(goal="x" * 20_001),
    "steps no list": message(steps={"0": 1}),
    "too many steps": message(steps=[{}] * (MOST_STEPS + 1)),
    "a step of no kind": message(steps=[3]),
    "screen null": message(screen=None),
    "png null": with_png(None),
    "png no base64": with_png("§§"),
    "png broken base64": with_png("abc"),
    "png empty": with_png(""),
    "png a jpeg": with_png(base64.b64encode(b"\xff\xd8\xff" + b"x" * 90).decode()),
    "png a path": with_png("/etc/passwd"),
    "png a bomb": with_png(png(60_000, 60_000)),
    "png of no pixels": with_png(png(0, 5)),
    "png cut": with_png(png(3, 3, whole=False)),
    "png too short": with_png(png(300, 300)),
    "action null": with_action(None),
    "action unknown": with_action({"kind": "shell", "line": "id"}),
    "action extra": with_action({"kind": "press", "key": "back", "more": 1}),
    "key unknown": with_action({"kind": "press", "key": "power"}),
    "key no text": with_action({"kind": "press", "key": ["back"]}),
    "not an action in the past": with_action({"kind": "not an action", "words": "a", "reason": "b"}),
    "point a list": with_action({"kind": "tap", "at": [0.1, 0.2]}),
    "point of true": with_action({"kind": "tap", "at": {"y": True, "x": 0.5}}),
    "point of text": with_action({"kind": "tap", "at": {"y": "0.5", "x": 0.5}}),
    "point NaN": with_action({"kind": "tap", "at": {"y": float("nan"), "x": 0.5}}),
    "point infinite": with_action({"kind": "tap", "at": {"y": 0.5, "x": float("inf")}}),
    "point huge": with_action({"kind": "tap", "at": {"y": 0.5, "x": 10**400}}),
    "element of three": message(screen={"png": message()["screen"]["png"], "elements": [{"y": 1}]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_histories_get_a_sentence(name):
    body = HOSTILE[name]
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(WireError):
        read_history(body, Pictures())
    agent = ReadsEverything()
    with TestClient(app({"tiny": agent})) as client:
        answer = client.post("/act", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert answer.headers["content-type"].startswith("text/plain")
        assert 5 < len(answer.text) < 400
        assert "\n" not in answer.text
        assert agent.seen == []
        fine = client.post(
            "/act", content=write_history(any_history(DRAW, 1)), headers={"content-type": "application/json"}
        )
        assert fine.status_code == 200  # and it goes on serving


def test_sentences_say_where():
    for body, sentence in (
        (with_png(png(6_000, 6_000)), f"screen.png has 6000 x 6000 pixels: at most {MOST_PIXELS}"),
        (with_png(png(60_000, 60_000)), "screen.png has too many pixels"),
        (
            with_action({"kind": "tap", "at": {"y": "0.5", "x": 0.5}}),
            r"steps\[0\].action.at.y is of type str",
        ),
        (message(more=1), "the history has more, which nobody reads"),
    ):
        with pytest.raises(WireError, match=sentence):
            read_history(json.dumps(body), Pictures())


def test_random_damage_is_only_ever_a_wire_error():
    whole = write_history(any_history(random.Random(1), 2))
    for _ in range(400):
        at = DRAW.randrange(len(whole))
        damaged = (
            whole[:at] + DRAW.choice(["", "\\", '"', "}", "null", "0", "A"]) + whole[at + DRAW.randrange(4) :]
        )
        with suppress(WireError):
            assert isinstance(read_history(damaged, Pictures()), History)


# -- the server ------------------------------------------------------------------------------------------------------


def test_the_served_agent_decides_as_the_local_one():
    local, remote_end = ReadsEverything(), ReadsEverything()
    kinds = set()
    with serving({"tiny": remote_end}, {"bins": 100}) as url, RemoteAgent(url) as remote:
        assert remote.health() == {
            "status": "ok",
            "checkpoint": "tiny",
            "grammar": {"bins": 100},
        }
        for i in range(40):
            history = any_history(random.Random(i), i % 6)
            here, there = local.act(history), remote.act(history)
            assert here == there
            kinds.add(type(here.action).__name__)
            assert same(remote_end.seen[-1], history)
    assert "NotAnAction" in kinds
    assert len(kinds) >= 5


class Phone:
    def __init__(self) -> None:
        self.done: list[object] = []

    def screen(self) -> Screen:
        return screen(len(self.done))

    def perform(self, gesture: object) -> None:
        self.done.append(gesture)


class SpeaksByLength:
    """One line of a script for each length of the history, read by the real grammar."""

    lines = ("tap at 10 20", 'Input text "a b"', "press back", "swipe from 90 50 to 10 50", "complete")

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        words = self.lines[len(history.steps)]
        return Decision(Language().parse(words), words)


def test_the_loop_cannot_tell_them_apart():
    here, there = Phone(), Phone()
    local = run_episode(SpeaksByLength(), here, "goal", 9)
    with serving({"tiny": SpeaksByLength()}) as url, RemoteAgent(url) as remote:
        served = run_episode(remote, there, "goal", 9)
        again = run_episode(remote, Phone(), "goal", 9)
    assert (
        (served.status, served.message)
        == (local.status, local.message)
        == ("complete", "complete after 5 steps")
    )
    assert [step.action for step in served.steps] == [step.action for step in local.steps]
    assert [step.action for step in again.steps] == [step.action for step in local.steps]
    assert there.done == here.done
    assert Button("back") in here.done


def test_a_failing_agent_is_one_sentence_without_paths():
    with serving({"tiny": Failing(RuntimeError("boom in /secret/model.py"))}) as url:
        answer = httpx.post(
            f"{url}/act",
            content=write_history(any_history(DRAW, 0)),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert "RuntimeError" in answer.text
        with RemoteAgent(url) as remote:
            with pytest.raises(AgentError, match="the agent failed"):
                remote.act(any_history(DRAW, 0))
            outcome = run_episode(remote, Phone(), "goal", 3)
    assert (outcome.status, outcome.exit_status) == ("agent error", 7)


def test_other_requests_get_sentences(monkeypatch):
    with TestClient(app({"tiny": ReadsEverything()})) as client:
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
        monkeypatch.setattr(serving_desk, "MOST_BYTES", 100)
        too_large = client.post("/act", content=b" " * 101, headers={"content-type": "application/json"})
        assert too_large.status_code == 413
        assert "more than 100 bytes" in too_large.text


def test_the_agent_decides_one_thing_at_a_time():
    inside, most = [], []

    class Slow(ReadsEverything):
        def act(self, history: History) -> Decision:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            return super().act(history)

    histories = [any_history(random.Random(i), 1) for i in range(6)]
    answers: dict[int, Decision] = {}
    with serving({"tiny": Slow()}) as url:

        def ask(i: int) -> None:
            with RemoteAgent(url) as remote:
                answers[i] = remote.act(histories[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(most) == 1
    assert len(most) == 6
    for i, history in enumerate(histories):
        assert answers[i] == ReadsEverything().act(history)


def test_serve_says_its_address_and_ends_with_ctrl_c():
    code = (
        "from uivlm.serving.server import serve; from uivlm.agents.agent import Agent;"
        "serve({'tiny': Agent}, {'bins': 7}, port=0)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = server.stdout.readline()
        assert said.startswith("serving at http://127.0.0.1:")
        with RemoteAgent(said.split()[-1]) as remote:
            assert remote.health()["grammar"] == {"bins": 7}
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
            serve({"tiny": ReadsEverything()}, port=port)
    with pytest.raises(ValueError, match="cannot listen at"):
        serve({"tiny": ReadsEverything()}, port=70_000)


def test_a_server_that_ended_leaves_nothing():
    threads = threading.active_count()
    with serving({"tiny": ReadsEverything()}) as url:
        httpx.get(f"{url}/health")
    deadline = time.monotonic() + 10  # the workers of the event loop end by themselves, a moment after it
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads  # an earlier test's may have ended meanwhile
    with (
        RemoteAgent(url) as remote,
        pytest.raises(AgentError, match=r"no agent answers at .* start one with `uivlm serve`"),
    ):
        remote.health()


# -- the client ------------------------------------------------------------------------------------------------------


def answering(body: bytes, status: int = 200):
    """A client whose server always says one thing."""
    remote = RemoteAgent("http://phone.test")
    remote._http = httpx.Client(
        base_url="http://phone.test",
        transport=httpx.MockTransport(lambda _: httpx.Response(status, content=body)),
    )
    return remote


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"action": {"kind": "tap", "at": {"y": 0.5, "x": NaN}}, "words": "", "confidence": null}',
        b'{"action": {"kind": "finish", "status": "done"}, "words": "", "confidence": null}',
        b'{"action": {"kind": "finish", "status": "complete"}, "words": "", "confidence": 2}',
        b'{"action": {"kind": "finish", "status": "complete"}, "words": ""}',
        b'{"action": {"kind": "finish", "status": "done"}, "words": "", "confidence": null, "kind_confidence": null, "gesture": null, "timings": {}}',
        b'{"action": {"kind": "finish", "status": "complete"}, "words": "", "confidence": 2, "kind_confidence": 1, "gesture": null, "timings": {}}',
    ],
)
def test_an_answer_that_is_no_decision_is_an_agent_error(body):
    with pytest.raises(AgentError, match="sent no decision"):
        answering(body).act(any_history(DRAW, 1))
    with pytest.raises(AgentError, match="is no agent"):
        answering(body).health()


def test_a_client_with_a_wrong_address():
    for url in ("localhost:8000", "ftp://x", "", "http://a:b:c"):
        with pytest.raises(ValueError, match="is no address of a server"):
            RemoteAgent(url)


def test_a_slow_server_is_an_agent_error():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "http://{}:{}".format(*silent.getsockname())
        with (
            RemoteAgent(url, timeout_s=0.1) as remote,
            pytest.raises(AgentError, match="did not answer in time"),
        ):
            remote.act(any_history(DRAW, 0))


def test_each_screen_is_packed_once(monkeypatch):
    packed = []
    save = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda self, *a, **k: packed.append(1) or save(self, *a, **k))
    with serving({"tiny": SpeaksByLength()}) as url, RemoteAgent(url) as remote:
        run_episode(remote, Phone(), "goal", 9)
    assert len(packed) == 5


def test_the_phone_side_needs_no_torch_and_no_server():
    code = (
        "import sys; import uivlm.serving.client, uivlm.loop, uivlm.trace, uivlm.live, uivlm.devices.adb;"
        "print([m for m in ('torch', 'transformers', 'fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        == "[]\n"
    )

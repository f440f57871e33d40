"""Who may ask the console for something, and what it makes of what is asked."""

import json
import socket
from contextlib import ExitStack

import httpx
import pytest
from consoles import HOSTILE, TAP, Glass, Scripted, at_console
from PIL import Image

from uivlm.actions.action import Type
from uivlm.console.server import MOST_BYTES, MOST_WATCHERS, console
from uivlm.devices.sim.phone import Phone
from uivlm.episode import Element
from uivlm.safety.policy import Policy


@pytest.fixture
def glass():
    return Glass()


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A person at a console where nothing runs, for those who are refused."""
    glass = Glass()
    with at_console(Scripted(), glass, tmp_path_factory.mktemp("idle")) as person:
        yield person
    assert glass.done == []


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"x-console-token": None}, 403),
        ({"x-console-token": "guess"}, 403),
        ({"x-console-token": "gu\u00e9ss"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"host": "evil.example"}, 400),
        ({"host": "evil.example:8765"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({"host": ""}, 400),
        ({"sec-fetch-site": "same-origin"}, 204),
        ({"content-type": "application/json; charset=utf-8"}, 204),
    ],
)
def test_only_its_own_page_may_post(idle, changed, status):
    headers = {**idle.headers, **changed}
    sent = [(name, value.encode("latin-1")) for name, value in headers.items() if value is not None]
    answer = idle.http.post("/do/record", content=b'{"goal": "g"}', headers=sent)
    assert answer.status_code == status
    assert idle.view.phase == ("recording" if status == 204 else "idle")
    if status == 204:
        idle.does("stop")


def test_its_own_page_may_post(idle):
    headers = {**idle.headers, "origin": idle.url, "sec-fetch-site": "same-origin"}
    assert idle.http.post("/do/record", content=b'{"goal": "g"}', headers=headers).status_code == 204
    idle.does("stop")


@pytest.mark.parametrize("path", ["/", "/events", "/traces", "/screen/1", "/page.js"])
def test_other_sites_see_nothing(idle, path):
    assert idle.http.get(path, headers={"host": "evil.example"}).status_code == 400
    if path != "/":  # a link to the page may be followed
        assert idle.http.get(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_every_answer_says_what_pages_may_do(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("look")
        for path in ("/", "/page.js", "/page.css", "/screen/1", "/traces", "/absent", "/traces/absent"):
            headers = person.http.get(path).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers
        assert person.http.get("/do/stop").status_code == 405
        assert person.http.get("/screen/2").status_code == 404


def test_the_screen_and_the_steps_are_pictures(tmp_path):
    phone = Phone(layout=1)
    with at_console(Scripted(), phone, tmp_path) as person:
        person.does("record", goal="g")
        shown = person.http.get(f"/screen/{person.view.num_screens}").read()
        person.touches((0.5, 0.5))
        small = person.http.get(f"/steps/{person.view.trace}/0").read()
        assert person.http.get("/steps/other/0").status_code == 404
        assert person.http.get(f"/steps/{person.view.trace}/1").status_code == 404
    for data, most in ((shown, 10**4), (small, 100)):
        (tmp_path / "picture").write_bytes(data)
        with Image.open(tmp_path / "picture") as picture:
            assert picture.width <= most
            assert abs(picture.width / picture.height - phone.width / phone.height) < 0.05


@pytest.mark.parametrize(
    ("deed", "body", "status"),
    [
        ("start", b"", 422),
        ("start", b"{", 422),
        ("start", b"[" * 60_000, 422),
        ("start", b"[]", 422),
        ("start", b'{"goal": " ", "step_mode": true}', 422),
        ("start", b'{"goal": 7, "step_mode": true}', 422),
        ("start", b'{"goal": "g"}', 422),
        ("start", b'{"goal": "g", "step_mode": "yes"}', 422),
        ("start", b'{"goal": "\\ud800", "step_mode": false}', 422),
        ("start", b'{"goal": "%s", "step_mode": false}' % (b"x" * 2001), 422),
        ("start", b'{"goal": "%s", "step_mode": false}' % (b"x" * MOST_BYTES), 413),
        ("start", b'{"goal": "\xff", "step_mode": false}', 422),
        ("destroy", b"{}", 422),
        ("finish", b'{"status": "perfect"}', 422),
        ("confirm", b'{"number": "1"}', 422),
        ("wait_each", b'{"on": 1}', 422),
        ("press", b'{"screen": 1, "key": "power"}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, 1.5], "lift": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, NaN], "lift": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, 1e999], "lift": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, true], "lift": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": "ab", "lift": [0, 0]}', 422),
        ("gesture", b'{"screen": 1, "touch": [0, 0, 0], "lift": [0, 0]}', 422),
        ("type", b'{"screen": 1, "text": ""}', 422),
        ("type", b'{"screen": 1, "text": ["a"]}', 422),
        ("type", b'{"screen": 1, "text": "%s"}' % (b"x" * 10_001), 422),
        ("type", b'{"screen": 1, "text": "a"}', 409),
        ("../../etc/passwd", b"{}", 404),
    ],
)
def test_bad_input_is_told_in_one_sentence(idle, deed, body, status):
    before = len(list(idle.session.traces.iterdir()))
    answer = idle.http.post(f"/do/{deed}", content=body, headers=idle.headers)
    assert answer.status_code == status
    assert 5 < len(answer.text) < 200
    assert "\n" not in answer.text
    assert idle.view.phase == "idle"
    assert len(list(idle.session.traces.iterdir())) == before


def test_hostile_texts_are_told_as_they_are(glass, tmp_path):
    glass.on_it = (Element(0.4, 0.1, 0.2, 0.4, "Send " + HOSTILE[:10]),)
    with at_console(Scripted(Type(HOSTILE + "\ud800"), TAP), glass, tmp_path, Policy(ask_in=())) as person:
        person.does("start", goal=HOSTILE, step_mode=True)
        person.asked(1)
        with person.http.stream("GET", "/events") as events:
            line = next(events.iter_lines())
        told = json.loads(line.removeprefix("data: "))
        assert (told["goal"], told["next"]["gesture"]["text"]) == (HOSTILE, HOSTILE + "\ud800")
        assert line.isascii()
        person.does("stop")
        person.sees("idle")
        assert person.http.get("/traces").json()["traces"][0]["goal"] == HOSTILE


def test_so_many_pages_watch_and_no_more(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, ExitStack() as pages:

        def watch() -> httpx.Response:
            return pages.enter_context(person.http.stream("GET", "/events"))

        lines = [watch().iter_lines() for _ in range(MOST_WATCHERS)]
        assert all(next(each).startswith("data: ") for each in lines)
        assert watch().status_code == 503
        pages.close()  # those who have gone make room
        person.until(lambda _: watch().status_code == 200)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_it_listens_on_this_machine_alone(host, glass, tmp_path):
    with pytest.raises(ValueError, match="ssh -L 8765:127.0.0.1:8765"):
        console(Scripted(), glass, Policy(), tmp_path, host)


def test_a_port_that_is_taken(glass, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1:{port}.*--port"):
            console(Scripted(), glass, Policy(), tmp_path, port=port)

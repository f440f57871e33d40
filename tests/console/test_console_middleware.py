"""Who may ask the console for something, and what it makes of what is asked."""

import asyncio
import json
import socket
from collections import Counter
from contextlib import ExitStack, closing, suppress

import httpx
import pytest
from PIL import Image

from tests.helpers.console_client import AT_ONCE, DONE, HOSTILE, TAP, Glass, Scripted, at_console
from uivlm.actions.action import Type
from uivlm.console.server import MAX_BODY_BYTES, MAX_EVENT_STREAMS, console, create_app
from uivlm.console.session import Session
from uivlm.devices.sim.phone import SimPhone
from uivlm.episodes.episode import Element
from uivlm.safety.policy import Policy
from uivlm.safety.secrets import load_secrets


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
    answer = idle.http.post("/commands", content=b'{"type": "record", "goal": "g"}', headers=sent)
    assert answer.status_code == status
    assert idle.view.phase == ("recording" if status == 204 else "idle")
    if status == 204:
        idle.does("stop")


def test_its_own_page_may_post(idle):
    headers = {**idle.headers, "origin": idle.url, "sec-fetch-site": "same-origin"}
    assert (
        idle.http.post("/commands", content=b'{"type": "record", "goal": "g"}', headers=headers).status_code
        == 204
    )
    idle.does("stop")


@pytest.mark.parametrize("path", ["/", "/events", "/traces", "/screens/1", "/page.js"])
def test_other_sites_see_nothing(idle, path):
    assert idle.http.get(path, headers={"host": "evil.example"}).status_code == 400
    if path != "/":  # a link to the page may be followed
        assert idle.http.get(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_every_answer_says_what_pages_may_do(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("refresh")
        for path in ("/", "/page.js", "/page.css", "/screens/1", "/traces", "/absent", "/traces/absent"):
            headers = person.http.get(path).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers
        assert person.http.get("/commands").status_code == 405
        assert person.http.get("/screens/2").status_code == 404


def test_the_screen_and_the_steps_are_pictures(tmp_path):
    phone = SimPhone(layout=1)
    with at_console(Scripted(), phone, tmp_path) as person:
        person.does("record", goal="g")
        shown = person.http.get(f"/screens/{person.view.screen_id}").read()
        person.touches((0.5, 0.5))
        small = person.http.get(f"/steps/{person.view.trace}/0").read()
        assert person.http.get("/steps/other/0").status_code == 404
        assert person.http.get(f"/steps/{person.view.trace}/1").status_code == 404
    for data, max_width in ((shown, 10**4), (small, 100)):
        (tmp_path / "picture").write_bytes(data)
        with Image.open(tmp_path / "picture") as picture:
            assert picture.width <= max_width
            assert abs(picture.width / picture.height - phone.width / phone.height) < 0.05


@pytest.mark.parametrize(
    ("body", "field", "status"),
    [
        (b"", "invalid JSON", 422),
        (b"{", "invalid JSON", 422),
        (b"[" * 60_000, "invalid JSON", 422),
        (b"[]", "command", 422),
        (b"{}", "type", 422),
        (b'{"type": "destroy"}', "'destroy'", 422),
        (b'{"type": "stop", "force": true}', "force", 422),
        (b'{"type": "start", "goal": " ", "step_mode": true}', "goal", 422),
        (b'{"type": "start", "goal": 7, "step_mode": true}', "goal", 422),
        (b'{"type": "start", "goal": "g"}', "step_mode", 422),
        (b'{"type": "start", "goal": "g", "step_mode": "yes"}', "step_mode", 422),
        (b'{"type": "start", "goal": "\\ud800", "step_mode": false}', "invalid JSON", 422),
        (b'{"type": "start", "goal": "%s", "step_mode": false}' % (b"x" * 2001), "goal", 422),
        (b'{"type": "start", "goal": "%s", "step_mode": false}' % (b"x" * MAX_BODY_BYTES), "body", 413),
        (b'{"type": "start", "goal": "\xff", "step_mode": false}', "JSON", 422),
        (b'{"type": "finish", "status": "perfect"}', "status", 422),
        (b'{"type": "confirm", "request_id": "1"}', "request_id", 422),
        (b'{"type": "set_step_mode", "on": 1}', "on", 422),
        (b'{"type": "press", "screen_id": 1, "key": "power"}', "key", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, 0]}', "lift", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, 1.5], "lift": [0, 0]}', "touch[1]", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, NaN], "lift": [0, 0]}', "touch[1]", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, 1e999], "lift": [0, 0]}', "touch[1]", 422),
        (
            b'{"type": "touch", "screen_id": 1, "touch": [0, 1%s], "lift": [0, 0]}' % (b"0" * 400),
            "touch[1]",
            422,
        ),
        (b'{"type": "press", "screen_id": 1%s, "key": "back"}' % (b"0" * 400), "take over first", 409),
        (b'{"type": "press", "screen_id": 1%s, "key": "back"}' % (b"0" * 5000), "out of range", 422),
        (b'{"type": "confirm", "request_id": 1%s}' % (b"0" * 400), "", 409),
        (b'{"type": "press", "screen_id": 1, "key": "back", "key": "home"}', "'key' twice", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, true], "lift": [0, 0]}', "touch[1]", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": "ab", "lift": [0, 0]}', "touch", 422),
        (b'{"type": "touch", "screen_id": 1, "touch": [0, 0, 0], "lift": [0, 0]}', "touch", 422),
        (b'{"type": "type", "screen_id": 1, "text": ""}', "text", 422),
        (b'{"type": "type", "screen_id": 1, "text": ["a"]}', "text", 422),
        (b'{"type": "type", "screen_id": 1, "text": "%s"}' % (b"x" * 10_001), "text", 422),
        (b'{"type": "type", "screen_id": 1, "text": "a"}', "take over first", 409),
        (b'{"type": "../../etc/passwd"}', "passwd", 422),
    ],
)
def test_bad_input_is_told_in_one_sentence(idle, body, field, status):
    before = len(list(idle.session.trace_dir.iterdir()))
    response = idle.http.post("/commands", content=body, headers=idle.headers)
    assert response.status_code == status
    assert 5 < len(response.text) < 350
    assert field in response.text
    assert "\n" not in response.text
    assert idle.view.phase == "idle"
    assert len(list(idle.session.trace_dir.iterdir())) == before


def test_hostile_texts_are_told_as_they_are(glass, tmp_path):
    glass.on_it = (Element(0.4, 0.1, 0.2, 0.4, "Send " + HOSTILE[:10]),)
    with at_console(
        Scripted(Type(HOSTILE + "\ud800"), TAP), glass, tmp_path, Policy(confirm_apps=())
    ) as person:
        person.does("start", goal=HOSTILE, step_mode=True)
        person.asked(1)
        with person.http.stream("GET", "/events") as events:
            line = next(events.iter_lines())
        payload = json.loads(line.removeprefix("data: "))
        assert (payload["goal"], payload["pending"]["gesture"]["text"]) == (HOSTILE, HOSTILE + "\ud800")
        assert line.isascii()
        person.does("stop")
        person.sees("idle")
        assert person.http.get("/traces").json()["traces"][0]["goal"] == HOSTILE


def test_so_many_pages_watch_and_no_more(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, ExitStack() as pages:

        def watch() -> httpx.Response:
            return pages.enter_context(person.http.stream("GET", "/events"))

        lines = [watch().iter_lines() for _ in range(MAX_EVENT_STREAMS)]
        assert all(next(each).startswith("data: ") for each in lines)
        assert watch().status_code == 503
        pages.close()  # those who have gone make room
        person.until(lambda _: watch().status_code == 200)


def test_pages_that_open_at_once_are_counted_too(glass, tmp_path):
    """All of them ask before any stream begins."""
    statuses = []

    async def ask(app) -> None:
        async def send(message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                await asyncio.sleep(0.2)
                raise OSError("the page has gone")

        async def receive() -> dict[str, str]:
            return await asyncio.Future()

        scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b""}
        with suppress(OSError, ExceptionGroup):
            await app({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

    async def ask_at_once(app, num_pages: int) -> None:
        await asyncio.gather(*(ask(app) for _ in range(num_pages)))

    async def twice(app) -> None:
        await ask_at_once(app, MAX_EVENT_STREAMS + 20)
        await ask_at_once(app, MAX_EVENT_STREAMS)

    session = Session(Scripted(), glass, Policy(), load_secrets(Policy()), tmp_path, AT_ONCE)
    with closing(session):
        asyncio.run(twice(create_app(session)))
    assert Counter(statuses) == {200: 2 * MAX_EVENT_STREAMS, 503: 20}  # a page that has gone makes room


def test_numbers_beyond_every_range_break_one_trace_alone(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        for _ in range(2):
            person.does("start", goal="g", step_mode=False)
            person.until(lambda view: view.phase == "idle" and view.status == "complete")
        rows = sorted(tmp_path.iterdir())[0] / "trace.jsonl"
        rows.write_text(rows.read_text().replace('"confidence": 0.5', '"confidence": 1' + "0" * 400))
        answer = person.http.get("/traces")
        assert answer.status_code == 200
        damaged, whole = sorted(answer.json()["traces"], key=lambda trace: trace["name"])
        assert whole["status"] == "complete"
        assert "step.confidence" in damaged["error"]
        assert person.http.get(f"/traces/{damaged['name']}").status_code == 422


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_it_listens_on_this_machine_alone(host, glass, tmp_path):
    with pytest.raises(ValueError, match="ssh -L 8765:127.0.0.1:8765"):
        console(Scripted(), glass, Policy(), load_secrets(Policy()), tmp_path, host)


def test_a_port_that_is_taken(glass, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1:{port}.*--port"):
            console(Scripted(), glass, Policy(), load_secrets(Policy()), tmp_path, port=port)

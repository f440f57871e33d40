"""The bodies of /act: what is written is read back; what is not a history gets one sentence."""

import base64
import io
import json
import random
import zlib
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.helpers.served import (
    TEXTS,
    ChecksumAgent,
    random_action,
    random_history,
    random_screen,
    same_history,
)
from uivlm.actions.action import InvalidAction, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.actions.schema import SchemaError
from uivlm.episodes.episode import History, Step
from uivlm.episodes.images import MAX_SCREEN_PIXELS
from uivlm.serving.protocol import (
    MAX_ELEMENTS,
    MAX_STEPS,
    Timings,
    check_size,
    read_decision,
    read_history,
    write_decision,
    write_history,
)
from uivlm.serving.screen_cache import ScreenCache, ScreenDecoder
from uivlm.serving.server import create_app

RNG = random.Random(11)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_histories_come_back_the_same(steps):
    rng = random.Random(steps)
    for _ in range(20):
        history = random_history(rng, steps)
        assert same_history(read_history(write_history(history), ScreenDecoder(ScreenCache())), history)


def test_numbers_of_numpy_are_written_exactly():
    at = Point(np.float32(0.1), np.float64(1) / 3)
    history = History("g", (Step(random_screen(1), Tap(at)),), random_screen(2))
    back = read_history(write_history(history), ScreenDecoder(ScreenCache())).steps[0].action.at
    assert (back.y, back.x) == (float(np.float32(0.1)), 1 / 3)


def test_decisions_come_back_the_same():
    for _ in range(300):
        action = RNG.choice([random_action(RNG), InvalidAction(RNG.choice(TEXTS), "reason 👩 \0")])
        decision = Decision(
            action, RNG.choice(TEXTS), *RNG.choice([(None, None), (0.0, 0.5), (0.25, 0.25), (1.0, 1.0)])
        )
        assert read_decision(write_decision(decision, (30, 20), Timings(0.5, 1.5, 2))) == decision


@pytest.mark.parametrize("confidence", [float("nan"), float("inf")])
def test_a_confidence_that_is_not_finite_is_left_out(confidence):
    class Unsure(ChecksumAgent):
        def act(self, history: History) -> Decision:
            return Decision(Tap(Point(0.5, 0.5)), "tap", confidence, confidence)

    with TestClient(create_app({"unsure": Unsure()})) as client:
        body = write_history(History("goal", (), random_screen(1)))
        answer = client.post("/act", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert read_decision(answer.content) == Decision(Tap(Point(0.5, 0.5)), "tap")


def message(**changed):
    return (
        json.loads(
            write_history(History("goal", (Step(random_screen(1), Tap(Point(0.5, 0.5))),), random_screen(2)))
        )
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


def element(**changed: object) -> dict[str, object]:
    return {"y": 0.0, "x": 0.0, "height": 1.0, "width": 1.0, "text": "a", "ui_type": "TEXT"} | changed


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
    "too many steps": message(steps=[{}] * (MAX_STEPS + 1)),
    "a step that is a number": message(steps=[3]),
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
    "action unknown": with_action({"type": "shell", "line": "id"}),
    "action extra": with_action({"type": "press", "key": "back", "more": 1}),
    "key unknown": with_action({"type": "press", "key": "power"}),
    "key no text": with_action({"type": "press", "key": ["back"]}),
    "an invalid action in the past": with_action({"type": "invalid", "text": "a", "reason": "b"}),
    "point a list": with_action({"type": "tap", "at": [0.1, 0.2]}),
    "point of true": with_action({"type": "tap", "at": {"y": True, "x": 0.5}}),
    "point of text": with_action({"type": "tap", "at": {"y": "0.5", "x": 0.5}}),
    "point NaN": with_action({"type": "tap", "at": {"y": float("nan"), "x": 0.5}}),
    "point infinite": with_action({"type": "tap", "at": {"y": 0.5, "x": float("inf")}}),
    "point huge": with_action({"type": "tap", "at": {"y": 0.5, "x": 10**400}}),
    "both images": message(screen=message()["screen"] | {"sha256": "0"}),
    "no image": message(screen={"elements": []}),
    "long element text": message(screen=message()["screen"] | {"elements": [element(text="x" * 20_001)]}),
    "element far away": message(screen=message()["screen"] | {"elements": [element(y=1e7)]}),
    "long typed text": with_action({"type": "type", "text": "x" * 20_001}),
    "a point far away": with_action({"type": "tap", "at": {"y": 0.5, "x": -2e6}}),
    "too many elements": message(screen=message()["screen"] | {"elements": [element()] * (MAX_ELEMENTS + 1)}),
    "a field with a new line": message(**{"a\nb": 1}),
    "a field with a long name": message(**{"a" * 10_000: 1}),
    "two goals": json.dumps(message()).replace("{", '{"goal": "another", ', 1).encode(),
    "two keys in an action": json.dumps(with_action({"type": "press", "key": "back"}))
    .replace('"key"', '"key": "home", "key"')
    .encode(),
    "fields without end": json.dumps({str(i): i for i in range(100_000)}).encode(),
    **{
        f"element without {name}": message(
            screen=message()["screen"] | {"elements": [{k: v for k, v in element().items() if k != name}]}
        )
        for name in element()
    },
    "element of three": message(screen={"png": message()["screen"]["png"], "elements": [{"y": 1}]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_histories_get_one_sentence(name):
    body = HOSTILE[name]
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(SchemaError):
        read_history(body, ScreenDecoder(ScreenCache()))
    agent = ChecksumAgent()
    with TestClient(create_app({"tiny": agent})) as client:
        answer = client.post("/act", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert answer.headers["content-type"].startswith("text/plain")
        assert 5 < len(answer.text) < 400
        assert "\n" not in answer.text
        assert agent.histories == []
        fine = client.post(
            "/act",
            content=write_history(random_history(RNG, 1)),
            headers={"content-type": "application/json"},
        )
        assert fine.status_code == 200  # the server continues


def test_errors_name_the_field_and_the_value():
    for body, sentence in (
        (
            with_png(png(6_000, 6_000)),
            f"history.screen.png: got 6000 x 6000 pixels; expected 1 to {MAX_SCREEN_PIXELS}",
        ),
        (with_png(png(60_000, 60_000)), "history.screen.png: too many pixels"),
        (
            with_action({"type": "tap", "at": {"y": "0.5", "x": 0.5}}),
            r"history.steps\[0\].action.at.y: expected a number, got '0.5'",
        ),
        (message(more=1), "history.more: unknown field, got 1"),
        (
            message(screen=message()["screen"] | {"elements": [{"y": 0, "x": 0, "height": 1, "width": 1}]}),
            r"history.screen.elements\[0\].text: field required",
        ),
        (
            message(screen=message()["screen"] | {"elements": [element(x=1e7)]}),
            r"history.screen.elements\[0\].x: expected less than or equal to 1000000, got 10000000.0",
        ),
    ):
        with pytest.raises(SchemaError, match=sentence):
            read_history(json.dumps(body), ScreenDecoder(ScreenCache()))


def test_no_field_is_optional() -> None:
    """Each field of a body that was sent is required when it is read, except that a screen has one image."""
    whole = json.loads(write_history(random_history(random.Random(3), 2)))
    decision = json.loads(
        write_decision(
            Decision(Tap(Point(0.5, 0.5)), "tap", 0.5, 0.5), (30, 20), Timings(0.5, 1.5, 2),
            [Decision(InvalidAction("a", "b"), "a")],
        )
    )  # fmt: skip
    read_decision(json.dumps(decision))
    for tree, read in (
        (whole, lambda body: read_history(body, ScreenDecoder(ScreenCache()))),
        (decision, read_decision),
    ):
        paths = list(fields_in(tree))
        assert len(paths) > 20
        for path, name in paths:
            cut = json.loads(json.dumps(tree))
            node = cut
            for key in path:
                node = node[key]
            del node[name]
            with pytest.raises(SchemaError, match="field required|expected one of png and sha256"):
                read(json.dumps(cut))


def fields_in(tree: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each field of each object: the path of the object, the name of the field."""
    if isinstance(tree, dict):
        yield from ((path, name) for name in tree)
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from fields_in(value, (*path, key))


def test_random_damage_is_only_ever_a_schema_error():
    whole = write_history(random_history(random.Random(1), 2)).decode()
    for _ in range(400):
        at = RNG.randrange(len(whole))
        damaged = (
            whole[:at] + RNG.choice(["", "\\", '"', "}", "null", "0", "A"]) + whole[at + RNG.randrange(4) :]
        )
        with suppress(SchemaError):
            assert isinstance(read_history(damaged, ScreenDecoder(ScreenCache())), History)


def test_json_of_very_many_values_is_rejected_unparsed() -> None:
    with pytest.raises(SchemaError, match="more than 5000000 JSON values"):
        check_size(b"[" + 5_000_000 * b"0," + b"0]")


def test_a_body_of_uivlm_0_1_gets_the_new_name() -> None:
    old_element = {"y": 0, "x": 0, "height": 1, "width": 1, "text": "a", "kind": "TEXT"}
    for body, location in (
        (with_action({"kind": "tap", "at": {"y": 0.5, "x": 0.5}}), r"history.steps\[0\].action.type"),
        (message(screen=message()["screen"] | {"elements": [old_element]}), r"history.screen.elements\[0\]"),
    ):
        with pytest.raises(SchemaError, match=f"{location}.*'kind' of uivlm 0.1 is now 'type'"):
            read_history(json.dumps(body), ScreenDecoder(ScreenCache()))


def test_half_a_surrogate_pair_is_sent_as_the_replacement_character() -> None:
    decision = Decision(InvalidAction("a\ud800b", "\udfff"), "👩 \ud83d")
    sent = read_decision(write_decision(decision, (30, 20), Timings(0.0, 0.0, 1)))
    assert sent == Decision(InvalidAction("a\ufffdb", "\ufffd"), "👩 \ufffd")

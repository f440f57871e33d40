"""The console without its page: demonstrations, secrets and traces."""

import os

import numpy as np
import pytest

from data_prep.formats import trace as trace_format
from tests.helpers.console_client import ACTIONS, DONE, HOSTILE, TAP, Scripted, at_console
from uivlm.actions.action import Finish, Type
from uivlm.actions.aitw import from_aitw
from uivlm.actions.gesture import Touch, TypeText
from uivlm.console.state import state_to_json
from uivlm.devices.sim.phone import SimPhone
from uivlm.rollout.trace_reader import read_trace
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.policy import Policy, SecretRule

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)


@pytest.mark.parametrize("status", ["complete", "impossible"])
def test_a_demonstration_is_training_data(tmp_path, status):
    phone = SimPhone(layout=1)
    before = phone.screen().pixels
    with at_console(Scripted(), phone, tmp_path) as person:
        person.does("record", goal="show it")
        assert person.view.phase == "recording"
        person.touches((0.1, 0.2))
        person.touches((0.9, 1 / 3), (0.1, 0.5))
        person.does("type", screen_id=person.view.screen_id, text=ACTIONS[2].text)
        person.does("press", screen_id=person.view.screen_id, key="back")
        person.does("finish", status=status)
        view = person.view
        assert (view.phase, view.status, view.message) == ("idle", status, f"{status} after 5 steps")
    run = read_trace(tmp_path / view.trace)
    assert (run.info.actor, run.info.finished, run.info.goal) == ("human", True, "show it")
    records = [
        result.load() for part in trace_format.find(str(tmp_path)) for result in trace_format.read(part)
    ]
    assert tuple(record.action for record in records) == (*ACTIONS, Finish(status))
    assert tuple(from_aitw(*record.aitw) for record in records) == (
        *ACTIONS,
        Finish(status),
    )
    assert {record.goal for record in records} == {"show it"}
    assert np.array_equal(records[0].pixels, before)


def test_a_demonstration_that_is_stopped_is_none(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        person.touches((0.5, 0.5))
        person.does("stop")
        assert (person.view.phase, person.view.status) == ("idle", "stopped")
        assert person.post("finish", status="complete").status_code == 409
        assert person.post("press", screen_id=person.view.screen_id, key="back").status_code == 409
    assert len(glass.done) == 1


def test_a_demonstration_ends_with_the_console(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
    assert person.trace()[0]["status"] == "stopped"


PIN_RULE = {"pin": SecretRule("PIN_OF_TEST", apps=("com.glass",))}


@pytest.fixture
def keeper(monkeypatch):
    """A policy with a secret: 4711."""
    monkeypatch.setenv("PIN_OF_TEST", "4711")
    return Policy(confirm_apps=(), confirm_labels=(), secrets=PIN_RULE)


def all_told(person):
    """What is written, and what the page may ask for."""
    name = person.view.trace
    files = [file.read_bytes() for file in person.session.trace_dir.rglob("*") if file.is_file()]
    answers = [person.http.get(f"/traces{part}").content for part in ("", f"/{name}", f"/{name}/0")]
    return b"".join((*files, *answers, state_to_json(person.view).encode()))


def test_secrets_stay_hidden_in_a_run(glass, tmp_path, keeper):
    agent = Scripted(Type("my {secret:pin}"), TAP, DONE)
    with at_console(agent, glass, tmp_path, keeper) as person:
        person.does("start", goal="type 4711", step_mode=True)
        assert person.asked(1).pending.gesture == TypeText("my {secret:pin}")
        person.does("confirm", request_id=1)
        person.asked(2)
        person.does("take_over")
        person.sees("human_control")
        for text in ("again {secret:pin}", "as it is: 4711"):
            person.does("type", screen_id=person.view.screen_id, text=text)
        assert person.view.screen.pixels[30, 50, 0] == 96, "what stands there is covered"
        person.does("hand_back")
        person.sees("idle")
        assert b"4711" not in all_told(person)
    assert glass.done == [TypeText("my 4711"), TypeText("again 4711"), TypeText("as it is: 4711")]
    assert agent.histories[0].goal == "type {secret:pin}"
    assert [step.action.text for step in agent.histories[-1].steps] == [
        "my {secret:pin}",
        "again {secret:pin}",
        "as it is: {secret:pin}",
    ]


def test_secrets_stay_hidden_in_a_demonstration(glass, tmp_path, keeper):
    with at_console(Scripted(), glass, tmp_path, keeper) as person:
        person.does("record", goal="type 4711")
        person.does("type", screen_id=person.view.screen_id, text="4711")
        assert person.post("type", screen_id=person.view.screen_id, text="{secret:key}").status_code == 422
        person.does("finish", status="complete")
        assert b"4711" not in all_told(person)
    assert glass.done == [TypeText("4711")]
    assert read_trace(tmp_path / person.view.trace).steps[0].action == Type("{secret:pin}")


# -- traces --------------------------------------------------------------------------------------------------


def test_the_list_of_traces(glass, tmp_path):
    folder = tmp_path / "traces"
    for number, status in enumerate(("complete", "denied", "complete")):
        trace = TraceWriter(folder / f"t{number}", HOSTILE if number else "first")
        trace.on_screen(0, glass.screen(), 1.0)
        if number < 2:
            trace.on_end(status, "so it ended")
        for file in ("run.json", "trace.jsonl"):
            os.utime(folder / f"t{number}" / file, ns=(number * 10**9, number * 10**9))
    (folder / "t0" / "000.png").write_bytes(b"no picture")
    (folder / "nothing").mkdir()
    (folder / "file").write_text("")
    (folder / "link").symlink_to(folder / "t1")
    with at_console(Scripted(), glass, folder) as person:
        payload = person.http.get("/traces").json()
        assert [one["name"] for one in payload["traces"]] == ["t2", "t1", "t0"]
        assert [one.get("status") for one in payload["traces"]] == ["killed", "denied", None]
        assert "damaged" in payload["traces"][2]["error"]
        assert payload["traces"][1]["goal"] == HOSTILE
        assert payload["more"] is False
        for name in ("t0", "link", "nothing", "file", "..", "%2e%2e", "t1%2f..%2ft1", "absent"):
            answer = person.http.get(f"/traces/{name}/0")
            assert answer.status_code in (404, 422), name
            assert answer.content.find(b"PNG") < 0
        picture = person.http.get("/traces/t1/0")
        assert picture.headers["content-type"] == "image/png"
        assert picture.content == (folder / "t1" / "000.png").read_bytes()
        for t in ("1", "-1", "x", "../run.json"):
            assert person.http.get(f"/traces/t1/{t}").status_code in (404, 422)
        (folder / "t1" / "000.png").unlink()
        (folder / "t1" / "000.png").symlink_to(folder / "t1" / "run.json")
        assert person.http.get("/traces/t1/0").status_code == 404


def test_a_long_list_comes_in_parts(glass, tmp_path):
    for number in range(52):
        TraceWriter(tmp_path / f"{number:03d}", f"goal {number}").on_end("complete", "")
    with at_console(Scripted(), glass, tmp_path) as person:
        first = person.http.get("/traces").json()
        rest = person.http.get("/traces?start=50").json()
    assert ((len(first["traces"]), first["more"]), (len(rest["traces"]), rest["more"])) == (
        (50, True),
        (2, False),
    )
    names = [one["name"] for one in (*first["traces"], *rest["traces"])]
    assert sorted(names) == [f"{number:03d}" for number in range(52)]


def test_a_demonstration_in_the_list_and_step_by_step(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        assert person.http.get("/traces").json()["traces"][0]["status"] == "running"
        person.touches((0.5, 0.5))
        person.does("finish", status="complete")
        (one,) = person.http.get("/traces").json()["traces"]
        assert (one["actor"], one["status"], one["num_steps"]) == ("human", "complete", 2)
        payload = person.http.get(f"/traces/{one['name']}").json()
    assert [(row["gesture"] or {}).get("points") for row in payload["steps"]] == [[[50, 100]], None]
    assert [(row["description"], row["executed"]) for row in payload["steps"]] == [
        ("tap at 0.500 0.500", True),
        ("complete", True),
    ]

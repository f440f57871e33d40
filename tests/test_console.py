"""The console without its page: runs that a person steers, demonstrations, traces, and who may ask for them."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from consoles import ACTIONS, DONE, HOSTILE, SWIPE, TAP, Glass, Scripted, at_console

from data_prep.formats import trace as trace_format
from uivlm.actions.action import Finish, Point, Press, Tap, Type
from uivlm.actions.aitw import from_aitw
from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import AgentError
from uivlm.console.session import Session
from uivlm.console.steered import Pace
from uivlm.console.view import to_json
from uivlm.devices.sim.phone import Phone
from uivlm.episode import Element, Screen
from uivlm.safety.policy import Policy
from uivlm.trace import Trace
from uivlm.trace_read import read_trace

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)


@pytest.fixture
def glass():
    return Glass()


# -- a run ----------------------------------------------------------------------------------------------------------


def test_a_run_that_nobody_has_to_steer(glass, tmp_path):
    agent = Scripted(TAP, SWIPE, Type("x"), Press("home"), DONE)
    with at_console(agent, glass, tmp_path) as person:
        assert person.view.phase == "idle"
        person.does("start", goal="open the clock", step_mode=False)
        view = person.sees("idle")
    assert (view.status, view.message, view.goal) == ("complete", "complete after 5 steps", "open the clock")
    assert glass.done == [TAP_DONE, SWIPE_DONE, Keys("x"), Button("home")]
    assert [(step.by, step.gesture) for step in view.steps] == [
        ("agent", done) for done in (*glass.done, None)
    ]
    run = read_trace(tmp_path / view.trace)
    assert (run.goal, run.by, run.status, len(run.rows)) == ("open the clock", "agent", "complete", 5)


def test_in_step_mode_each_gesture_waits(glass, tmp_path):
    with at_console(Scripted(TAP, SWIPE, TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        view = person.asked(1)
        assert (view.next.gesture, view.next.words, view.next.reasons) == (TAP_DONE, "words 1", ())
        assert (view.next.confidence, view.next.kind_confidence, glass.done) == (0.5, 0.75, [])
        person.does("confirm", number=1)
        assert person.asked(2).next.gesture == SWIPE_DONE
        assert glass.done == [TAP_DONE]
        assert person.post("confirm", number=1).status_code == 409  # that answer was for another gesture
        assert glass.done == [TAP_DONE]
        person.does("wait_each", on=False)
        assert person.sees("idle").status == "complete"
    assert len(glass.done) == 3


def test_a_denied_gesture_ends_the_run(glass, tmp_path):
    with at_console(Scripted(TAP, TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("deny", number=1)
        assert person.sees("idle").status == "denied"
        assert person.trace()[0]["status"] == "denied"
    assert glass.done == []


def test_what_commits_is_asked_for_and_told_why(tmp_path):
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, "Send"))
    with at_console(Scripted(SWIPE, TAP, DONE), glass, tmp_path, Policy(ask_in=())) as person:
        person.does("start", goal="g", step_mode=False)
        assert person.asked(2).next.reasons == ("it may commit: 'Send'",)
        assert glass.done == [SWIPE_DONE]
        person.does("confirm", number=2)
        assert person.sees("idle").status == "complete"


@pytest.mark.parametrize(("black", "ending"), [(False, "denied"), (True, "handed over")])
def test_nobody_answers(glass, tmp_path, black, ending):
    glass.black = black
    with at_console(Scripted(TAP), glass, tmp_path, pace=Pace(0.0, 0.05)) as person:
        person.does("start", goal="g", step_mode=True)
        view = person.sees("idle")
    assert (view.status, glass.done) == (ending, [])
    assert "nobody answered" in view.message


def test_a_black_screen_asks_for_help(glass, tmp_path):
    glass.black = True
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.asked(1)
        assert view.next.gesture is None
        assert "black" in view.next.reasons[0]
        glass.black = False
        person.does("confirm", number=1)
        assert person.sees("idle").status == "complete"


def test_a_gesture_is_shown_before_it_is_done(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path, pace=Pace(60.0, 60.0)) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.sees("next")
        assert (view.next.gesture, glass.done) == (TAP_DONE, [])
        person.does("deny", number=1)  # and may still be denied
        assert person.sees("idle").status == "denied"
    assert glass.done == []


def test_one_run_at_a_time(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        for deed in ("start", "record"):
            answer = person.post(deed, goal="other", step_mode=True)
            assert (answer.status_code, answer.text.count("\n")) == (409, 0)
            assert "busy" in answer.text
        for deed, told in (
            ("look", {}),
            ("hand_back", {}),
            ("finish", {"status": "complete"}),
            ("press", {"screen": person.view.num_screens, "key": "back"}),
        ):
            assert person.post(deed, **told).status_code == 409
        assert len(list(tmp_path.iterdir())) == 1
    assert glass.done == []


def test_what_is_over_cannot_be_steered(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        for deed, told in (("stop", {}), ("take_over", {}), ("hand_back", {}), ("confirm", {"number": 1})):
            assert person.post(deed, **told).status_code == 409
        assert person.view.version == 0


# -- the person takes over --------------------------------------------------------------------------------------------


def test_what_the_person_does_becomes_steps(glass, tmp_path):
    agent = Scripted(TAP, DONE)
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        person.sees("by hand")
        person.touches((0.5, 0.5), (0.51, 0.5))  # so short that it is a tap
        person.touches((0.8, 0.5), (0.2, 0.5))
        person.does("type", screen=person.view.num_screens, text="hello")
        person.does("press", screen=person.view.num_screens, key="enter")
        assert [step.by for step in person.view.steps] == ["person"] * 4
        seen = person.view.num_screens
        person.does("hand_back")
        assert person.sees("idle").status == "complete"
        run, rows = person.trace()
    assert glass.done == [Touch(((50, 100),), 60), SWIPE_DONE, Keys("hello"), Button("enter")]
    done = [step.action for step in agent.histories[1].steps]
    assert done == [Tap(Point(0.5, 0.5)), SWIPE, Type("hello"), Press("enter")]
    shades = [int(step.screen.pixels[0, 0, 0]) for step in agent.histories[1].steps]
    assert shades == [40, 50, 60, 70]
    assert ([row["by"] for row in rows], run["status"]) == (["person"] * 4 + ["agent"], "complete")
    assert rows[0]["proposed"]["action"]["at"] == {"y": 0.5, "x": 0.25}
    assert person.view.num_screens == seen + 1  # what was done by hand is not shown a second time
    assert person.view.screen is agent.histories[1].screen


def test_taking_over_while_the_agent_thinks(glass, tmp_path):
    agent = Scripted(TAP, DONE)
    agent.let.clear()
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        assert agent.asked.wait(10)
        person.does("take_over")
        assert person.view.taking
        agent.let.set()
        person.sees("by hand")
        assert person.post("take_over").status_code == 409
        person.does("hand_back")
        assert person.sees("idle").status == "complete"
    assert glass.done == []


def test_a_gesture_counts_for_the_screen_that_was_seen(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        before = person.sees("by hand").num_screens
        person.touches((0.5, 0.5))
        answer = person.post("gesture", screen=before, touch=[0.1, 0.1], lift=[0.1, 0.1])
        assert answer.status_code == 409
        assert "changed" in answer.text
        glass.let.clear()
        slow = threading.Thread(target=person.touches, args=((0.2, 0.2),))
        glass.touched.clear()
        slow.start()
        assert glass.touched.wait(10)
        answer = person.post("press", screen=person.view.num_screens, key="back")
        assert (answer.status_code, "busy" in answer.text) == (409, True)
        glass.let.set()
        slow.join()
        person.does("hand_back")
        person.sees("idle")
    assert len(glass.done) == 2


# -- stop -------------------------------------------------------------------------------------------------------------


def test_stop_while_the_agent_thinks(glass, tmp_path):
    agent = Scripted(TAP, TAP)
    agent.let.clear()
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        assert agent.asked.wait(10)
        person.does("stop")
        assert person.view.stopping
        agent.let.set()
        assert person.sees("idle").status == "stopped"
        assert not person.view.stopping
    assert glass.done == []


def test_stop_while_it_asks(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("stop")
        assert person.sees("idle").status == "stopped"
        assert person.post("confirm", number=1).status_code == 409
    assert glass.done == []


def test_stop_during_a_gesture_of_the_persons(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        person.sees("by hand")
        glass.let.clear()
        slow = threading.Thread(target=person.touches, args=((0.5, 0.5),))
        slow.start()
        assert glass.touched.wait(10)
        stop = threading.Thread(target=person.does, args=("stop",))
        stop.start()
        person.until(lambda view: view.stopping)
        glass.let.set()
        slow.join()
        stop.join()
        assert person.sees("idle").status == "stopped"
        _, rows = person.trace()
    assert glass.done == [Touch(((50, 100),), 60)]
    assert [(row["by"], row["gesture"]["kind"]) for row in rows] == [
        ("person", "Touch")
    ]  # it was done, so it is told


def test_who_has_asked_for_the_end_does_nothing_more(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        person.session.board.show(stopping=True)  # as while the end waits for a gesture that has begun
        assert person.post("press", screen=person.view.num_screens, key="back").status_code == 409
        assert person.post("finish", status="complete").status_code == 409
    assert glass.done == []


def test_the_end_of_the_console_ends_the_run(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
    assert (person.view.phase, person.view.status, glass.done) == ("idle", "stopped", [])
    with pytest.raises(ValueError, match="closing"):
        person.session.start("g", False)


def test_ctrl_c_during_a_run(tmp_path):
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from consoles import *
from uivlm.console.server import console
console(Scripted(TAP, TAP), Glass(), HARMLESS, Path({str(tmp_path)!r}), port=0, ready=lambda url: print(url, flush=True))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url) as http:
            token = http.get("/").text.partition('name="token" content="')[2].partition('"')[0]
            headers = {"x-console-token": token, "content-type": "application/json"}
            told = json.dumps({"goal": "g", "step_mode": True})
            assert http.post("/do/start", content=told, headers=headers).status_code == 204
            with http.stream("GET", "/events") as events:  # a page that watches does not hold it up
                for line in events.iter_lines():
                    if '"asking"' in line:
                        break
                process.send_signal(signal.SIGINT)
                process.wait(20)
    assert process.returncode == 0
    (folder,) = tmp_path.iterdir()
    assert read_trace(folder).status == "stopped"


# -- what fails ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "ending", "message"),
    [
        (AgentError("nobody answers"), "agent error", "nobody answers"),
        (RuntimeError("a defect"), "crashed", "RuntimeError: a defect"),
        (NotAnAction("fly", "no verb"), "not an action", "step 1: 'words 1' is no action: no verb"),
    ],
)
def test_an_agent_that_fails(glass, tmp_path, said, ending, message):
    agent = Scripted(said)
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.sees("idle")
        assert (view.status, view.message, person.trace()[0]["status"]) == (ending, message, ending)
        agent.said = (DONE,)
        person.does("start", goal="again", step_mode=False)
        assert person.sees("idle").status == "complete"


def test_a_phone_that_is_gone(glass, tmp_path):
    glass.gone = True
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        for deed in ("look", "record"):
            answer = person.post(deed, goal="g")
            assert (answer.status_code, answer.text) == (502, "the phone is gone")
        assert (person.view.phase, person.view.status) == ("idle", "device error")
        person.does("start", goal="g", step_mode=False)
        assert person.sees("idle").message == "the phone is gone"
        glass.gone = False
        person.does("look")


def test_a_phone_that_goes_while_the_person_has_it(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        seen = person.sees("by hand").num_screens
        person.touches((0.5, 0.5))
        glass.gone = True
        assert person.post("press", screen=seen, key="back").status_code == 409
        assert person.post("press", screen=person.view.num_screens, key="back").status_code == 502
        assert person.view.phase == "by hand"
        person.does("hand_back")
        assert person.sees("idle").status == "device error"
        assert [row["by"] for row in person.trace()[1]] == ["person"]


def test_a_phone_that_goes_during_a_demonstration(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        person.touches((0.5, 0.5))
        glass.gone = True
        assert person.post("press", screen=person.view.num_screens, key="back").status_code == 502
        assert (person.view.phase, person.view.status) == ("idle", "device error")
        assert [person.trace()[0][name] for name in ("status", "steps")] == ["device error", 1]


def test_traces_that_cannot_be_written(glass, tmp_path):
    (tmp_path / "file").write_text("")
    with at_console(Scripted(TAP), glass, tmp_path / "file") as person:
        for deed in ("start", "record"):
            answer = person.post(deed, goal="g", step_mode=False)
            assert answer.status_code == 500
            assert "trace" in answer.text
        assert person.view.phase == "idle"
    assert glass.done == []


def test_a_policy_that_cannot_be_kept_is_told_at_once(tmp_path):
    class Mute:
        def screen(self) -> Screen:
            return Screen(np.zeros((9, 9, 3), np.uint8))

        def perform(self, gesture: object) -> None:
            raise AssertionError

    with pytest.raises(ValueError, match="cannot say what is on its screen"):
        Session(Scripted(), Mute(), Policy(), tmp_path)
    with pytest.raises(ValueError, match="UIVLM_NOT_SET"):
        Session(Scripted(), Glass(), Policy(secrets={"pin": "UIVLM_NOT_SET"}), tmp_path)


# -- demonstrations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["complete", "impossible"])
def test_a_demonstration_is_training_data(tmp_path, status):
    phone = Phone(layout=1)
    before = phone.screen().pixels
    with at_console(Scripted(), phone, tmp_path) as person:
        person.does("record", goal="show it")
        assert person.view.phase == "recording"
        person.touches((0.1, 0.2))
        person.touches((0.9, 1 / 3), (0.1, 0.5))
        person.does("type", screen=person.view.num_screens, text=ACTIONS[2].text)
        person.does("press", screen=person.view.num_screens, key="back")
        person.does("finish", status=status)
        view = person.view
        assert (view.phase, view.status, view.message) == ("idle", status, f"{status} after 5 steps")
    run = read_trace(tmp_path / view.trace)
    assert (run.by, run.ended_well, run.goal) == ("person", True, "show it")
    records = [found.load() for part in trace_format.find(str(tmp_path)) for found in trace_format.read(part)]
    assert tuple(record.action for record in records) == (*ACTIONS, Finish(status))
    assert tuple(from_aitw(*(one.action_type, one.touch, one.lift, one.text)) for one in records) == (
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
        assert person.post("press", screen=person.view.num_screens, key="back").status_code == 409
    assert len(glass.done) == 1


def test_a_demonstration_ends_with_the_console(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
    assert person.trace()[0]["status"] == "stopped"


@pytest.fixture
def keeper(monkeypatch):
    """A policy with a secret: 4711."""
    monkeypatch.setenv("PIN_OF_TEST", "4711")
    return Policy(ask_in=(), commits=(), secrets={"pin": "PIN_OF_TEST"})


def all_told(person):
    """What is written, and what the page may ask for."""
    name = person.view.trace
    files = [file.read_bytes() for file in person.session.traces.rglob("*") if file.is_file()]
    answers = [person.http.get(f"/traces{part}").content for part in ("", f"/{name}", f"/{name}/0")]
    return b"".join((*files, *answers, to_json(person.view).encode()))


def test_secrets_stay_hidden_in_a_run(glass, tmp_path, keeper):
    agent = Scripted(Type("my {secret:pin}"), TAP, DONE)
    with at_console(agent, glass, tmp_path, keeper) as person:
        person.does("start", goal="type 4711", step_mode=True)
        assert person.asked(1).next.gesture == Keys("my {secret:pin}")
        person.does("confirm", number=1)
        person.asked(2)
        person.does("take_over")
        person.sees("by hand")
        for text in ("again {secret:pin}", "as it is: 4711"):
            person.does("type", screen=person.view.num_screens, text=text)
        assert person.view.screen.pixels[30, 50, 0] == 96, "what stands there is covered"
        person.does("hand_back")
        person.sees("idle")
        assert b"4711" not in all_told(person)
    assert glass.done == [Keys("my 4711"), Keys("again 4711"), Keys("as it is: 4711")]
    assert agent.histories[0].goal == "type {secret:pin}"
    assert [step.action.text for step in agent.histories[-1].steps] == [
        "my {secret:pin}",
        "again {secret:pin}",
        "as it is: {secret:pin}",
    ]


def test_secrets_stay_hidden_in_a_demonstration(glass, tmp_path, keeper):
    with at_console(Scripted(), glass, tmp_path, keeper) as person:
        person.does("record", goal="type 4711")
        person.does("type", screen=person.view.num_screens, text="4711")
        assert person.post("type", screen=person.view.num_screens, text="{secret:key}").status_code == 422
        person.does("finish", status="complete")
        assert b"4711" not in all_told(person)
    assert glass.done == [Keys("4711")]
    assert read_trace(tmp_path / person.view.trace).rows[0].action == Type("{secret:pin}")


# -- traces -------------------------------------------------------------------------------------------------------------


def test_the_list_of_traces(glass, tmp_path):
    folder = tmp_path / "traces"
    for number, status in enumerate(("complete", "denied", "complete")):
        trace = Trace(folder / f"t{number}", HOSTILE if number else "first")
        trace.saw(0, glass.screen(), 1.0)
        if number < 2:
            trace.ended(status, "so it ended")
        for file in ("run.json", "trace.jsonl"):
            os.utime(folder / f"t{number}" / file, ns=(number * 10**9, number * 10**9))
    (folder / "t0" / "000.png").write_bytes(b"no picture")
    (folder / "nothing").mkdir()
    (folder / "file").write_text("")
    (folder / "link").symlink_to(folder / "t1")
    with at_console(Scripted(), glass, folder) as person:
        told = person.http.get("/traces").json()
        assert [one["name"] for one in told["traces"]] == ["t2", "t1", "t0"]
        assert [one.get("status") for one in told["traces"]] == ["broken off", "denied", None]
        assert "damaged" in told["traces"][2]["broken"]
        assert told["traces"][1]["goal"] == HOSTILE
        assert told["more"] is False
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
        Trace(tmp_path / f"{number:03d}", f"goal {number}").ended("complete", "")
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
        assert (one["by"], one["status"], one["steps"]) == ("person", "complete", 2)
        told = person.http.get(f"/traces/{one['name']}").json()
    assert [(row["gesture"] or {}).get("path") for row in told["rows"]] == [[[50, 100]], None]
    assert [(row["what"], row["done"]) for row in told["rows"]] == [
        ("tap at 0.500 0.500", True),
        ("complete", True),
    ]

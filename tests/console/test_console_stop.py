"""The console without its page: stopping, and failures of agent, phone and disk."""

import json
import signal
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

from tests.helpers.console_client import DONE, TAP, Scripted, at_console
from tests.helpers.paths import ROOT
from uivlm.actions.action import InvalidAction
from uivlm.actions.gesture import Touch
from uivlm.agents.agent import AgentError
from uivlm.console.session import Session
from uivlm.episodes.episode import Screen
from uivlm.rollout.trace_reader import read_trace
from uivlm.safety.policy import Policy
from uivlm.safety.secrets import load_secrets

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)


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
        assert person.post("confirm", request_id=1).status_code == 409
    assert glass.done == []


def test_stop_during_a_gesture_of_the_persons(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        person.sees("human_control")
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
    assert [(row["actor"], row["gesture"]["type"]) for row in rows] == [("human", "touch")]  # it was executed


def test_who_has_asked_for_the_end_does_nothing_more(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        person.session.store.update(stopping=True)  # as while the end waits for a gesture that has begun
        assert person.post("press", screen_id=person.view.screen_id, key="back").status_code == 409
        assert person.post("finish", status="complete").status_code == 409
    assert glass.done == []


def test_the_end_of_the_console_ends_the_run(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
    assert (person.view.phase, person.view.status, glass.done) == ("idle", "stopped", [])
    with pytest.raises(ValueError, match="closing"):
        person.session.start("g", False)


@pytest.mark.slow
def test_ctrl_c_during_a_run(tmp_path):
    program = f"""
from functools import partial
from tests.helpers.console_client import *
from uivlm.console.server import console
secrets, traces = load_secrets(PERMISSIVE_POLICY), Path({str(tmp_path)!r})
ready = partial(print, flush=True)
console(Scripted(TAP, TAP), Glass(), PERMISSIVE_POLICY, secrets, traces, port=0, ready=ready)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url) as http:
            token = http.get("/").text.partition('name="token" content="')[2].partition('"')[0]
            headers = {"x-console-token": token, "content-type": "application/json"}
            body = json.dumps({"type": "start", "goal": "g", "step_mode": True})
            assert http.post("/commands", content=body, headers=headers).status_code == 204
            with http.stream("GET", "/events") as events:  # a page that watches does not hold it up
                for line in events.iter_lines():
                    if '"confirming"' in line:
                        break
                process.send_signal(signal.SIGINT)
                process.wait(20)
    assert process.returncode == 0
    (folder,) = tmp_path.iterdir()
    assert read_trace(folder).info.status == "stopped"


# -- what fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "ending", "message"),
    [
        (AgentError("nobody answers"), "agent_error", "nobody answers"),
        (RuntimeError("a defect"), "crashed", "RuntimeError: a defect"),
        (InvalidAction("fly", "no verb"), "invalid_action", "step 1: 'words 1' is not an action: no verb"),
    ],
)
def test_an_agent_that_fails(glass, tmp_path, script, ending, message):
    agent = Scripted(script)
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.sees("idle")
        assert (view.status, view.message, person.trace()[0]["status"]) == (ending, message, ending)
        agent.script = (DONE,)
        person.does("start", goal="again", step_mode=False)
        assert person.sees("idle").status == "complete"


def test_a_phone_that_is_gone(glass, tmp_path):
    glass.gone = True
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        for command, args in (("refresh", {}), ("record", {"goal": "g"})):
            answer = person.post(command, **args)
            assert (answer.status_code, answer.text) == (502, "the phone is gone")
        assert (person.view.phase, person.view.status) == ("idle", "device_error")
        person.does("start", goal="g", step_mode=False)
        assert person.sees("idle").message == "the phone is gone"
        glass.gone = False
        person.does("refresh")


def test_a_phone_that_goes_while_the_person_has_it(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        seen = person.sees("human_control").screen_id
        person.touches((0.5, 0.5))
        glass.gone = True
        assert person.post("press", screen_id=seen, key="back").status_code == 409
        assert person.post("press", screen_id=person.view.screen_id, key="back").status_code == 502
        assert person.view.phase == "human_control"
        person.does("hand_back")
        assert person.sees("idle").status == "device_error"
        assert [row["actor"] for row in person.trace()[1]] == ["human"]


def test_a_phone_that_goes_during_a_demonstration(glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person:
        person.does("record", goal="g")
        person.touches((0.5, 0.5))
        glass.gone = True
        assert person.post("press", screen_id=person.view.screen_id, key="back").status_code == 502
        assert (person.view.phase, person.view.status) == ("idle", "device_error")
        assert [person.trace()[0][name] for name in ("status", "num_steps")] == ["device_error", 1]


def test_traces_that_cannot_be_written(glass, tmp_path):
    (tmp_path / "file").write_text("")
    with at_console(Scripted(TAP), glass, tmp_path / "file") as person:
        for command, args in (("start", {"goal": "g", "step_mode": False}), ("record", {"goal": "g"})):
            answer = person.post(command, **args)
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

    with pytest.raises(ValueError, match="Mute cannot name its app"):
        Session(Scripted(), Mute(), Policy(), load_secrets(Policy()), tmp_path)

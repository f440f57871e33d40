"""The console without its page: supervised runs."""

import threading

import pytest

from tests.helpers.console_client import DONE, SWIPE, TAP, Glass, Scripted, at_console
from uivlm.actions.action import Point, Press, Tap, Type
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.console.supervised_run import ConfirmationTiming
from uivlm.episodes.episode import Element, Screen
from uivlm.rollout.trace_reader import read_trace
from uivlm.safety.always import Exemption
from uivlm.safety.policy import Policy, read_policy

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)


# -- a run ---------------------------------------------------------------------------------------------------


def test_a_run_that_nobody_has_to_steer(glass, tmp_path):
    agent = Scripted(TAP, SWIPE, Type("x"), Press("home"), DONE)
    with at_console(agent, glass, tmp_path) as person:
        assert person.view.phase == "idle"
        person.does("start", goal="open the clock", step_mode=False)
        view = person.sees("idle")
    assert (view.status, view.message, view.goal) == ("complete", "complete after 5 steps", "open the clock")
    assert glass.done == [TAP_DONE, SWIPE_DONE, TypeText("x"), PressKey("home")]
    assert [(step.actor, step.gesture) for step in view.steps] == [
        ("agent", done) for done in (*glass.done, None)
    ]
    run = read_trace(tmp_path / view.trace)
    assert (run.info.goal, run.info.actor, run.info.status, len(run.steps)) == (
        "open the clock",
        "agent",
        "complete",
        5,
    )


def test_in_step_mode_each_gesture_waits(glass, tmp_path):
    with at_console(Scripted(TAP, SWIPE, TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        view = person.asked(1)
        assert (view.pending.gesture, view.pending.text, view.pending.reasons) == (TAP_DONE, "words 1", ())
        assert (view.pending.confidence, view.pending.action_type_confidence, glass.done) == (0.5, 0.75, [])
        person.does("confirm", request_id=1)
        assert person.asked(2).pending.gesture == SWIPE_DONE
        assert glass.done == [TAP_DONE]
        assert person.post("confirm", request_id=1).status_code == 409  # that answer was for another gesture
        assert glass.done == [TAP_DONE]
        person.does("set_step_mode", on=False)
        assert person.sees("idle").status == "complete"
    assert len(glass.done) == 3


def test_a_denied_gesture_ends_the_run(glass, tmp_path):
    with at_console(Scripted(TAP, TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("deny", request_id=1)
        assert person.sees("idle").status == "denied"
        assert person.trace()[0]["status"] == "denied"
    assert glass.done == []


def test_what_commits_is_asked_for_and_told_why(tmp_path):
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, "Send"))
    with at_console(Scripted(SWIPE, TAP, DONE), glass, tmp_path, Policy(confirm_apps=())) as person:
        person.does("start", goal="g", step_mode=False)
        assert person.asked(2).pending.reasons == ("the touched element says 'Send'",)
        assert glass.done == [SWIPE_DONE]
        person.does("confirm", request_id=2)
        assert person.sees("idle").status == "complete"


@pytest.mark.parametrize("step_mode", [True, False])
def test_a_gesture_is_not_performed_on_another_screen(glass, tmp_path, step_mode):
    """A dialog comes under the drawn gesture, in step mode or while it is shown."""
    agent = Scripted(TAP, TAP, DONE)
    with at_console(agent, glass, tmp_path, pace=ConfirmationTiming(60.0, 60.0)) as person:
        person.does("start", goal="g", step_mode=step_mode)
        person.sees("preview", "confirming")
        dialog = glass.screen().pixels.copy()
        dialog[80:120, 10:60] = 255
        glass.still = Screen(dialog)
        person.does("confirm", request_id=1)
        view = person.until(lambda view: view.pending is not None and view.pending.request_id == 2)
        assert (glass.done, view.screen) == ([], glass.still)
        assert agent.histories[1].screen is glass.still
        assert agent.histories[1].steps == ()
        person.does("confirm", request_id=2)
        assert person.sees("idle").status == "complete"
    assert glass.done == [TAP_DONE], "it was confirmed on the dialog"


def test_what_is_always_allowed_is_asked_for_once(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text("[safety]\nconfirm_apps = []\n")
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, "Send"))
    agent = Scripted(TAP, TAP, DONE)
    with at_console(agent, glass, tmp_path / "traces", read_policy(file)) as person:
        person.does("start", goal="g", step_mode=False)
        assert person.asked(1).pending.always == "'Send' in com.glass"
        person.does("always", request_id=1)
        assert person.sees("idle").status == "complete"
        assert (len(glass.done), agent.histories[-1].goal) == (2, "g")
        assert read_policy(file).always == (Exemption("com.glass", label="Send"),)
        person.does("start", goal="again", step_mode=False)
        person.until(lambda view: view.goal == "again" and view.phase == "idle")
        assert person.view.status == "complete", "nor in this console's next run"


def test_what_cannot_be_always_allowed(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        assert person.asked(1).pending.always == ""
        answer = person.post("always", request_id=1)
        assert (answer.status_code, "cannot be allowed for good" in answer.text) == (409, True)
        assert person.view.phase == "confirming"


@pytest.mark.parametrize(("black", "ending"), [(False, "denied"), (True, "needs_human")])
def test_nobody_answers(glass, tmp_path, black, ending):
    glass.black = black
    with at_console(Scripted(TAP), glass, tmp_path, pace=ConfirmationTiming(0.0, 0.05)) as person:
        person.does("start", goal="g", step_mode=True)
        view = person.sees("idle")
    assert (view.status, glass.done) == (ending, [])
    assert "nobody answered" in view.message


def test_a_black_screen_asks_for_help(glass, tmp_path):
    glass.black = True
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.asked(1)
        assert view.pending.gesture is None
        assert "black" in view.pending.reasons[0]
        glass.black = False
        person.does("confirm", request_id=1)
        assert person.sees("idle").status == "complete"


def test_a_gesture_is_shown_before_it_is_done(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path, pace=ConfirmationTiming(60.0, 60.0)) as person:
        person.does("start", goal="g", step_mode=False)
        view = person.sees("preview")
        assert (view.pending.gesture, glass.done) == (TAP_DONE, [])
        person.does("deny", request_id=1)  # and may still be denied
        assert person.sees("idle").status == "denied"
    assert glass.done == []


def test_one_run_at_a_time(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        for command, args in (("start", {"goal": "g", "step_mode": True}), ("record", {"goal": "g"})):
            answer = person.post(command, **args)
            assert (answer.status_code, answer.text.count("\n")) == (409, 0)
            assert "busy" in answer.text
        for command, args in (
            ("refresh", {}),
            ("hand_back", {}),
            ("finish", {"status": "complete"}),
            ("press", {"screen_id": person.view.screen_id, "key": "back"}),
        ):
            assert person.post(command, **args).status_code == 409
        assert len(list(tmp_path.iterdir())) == 1
    assert glass.done == []


def test_what_is_over_cannot_be_steered(glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person:
        for command, args in (
            ("stop", {}),
            ("take_over", {}),
            ("hand_back", {}),
            ("confirm", {"request_id": 1}),
        ):
            assert person.post(command, **args).status_code == 409
        assert person.view.version == 0


# -- the person takes over -----------------------------------------------------------------------------------


def test_what_the_person_does_becomes_steps(glass, tmp_path):
    agent = Scripted(TAP, DONE)
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        person.sees("human_control")
        person.touches((0.5, 0.5), (0.51, 0.5))  # so short that it is a tap
        person.touches((0.8, 0.5), (0.2, 0.5))
        person.does("type", screen_id=person.view.screen_id, text="hello")
        person.does("press", screen_id=person.view.screen_id, key="enter")
        assert [step.actor for step in person.view.steps] == ["human"] * 4
        seen = person.view.screen_id
        person.does("hand_back")
        assert person.sees("idle").status == "complete"
        run, rows = person.trace()
    assert glass.done == [Touch(((50, 100),), 60), SWIPE_DONE, TypeText("hello"), PressKey("enter")]
    done = [step.action for step in agent.histories[1].steps]
    assert done == [Tap(Point(0.5, 0.5)), SWIPE, Type("hello"), Press("enter")]
    shades = [int(step.screen.pixels[0, 0, 0]) for step in agent.histories[1].steps]
    assert shades == [40, 50, 60, 70]
    assert ([row["actor"] for row in rows], run["status"]) == (["human"] * 4 + ["agent"], "complete")
    assert rows[0]["proposed"]["action"]["at"] == {"y": 0.5, "x": 0.25}
    assert person.view.screen_id == seen + 1  # what was done by hand is not shown a second time
    assert person.view.screen is agent.histories[1].screen


def test_taking_over_while_the_agent_thinks(glass, tmp_path):
    agent = Scripted(TAP, DONE)
    agent.let.clear()
    with at_console(agent, glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=False)
        assert agent.asked.wait(10)
        person.does("take_over")
        assert person.view.takeover_requested
        agent.let.set()
        person.sees("human_control")
        assert person.post("take_over").status_code == 409
        person.does("hand_back")
        assert person.sees("idle").status == "complete"
    assert glass.done == []


def test_a_gesture_counts_for_the_screen_that_was_seen(glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person:
        person.does("start", goal="g", step_mode=True)
        person.asked(1)
        person.does("take_over")
        before = person.sees("human_control").screen_id
        person.touches((0.5, 0.5))
        answer = person.post("touch", screen_id=before, touch=[0.1, 0.1], lift=[0.1, 0.1])
        assert answer.status_code == 409
        assert "changed" in answer.text
        glass.let.clear()
        slow = threading.Thread(target=person.touches, args=((0.2, 0.2),))
        glass.touched.clear()
        slow.start()
        assert glass.touched.wait(10)
        answer = person.post("press", screen_id=person.view.screen_id, key="back")
        assert (answer.status_code, "busy" in answer.text) == (409, True)
        glass.let.set()
        slow.join()
        person.does("hand_back")
        person.sees("idle")
    assert len(glass.done) == 2

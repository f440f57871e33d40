"""The console's page in a real Chromium: a person takes over, or records a demonstration."""

import pytest

from data_prep.formats import trace as trace_format
from tests.helpers.browser_tab import tab
from tests.helpers.console_client import DONE, TAP, Scripted, at_console
from uivlm.actions.action import Finish, Press, Swipe, Tap, Type
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.rollout.trace_reader import read_trace

pytestmark = pytest.mark.slow

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)
DRAWN = "[...document.querySelectorAll('#frame svg > *')].map(n => [n.tagName, n.getAttribute('class')])"
WORDS = "document.querySelector('#frame svg').textContent"


def test_taking_over_with_the_mouse(browser, glass, tmp_path):
    agent = Scripted(TAP, DONE)
    with at_console(agent, glass, tmp_path) as person, tab(browser, person) as page:
        page.start("g")
        page.take_over()
        assert page.js(DRAWN) == []  # what the agent wanted is off the screen
        page.click("#pad", y=0.3025, x=0.705)
        page.until("document.querySelectorAll('#steps li').length === 1")
        page.until("document.querySelector('#frame img').src.endsWith('/screens/2')")
        page.drag("#pad", (0.8025, 0.505), (0.2025, 0.505))
        page.until("document.querySelectorAll('#steps li').length === 2")
        page.until("document.querySelector('#frame img').src.endsWith('/screens/3')")
        page.write("#text", "héllo")
        page.key("Enter")
        page.until("document.querySelectorAll('#steps li').length === 3")
        assert page.js("document.getElementById('text').value") == ""
        page.until("document.querySelector('#frame img').src.endsWith('/screens/4')")
        page.click("#back")
        page.until("document.querySelectorAll('#steps li').length === 4")
        page.says("#steps", 'type "héllo" · by you')
        page.until("document.querySelector('#frame img').src.endsWith('/screens/5')")
        page.click("#hand_back")
        page.says("#state", "Ended: complete after 5 steps.")
    assert glass.done == [
        Touch(((70, 60),), 60),
        Touch(((50, 160), (50, 40)), 500),
        TypeText("héllo"),
        PressKey("back"),
    ]
    assert [step.action for step in agent.histories[-1].steps][2:] == [Type("héllo"), Press("back")]


def test_taking_over_with_the_keyboard(browser, glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(browser, person) as page:
        page.start("g")
        page.take_over()
        page.js("document.getElementById('pad').focus()")
        page.key("ArrowDown", shift=True)
        page.key("ArrowRight")
        assert "60 percent down, 52 percent across" in page.js("document.getElementById('pad').ariaLabel")
        assert ["path", "mark"] in page.js(DRAWN)
        page.key("Enter")
        page.until("document.querySelector('#frame img').src.endsWith('/screens/2')")
        assert page.focus() == "pad"
        page.key("s")
        page.key("Escape")  # drops the swipe, and does not stop the run
        page.key("s")
        for _ in range(3):
            page.key("ArrowUp", shift=True)
        assert ["polyline", "mark dashed"] in page.js(DRAWN)
        page.key("Enter")
        page.until("document.querySelectorAll('#steps li').length === 2")
        assert person.view.phase == "human_control"
    assert glass.done == [Touch(((52, 120),), 60), Touch(((52, 120), (52, 60)), 500)]


def test_what_cannot_be_done_is_said(browser, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, tab(browser, person) as page:
        page.click("#refresh")
        page.until("document.querySelector('#frame img').naturalWidth === 100")
        glass.gone = True
        page.click("#refresh")
        page.says("#wrong", "The phone is gone.")
        assert page.js("document.querySelector('#wrong p').role") == "alert"
        page.click("#dismiss")
        assert page.js("document.getElementById('wrong').hidden") is True
        glass.gone = False
        page.click("#refresh")
        page.until("document.getElementById('wrong').hidden")
        page.click("#start")  # without a goal
        assert page.focus() == "goal"
        assert person.view.phase == "idle"


def test_a_console_that_ends_is_missed(browser, glass, tmp_path):
    with browser.new_page() as page:
        with at_console(Scripted(), glass, tmp_path) as person:
            page.goto(person.url)
            for _ in range(500):
                if page.evaluate("document.getElementById('state')?.textContent") == "Nothing is running.":
                    break
        for _ in range(500):
            if "does not respond" in page.evaluate("document.getElementById('state').textContent"):
                break
        else:
            raise AssertionError("the page did not notice")


def test_a_demonstration_on_a_small_screen(browser, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, tab(browser, person, 320, 640) as page:
        assert page.js("document.scrollingElement.scrollWidth") == 320
        page.finger("#goal", (0.5, 0.5))
        page.page.call("Input.insertText", text="show it")
        page.finger("#record", (0.5, 0.5))
        page.says("#state", "Recording")
        page.until("document.querySelector('#frame img').naturalWidth === 100")
        assert page.box("#pad") == pytest.approx(page.box("#frame img"), abs=1)
        # otherwise Chromium may treat a fast swipe as a fling, and the next tap as its end
        touch = "new TouchEvent('touchstart', {cancelable: true})"
        assert page.js(f"document.getElementById('pad').dispatchEvent({touch})") is False
        page.finger("#pad", (0.3025, 0.705))
        page.until("document.querySelector('#frame img').src.endsWith('/screens/2')")
        page.finger("#pad", (0.8025, 0.505), (0.5, 0.505), (0.2025, 0.505))
        page.until("document.querySelector('#frame img').src.endsWith('/screens/3')")
        page.finger("#text", (0.5, 0.5))
        page.page.call("Input.insertText", text="日本 %s")
        page.finger("#typing button", (0.5, 0.5))
        page.until("document.querySelector('#frame img').src.endsWith('/screens/4')")
        page.finger("#home", (0.5, 0.5))
        page.until("document.querySelector('#frame img').src.endsWith('/screens/5')")
        assert page.js("document.scrollingElement.scrollWidth") == 320
        page.finger("#complete", (0.5, 0.5))
        page.says("#state", "Ended: complete after 5 steps.")
        page.says("#list", "demonstration · complete · 5 steps")
        assert page.js("document.scrollingElement.scrollWidth") == 320

        page.finger("#list button", (0.3, 0.5))
        page.says("#replay-step", "1 of 5: tap at 0.3")
        page.finger("#following", (0.5, 0.5))
        page.says("#replay-step", "2 of 5: swipe from 0.8")
        assert page.js("document.scrollingElement.scrollWidth") == 320
    assert glass.done == [Touch(((70, 60),), 60), SWIPE_DONE, TypeText("日本 %s"), PressKey("home")]
    run = read_trace(tmp_path / person.view.trace)
    assert (run.info.actor, run.info.status) == ("human", "complete")
    records = [
        result.load() for part in trace_format.find(str(tmp_path)) for result in trace_format.read(part)
    ]
    assert [record.action for record in records] == [row.action for row in run.steps]
    assert [type(record.action) for record in records] == [Tap, Swipe, Type, Press, Finish]

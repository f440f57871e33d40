"""The console's page in a real Chromium: runs and gestures."""

import json

import pytest

from tests.helpers.browser_tab import tab
from tests.helpers.console_client import DONE, HOSTILE, SWIPE, TAP, Glass, Scripted, at_console
from uivlm.actions.action import Press, Type
from uivlm.actions.gesture import Touch
from uivlm.agents.agent import AgentError
from uivlm.cli.devices import simulated_device
from uivlm.devices.adb.server import private_server
from uivlm.devices.sim.phone import SimPhone
from uivlm.episodes.episode import Element
from uivlm.reports.draw import caption
from uivlm.safety.always import Exemption
from uivlm.safety.policy import Policy, read_policy

pytestmark = pytest.mark.slow

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)
DRAWN = "[...document.querySelectorAll('#frame svg > *')].map(n => [n.tagName, n.getAttribute('class')])"
WORDS = "document.querySelector('#frame svg').textContent"


def test_a_run_is_watched_and_steered(browser, tmp_path):
    """Through the real adb client, by keyboard."""
    agent = Scripted(TAP, SWIPE, DONE)
    with (
        private_server() as adb,
        simulated_device(SimPhone(layout=1), adb) as phone,
        at_console(agent, phone, tmp_path) as person,
        tab(browser, person) as page,
    ):
        page.start("open the <b>clock</b>")
        page.open_button("confirm")
        page.says("#state", "Waiting for you")
        assert page.text("#pursued") == "Goal: open the <b>clock</b>"
        assert page.text("#description") == "tap at 0.500 0.250"
        assert page.text("#model-output") == "Model output: words 1 · confidence 0.50 (action type 0.75)"
        ring, picture = page.box("#frame circle.mark"), page.box("#frame img")
        assert ring["x"] + ring["width"] / 2 == pytest.approx(picture["x"] + 0.25 * picture["width"], abs=1.5)
        assert ring["y"] + ring["height"] / 2 == pytest.approx(
            picture["y"] + 0.5 * picture["height"], abs=1.5
        )
        assert page.js("document.querySelector('#frame img').naturalWidth") == SimPhone(layout=1).width

        page.js("document.getElementById('confirm').focus()")
        page.key("Enter")
        page.says("#description", "swipe")
        page.open_button("confirm")
        assert page.js(DRAWN) == [["polyline", "halo"], ["polyline", "mark"], ["circle", "dot"]]
        assert page.focus() == "confirm"
        page.key(" ")
        page.says("#state", "Ended: complete after 3 steps.")
        assert page.focus() == "state"
        payload = page.js("[...document.querySelectorAll('#steps li')].map(item => item.innerText.trim())")
        assert payload == [
            "1. tap at 0.500 0.250 · confidence 0.50",
            "2. swipe from 0.800 0.500 to 0.200 0.500 · confidence 0.50",
            "3. complete · confidence 0.50",
        ]
        page.until("[...document.querySelectorAll('#steps img')].every(small => small.naturalWidth > 40)")
        page.says("#list", "open the <b>clock</b>")
        page.says("#list", "run · complete · 3 steps")


def test_always_allow_here_is_one_click(browser, tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text("# mine\n[safety]\nconfirm_apps = []\n")
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, "<b>Send"))
    agent = Scripted(TAP, TAP, SWIPE, DONE)
    with (
        at_console(agent, glass, tmp_path / "traces", read_policy(file)) as person,
        tab(browser, person) as page,
    ):
        page.start("g", step_mode=False)
        page.open_button("always")
        page.says("#reasons", "the touched element says '<b>Send'")
        page.says("#always-what", "Always allow here: do not ask for '<b>Send' in com.glass again.")
        page.click("#always")
        page.says("#state", "Ended: complete after 4 steps.")
        assert file.read_text().startswith("# mine\n[safety]\nconfirm_apps = []\n")
        assert read_policy(file).always == (Exemption("com.glass", label="<b>Send"),)

        agent.reset()
        page.click("#step_mode")
        page.click("#start")
        page.open_button("confirm")  # needs no confirmation but for the step mode
        assert page.js("document.getElementById('always').ariaDisabled") == "true"
        assert page.text("#always-what") == ""
        page.click("#always")  # does nothing
        page.click("#deny")
        page.says("#state", "denied")
    assert len(glass.done) == 3


def test_each_gesture_is_drawn(browser, glass, tmp_path):
    ring, arrow = (
        [["circle", "halo"], ["circle", "mark"], ["circle", "dot"]],
        [["polyline", "halo"], ["polyline", "mark"], ["circle", "dot"]],
    )
    bar = [["rect", "bar"], ["text", None]]
    drawn = (
        (TAP, ring, ""),
        (SWIPE, arrow, ""),
        (Type("a <b> c"), bar, "type “a <b> c”"),
        (Type("x" * 99), bar, f"type “{'x' * 26}…"),
        (Press("home"), bar, "press home"),
    )
    agent = Scripted(*(action for action, _, _ in drawn))
    with at_console(agent, glass, tmp_path) as person, tab(browser, person) as page:
        page.start("g")
        for number, (action, shapes, words) in enumerate(drawn, 1):
            page.until(
                f"document.getElementById('description').textContent === {json.dumps(caption(action))}"
            )
            page.open_button("confirm")
            assert (page.js(DRAWN), page.js(WORDS)) == (shapes, words)
            page.click("#confirm" if number < len(drawn) else "#deny")
        page.says("#state", "Ended, denied: not confirmed: by a person (after 4 steps).")
    assert len(glass.done) == 4


@pytest.mark.parametrize("still", [False, True])
def test_nobody_confirms_what_was_not_seen(browser, glass, tmp_path, still):
    """Repeated clicks do not confirm a gesture that nobody could have seen, even on the same screen."""
    glass.still = glass.screen() if still else None
    hasty = """(async () => {
      const [confirm, description] = ["confirm", "description"].map(id => document.getElementById(id));
      let changed = null, clicks = 0;
      new MutationObserver(() => { changed ??= performance.now() }).observe(description, { childList: true });
      while (performance.now() < (changed ?? Infinity) + 300) {
        clicks += (confirm.click(), 1);
        await new Promise(done => setTimeout(done, 5));
      }
      return clicks;
    })()"""
    with at_console(Scripted(TAP, SWIPE), glass, tmp_path) as person, tab(browser, person) as page:
        page.start("g")
        page.open_button("confirm")
        assert page.js(hasty) > 5
        assert person.asked(2)
        page.open_button("confirm")
        assert glass.done == [TAP_DONE]
        page.click("#confirm")
        page.says("#state", "crashed")  # the agent has nothing more to say
        assert person.view.screen_id == (1 if still else 3)
    assert glass.done == [TAP_DONE, SWIPE_DONE]


@pytest.mark.parametrize("width", [320, 1000])
def test_buttons_stay_where_they_are(browser, tmp_path, width):
    """Who wants to take over must not hit Confirm, because what is next has appeared."""
    places = """[...document.querySelectorAll('#steer button, #stop')].map(button => {
      const box = button.getBoundingClientRect();
      return [button.id, Math.round(box.x), Math.round(box.y), Math.round(box.width), Math.round(box.height)];
    })"""
    glass, agent = Glass(Element(0.4, 0.1, 0.2, 0.4, "Send it")), Scripted(TAP)
    agent.let.clear()
    with (
        at_console(agent, glass, tmp_path, Policy(confirm_apps=())) as person,
        tab(browser, person, width) as page,
    ):
        person.does("start", goal="g " * 99, step_mode=False)
        page.says("#state", "The agent is deciding")
        page.js("scrollTo(0, 0)")
        stands = page.js(places)
        agent.let.set()
        page.says("#reasons", "Confirmation needed")
        page.open_button("confirm")
        assert page.js(places) == stands
        person.post("confirm", request_id=99)
        page.js("document.getElementById('refresh').click()")  # refused: it is said above the page
        page.says("#wrong", "The agent has the phone")
        assert page.js(places) == stands
        person.does("take_over")
        page.says("#state", "You have the phone")
        assert page.js(places) == stands


def test_why_a_person_is_asked(browser, tmp_path):
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, f"Send {HOSTILE[:20]}"))
    with (
        at_console(Scripted(TAP), glass, tmp_path, Policy(confirm_apps=())) as person,
        tab(browser, person) as page,
    ):
        page.start("g", step_mode=False)
        page.says("#reasons", "Confirmation needed: the touched element says 'Send </script>")
        assert page.js("document.getElementById('reasons').role") == "alert"
        assert (
            page.js("document.getElementById('announcement').textContent")
            == "Waiting for you: confirm or deny the next gesture."
        )
        glass.black = True
        page.open_button("confirm")
        page.click("#confirm")
        page.says("#reasons", "the screen is black")
        assert (page.text("#description"), page.text("#confirm"), page.text("#deny")) == (
            "No gesture is possible.",
            "Look again",
            "End the run",
        )
        page.click("#deny")
        page.says("#state", "Ended, needs_human")


def test_the_step_mode_is_switched_during_a_run(browser, glass, tmp_path):
    with at_console(Scripted(TAP, SWIPE, TAP, DONE), glass, tmp_path) as person, tab(browser, person) as page:
        page.start("g")
        page.open_button("confirm")
        page.click("#step_mode")
        page.says("#state", "Ended: complete after 4 steps.")
        assert page.js("document.getElementById('step_mode').checked") is False


@pytest.mark.parametrize("way", ["button", "escape"])
def test_stop(browser, glass, tmp_path, way):
    agent = Scripted(TAP, TAP)
    with at_console(agent, glass, tmp_path) as person, tab(browser, person) as page:
        agent.let.clear()
        page.start("g", step_mode=False)
        page.says("#state", "The agent is deciding")
        if way == "button":
            page.click("#stop")
        else:
            page.key("Escape")
        page.says("#state", "Stopping")
        agent.let.set()
        page.says("#state", "Ended: stopped by a person")
        assert page.js("document.getElementById('stop').checkVisibility()") is False
    assert glass.done == []


def test_hostile_texts_are_only_texts(browser, glass, tmp_path):
    agent = Scripted(Type(HOSTILE), AgentError(HOSTILE))
    with at_console(agent, glass, tmp_path) as person, tab(browser, person) as page:
        person.does("start", goal=HOSTILE, step_mode=True)
        page.open_button("confirm")
        page.click("#confirm")
        page.says("#state", "agent_error")
        page.says("#list", "</script><img src=x onerror=window.hit=1>")
        page.click("#list button")
        page.says("#replay-title", "</script><img")
        page.says("#replay-step", "1 of 2")
        assert page.js("document.querySelectorAll('img[src=x], script:not([src])').length") == 0


def test_scripts_of_others_do_not_run(browser, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, browser.new_page() as page:
        page.goto(person.url)
        tried = """(async () => {
          const tried = [];
          const attempt = async (name, deed) => { try { await deed(); tried.push(name) } catch {} };
          await attempt("markup", () => { document.body.innerHTML = "<img src=x onerror='window.hit=1'>" });
          await attempt("script", () => {
            document.body.append(Object.assign(document.createElement("script"), {text: "window.hit = 1"}));
          });
          await attempt("elsewhere", () => fetch("http://127.0.0.1:9/"));
          return [tried, window.hit ?? null];
        })()"""
        for _ in range(100):
            if page.evaluate("document.readyState") == "complete":
                break
        assert page.evaluate(tried) == [[], None]

"""The console's page in a real Chromium: a run is watched and steered, a demonstration shown, a trace replayed; by everybody."""

import json

import pytest
from consoles import DONE, HOSTILE, SWIPE, TAP, Glass, Scripted, at_console
from tabs import CONTRAST, tab

from data_prep.formats import trace as trace_format
from uivlm.actions.action import Finish, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.agents.agent import AgentError
from uivlm.devices import chromium
from uivlm.devices.adb_server import own_server
from uivlm.devices.chromium import browser
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.phone import Phone
from uivlm.episode import Element
from uivlm.picture import caption
from uivlm.safety.policy import Policy
from uivlm.trace_read import read_trace
from uivlm.wiring import simulated

try:
    chromium.program()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)
DRAWN = "[...document.querySelectorAll('#frame svg > *')].map(shape => [shape.tagName, shape.getAttribute('class')])"
WORDS = "document.querySelector('#frame svg').textContent"


@pytest.fixture(scope="module")
def one():
    with browser() as running:
        yield running


@pytest.fixture
def glass():
    return Glass()


# -- a run ----------------------------------------------------------------------------------------------------------


def test_a_run_is_watched_and_steered(one, tmp_path):
    """Through the real adb client, by keyboard."""
    agent = Scripted(TAP, SWIPE, DONE)
    with (
        own_server() as adb,
        simulated(Phone(layout=1), adb) as phone,
        at_console(agent, phone, tmp_path) as person,
        tab(one, person) as page,
    ):
        page.start("open the <b>clock</b>")
        page.open_button("confirm")
        page.says("#state", "Waiting for you")
        assert page.text("#pursued") == "Goal: open the <b>clock</b>"
        assert page.text("#what") == "tap at 0.500 0.250"
        assert page.text("#sure") == "The agent said: words 1 · confidence 0.50, 0.75 of its kind"
        ring, picture = page.box("#frame circle.mark"), page.box("#frame img")
        assert ring["x"] + ring["width"] / 2 == pytest.approx(picture["x"] + 0.25 * picture["width"], abs=1.5)
        assert ring["y"] + ring["height"] / 2 == pytest.approx(
            picture["y"] + 0.5 * picture["height"], abs=1.5
        )
        assert page.js("document.querySelector('#frame img').naturalWidth") == Phone(layout=1).width

        page.js("document.getElementById('confirm').focus()")
        page.key("Enter")
        page.says("#what", "swipe")
        page.open_button("confirm")
        assert page.js(DRAWN) == [["polyline", "halo"], ["polyline", "mark"], ["circle", "dot"]]
        assert page.focus() == "confirm"
        page.key(" ")
        page.says("#state", "Ended: complete after 3 steps.")
        assert page.focus() == "state"
        told = page.js("[...document.querySelectorAll('#steps li')].map(item => item.innerText.trim())")
        assert told == [
            "1. tap at 0.500 0.250 · confidence 0.50",
            "2. swipe from 0.800 0.500 to 0.200 0.500 · confidence 0.50",
            "3. complete · confidence 0.50",
        ]
        page.until("[...document.querySelectorAll('#steps img')].every(small => small.naturalWidth > 40)")
        page.says("#list", "open the <b>clock</b>")
        page.says("#list", "run · complete · 3 steps")


def test_each_gesture_is_drawn(one, glass, tmp_path):
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
    with at_console(agent, glass, tmp_path) as person, tab(one, person) as page:
        page.start("g")
        for number, (action, shapes, words) in enumerate(drawn, 1):
            page.until(f"document.getElementById('what').textContent === {json.dumps(caption(action))}")
            page.open_button("confirm")
            assert (page.js(DRAWN), page.js(WORDS)) == (shapes, words)
            page.click("#confirm" if number < len(drawn) else "#deny")
        page.says("#state", "Ended, denied: not confirmed: by a person (after 4 steps).")
    assert len(glass.done) == 4


@pytest.mark.parametrize("still", [False, True])
def test_nobody_confirms_what_was_not_seen(one, glass, tmp_path, still):
    """Clicks without end, as long as nobody could have seen that there is another gesture now, be it on the same screen."""
    glass.still = glass.screen() if still else None
    hasty = """(async () => {
      const [confirm, what] = ["confirm", "what"].map(id => document.getElementById(id));
      let changed = null, clicks = 0;
      new MutationObserver(() => { changed ??= performance.now() }).observe(what, { childList: true });
      while (performance.now() < (changed ?? Infinity) + 300) {
        clicks += (confirm.click(), 1);
        await new Promise(done => setTimeout(done, 5));
      }
      return clicks;
    })()"""
    with at_console(Scripted(TAP, SWIPE), glass, tmp_path) as person, tab(one, person) as page:
        page.start("g")
        page.open_button("confirm")
        assert page.js(hasty) > 5
        assert person.asked(2)
        page.open_button("confirm")
        assert glass.done == [TAP_DONE]
        page.click("#confirm")
        page.says("#state", "crashed")  # the agent has nothing more to say
        assert person.view.num_screens == (1 if still else 3)
    assert glass.done == [TAP_DONE, SWIPE_DONE]


@pytest.mark.parametrize("width", [320, 1000])
def test_buttons_stay_where_they_are(one, tmp_path, width):
    """Who wants to take over must not hit Confirm, because what is next has appeared."""
    places = """[...document.querySelectorAll('#steer button, #stop')].map(button => {
      const box = button.getBoundingClientRect();
      return [button.id, Math.round(box.x), Math.round(box.y), Math.round(box.width), Math.round(box.height)];
    })"""
    glass, agent = Glass(Element(0.4, 0.1, 0.2, 0.4, "Send it")), Scripted(TAP)
    agent.let.clear()
    with at_console(agent, glass, tmp_path, Policy(ask_in=())) as person, tab(one, person, width) as page:
        person.does("start", goal="g " * 99, step_mode=False)
        page.says("#state", "The agent decides")
        page.js("scrollTo(0, 0)")
        stands = page.js(places)
        agent.let.set()
        page.says("#reasons", "You are asked because")
        page.open_button("confirm")
        assert page.js(places) == stands
        person.post("confirm", number=99)
        page.js("document.getElementById('look').click()")  # refused: it is said above the page
        page.says("#wrong", "The agent has the phone")
        assert page.js(places) == stands
        person.does("take_over")
        page.says("#state", "You have the phone")
        assert page.js(places) == stands


def test_why_a_person_is_asked(one, tmp_path):
    glass = Glass(Element(0.4, 0.1, 0.2, 0.4, f"Send {HOSTILE[:20]}"))
    with (
        at_console(Scripted(TAP), glass, tmp_path, Policy(ask_in=())) as person,
        tab(one, person) as page,
    ):
        page.start("g", step_mode=False)
        page.says("#reasons", "You are asked because it may commit: 'Send </script>")
        assert page.js("document.getElementById('reasons').role") == "alert"
        assert (
            page.js("document.getElementById('said').textContent")
            == "Waiting for you: confirm or deny what is next."
        )
        glass.black = True
        page.open_button("confirm")
        page.click("#confirm")
        page.says("#reasons", "the screen is black")
        assert (page.text("#what"), page.text("#confirm"), page.text("#deny")) == (
            "Nothing can be done.",
            "Look again",
            "End the run",
        )
        page.click("#deny")
        page.says("#state", "Ended, handed over")


def test_the_step_mode_is_switched_during_a_run(one, glass, tmp_path):
    with at_console(Scripted(TAP, SWIPE, TAP, DONE), glass, tmp_path) as person, tab(one, person) as page:
        page.start("g")
        page.open_button("confirm")
        page.click("#wait_each")
        page.says("#state", "Ended: complete after 4 steps.")
        assert page.js("document.getElementById('wait_each').checked") is False


@pytest.mark.parametrize("way", ["button", "escape"])
def test_stop(one, glass, tmp_path, way):
    agent = Scripted(TAP, TAP)
    with at_console(agent, glass, tmp_path) as person, tab(one, person) as page:
        agent.let.clear()
        page.start("g", step_mode=False)
        page.says("#state", "The agent decides")
        if way == "button":
            page.click("#stop")
        else:
            page.key("Escape")
        page.says("#state", "Stopping")
        agent.let.set()
        page.says("#state", "Ended: stopped by a person")
        assert page.js("document.getElementById('stop').checkVisibility()") is False
    assert glass.done == []


def test_hostile_texts_are_only_texts(one, glass, tmp_path):
    agent = Scripted(Type(HOSTILE), AgentError(HOSTILE))
    with at_console(agent, glass, tmp_path) as person, tab(one, person) as page:
        person.does("start", goal=HOSTILE, step_mode=True)
        page.open_button("confirm")
        page.click("#confirm")
        page.says("#state", "agent error")
        page.says("#list", "</script><img src=x onerror=window.hit=1>")
        page.click("#list button")
        page.says("#replay-title", "</script><img")
        page.says("#replay-step", "1 of 2")
        assert page.js("document.querySelectorAll('img[src=x], script:not([src])').length") == 0


def test_scripts_of_others_do_not_run(one, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, one.page() as page:
        page.open(person.url)
        tried = """(async () => {
          const tried = [];
          const attempt = async (name, deed) => { try { await deed(); tried.push(name) } catch {} };
          await attempt("markup", () => { document.body.innerHTML = "<img src=x onerror='window.hit=1'>" });
          await attempt("script", () => { document.body.append(Object.assign(document.createElement("script"), {text: "window.hit = 1"})) });
          await attempt("elsewhere", () => fetch("http://127.0.0.1:9/"));
          return [tried, window.hit ?? null];
        })()"""
        for _ in range(100):
            if page.evaluate("document.readyState") == "complete":
                break
        assert page.evaluate(tried) == [[], None]


# -- the person's own hand ------------------------------------------------------------------------------------------------


def test_taking_over_with_the_mouse(one, glass, tmp_path):
    agent = Scripted(TAP, DONE)
    with at_console(agent, glass, tmp_path) as person, tab(one, person) as page:
        page.start("g")
        page.take_over()
        assert page.js(DRAWN) == []  # what the agent wanted is off the screen
        page.click("#pad", y=0.3025, x=0.705)
        page.until("document.querySelectorAll('#steps li').length === 1")
        page.until("document.querySelector('#frame img').src.endsWith('/screen/2')")
        page.drag("#pad", (0.8025, 0.505), (0.2025, 0.505))
        page.until("document.querySelectorAll('#steps li').length === 2")
        page.until("document.querySelector('#frame img').src.endsWith('/screen/3')")
        page.write("#text", "héllo")
        page.key("Enter")
        page.until("document.querySelectorAll('#steps li').length === 3")
        assert page.js("document.getElementById('text').value") == ""
        page.until("document.querySelector('#frame img').src.endsWith('/screen/4')")
        page.click("#back")
        page.until("document.querySelectorAll('#steps li').length === 4")
        page.says("#steps", 'type "héllo" · by you')
        page.until("document.querySelector('#frame img').src.endsWith('/screen/5')")
        page.click("#hand_back")
        page.says("#state", "Ended: complete after 5 steps.")
    assert glass.done == [
        Touch(((70, 60),), 60),
        Touch(((50, 160), (50, 40)), 500),
        Keys("héllo"),
        Button("back"),
    ]
    assert [step.action for step in agent.histories[-1].steps][2:] == [Type("héllo"), Press("back")]


def test_taking_over_with_the_keyboard(one, glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(one, person) as page:
        page.start("g")
        page.take_over()
        page.js("document.getElementById('pad').focus()")
        page.key("ArrowDown", shift=True)
        page.key("ArrowRight")
        assert "at 60 down, 52 across" in page.js("document.getElementById('pad').ariaLabel")
        assert ["path", "mark"] in page.js(DRAWN)
        page.key("Enter")
        page.until("document.querySelector('#frame img').src.endsWith('/screen/2')")
        assert page.focus() == "pad"
        page.key("s")
        page.key("Escape")  # drops the swipe, and does not stop the run
        page.key("s")
        for _ in range(3):
            page.key("ArrowUp", shift=True)
        assert ["polyline", "mark undone"] in page.js(DRAWN)
        page.key("Enter")
        page.until("document.querySelectorAll('#steps li').length === 2")
        assert person.view.phase == "by hand"
    assert glass.done == [Touch(((52, 120),), 60), Touch(((52, 120), (52, 60)), 500)]


def test_what_cannot_be_done_is_said(one, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, tab(one, person) as page:
        page.click("#look")
        page.until("document.querySelector('#frame img').naturalWidth === 100")
        glass.gone = True
        page.click("#look")
        page.says("#wrong", "The phone is gone.")
        assert page.js("document.querySelector('#wrong p').role") == "alert"
        page.click("#dismiss")
        assert page.js("document.getElementById('wrong').hidden") is True
        glass.gone = False
        page.click("#look")
        page.until("document.getElementById('wrong').hidden")
        page.click("#start")  # without a goal
        assert page.focus() == "goal"
        assert person.view.phase == "idle"


def test_a_console_that_ends_is_missed(one, glass, tmp_path):
    with one.page() as page:
        with at_console(Scripted(), glass, tmp_path) as person:
            page.open(person.url)
            for _ in range(500):
                if page.evaluate("document.getElementById('state')?.textContent") == "Nothing is running.":
                    break
        for _ in range(500):
            if "does not answer" in page.evaluate("document.getElementById('state').textContent"):
                break
        else:
            raise AssertionError("the page did not notice")


# -- demonstrations, on a small screen with fingers -------------------------------------------------------------------------


def test_a_demonstration_on_a_small_screen(one, glass, tmp_path):
    with at_console(Scripted(), glass, tmp_path) as person, tab(one, person, 320, 640) as page:
        assert page.js("document.scrollingElement.scrollWidth") == 320
        page.finger("#goal", (0.5, 0.5))
        page.page.call("Input.insertText", text="show it")
        page.finger("#record", (0.5, 0.5))
        page.says("#state", "Recording")
        page.until("document.querySelector('#frame img').naturalWidth === 100")
        assert page.box("#pad") == pytest.approx(page.box("#frame img"), abs=1)
        # else Chromium may take a fast swipe for a fling, and a tap after it, such as on Stop, for the end of that
        touch = "new TouchEvent('touchstart', {cancelable: true})"
        assert page.js(f"document.getElementById('pad').dispatchEvent({touch})") is False
        page.finger("#pad", (0.3025, 0.705))
        page.until("document.querySelector('#frame img').src.endsWith('/screen/2')")
        page.finger("#pad", (0.8025, 0.505), (0.5, 0.505), (0.2025, 0.505))
        page.until("document.querySelector('#frame img').src.endsWith('/screen/3')")
        page.finger("#text", (0.5, 0.5))
        page.page.call("Input.insertText", text="日本 %s")
        page.finger("#typing button", (0.5, 0.5))
        page.until("document.querySelector('#frame img').src.endsWith('/screen/4')")
        page.finger("#home", (0.5, 0.5))
        page.until("document.querySelector('#frame img').src.endsWith('/screen/5')")
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
    assert glass.done == [Touch(((70, 60),), 60), SWIPE_DONE, Keys("日本 %s"), Button("home")]
    run = read_trace(tmp_path / person.view.trace)
    assert (run.by, run.status) == ("person", "complete")
    records = [found.load() for part in trace_format.find(str(tmp_path)) for found in trace_format.read(part)]
    assert [record.action for record in records] == [row.action for row in run.rows]
    assert [type(record.action) for record in records] == [Tap, Swipe, Type, Press, Finish]


# -- traces -----------------------------------------------------------------------------------------------------------------


def test_replay(one, glass, tmp_path):
    with (
        at_console(Scripted(TAP, SWIPE, Type("x"), TAP), glass, tmp_path) as person,
        tab(one, person) as page,
    ):
        for number in range(3):
            person.does("start", goal="g", step_mode=True) if not number else person.does(
                "confirm", number=number
            )
            person.asked(number + 1)
        person.does("deny", number=3)
        page.says("#list", "run · denied · 3 steps")
        page.click("#list button")
        page.says("#replay-step", "1 of 3: tap at 0.500 0.250 · confidence 0.50")
        assert page.focus() == "replay-title"
        assert page.text("#replay-status").startswith("denied: not confirmed")
        drawn = DRAWN.replace("#frame", "#replay-frame")
        assert page.js(drawn)[0] == ["circle", "halo"]
        assert page.js("document.getElementById('previous').ariaDisabled") == "true"
        page.click("#following")
        page.says("#replay-step", "2 of 3: swipe")
        assert page.js(drawn)[1] == ["polyline", "mark"]
        page.click("#following")
        page.says("#replay-step", '3 of 3: type "x" · not done')
        assert page.js("document.querySelector('#replay-frame svg').textContent") == "type “x”"
        page.click("#following")
        page.click("#previous")
        page.says("#replay-step", "2 of 3")
        page.click("#previous")
        page.says("#replay-step", "1 of 3")
        page.click("#play")
        page.says("#play", "Pause")
        page.says("#replay-step", "3 of 3")
        page.says("#play", "Play")
        page.click("#close")
        assert page.js("document.getElementById('replay').checkVisibility()") is False


def test_broken_traces_are_shown_as_broken(one, glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person, tab(one, person) as page:
        person.does("start", goal="g", step_mode=False)
        page.says("#list", "run · complete")
        page.says("#state", "Ended")  # nothing moves any more
        (tmp_path / person.view.trace / "trace.jsonl").write_text("{")
        page.click("#refresh")
        page.says("#list .broken", f"{person.view.trace}: broken")
        assert page.js("document.querySelectorAll('#list button').length") == 0


# -- for everybody ------------------------------------------------------------------------------------------------------------


def states(page, person):
    """The page in each of its states."""
    yield "idle"
    page.start("g")
    page.open_button("confirm")
    yield "asking"
    page.take_over()
    yield "by hand"
    page.click("#stop")
    page.says("#list", "run · stopped")
    page.click("#list button")
    page.says("#replay-step", "1 of 1")
    yield "replay"
    page.write("#goal", "g")
    page.click("#record")
    page.says("#state", "Recording")
    yield "recording"
    person.session.stop()
    page.says("#state", "Ended: stopped")
    person.session.traces.joinpath(person.view.trace, "run.json").write_text("{")
    page.click("#refresh")
    page.says("#list", "broken")
    page.js(
        "document.getElementById('wrong').hidden = false, document.querySelector('#wrong p').textContent = 'Wrong.'"
    )
    yield "broken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_named_and_reached(one, glass, tmp_path, scheme):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(one, person) as page:
        page.page.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}
        assert page.js("getComputedStyle(document.body).backgroundColor") == grounds[scheme]
        for state in states(page, person):
            pale = [line for line in page.js(CONTRAST) if line[1] < line[2]]
            assert pale == [], state
            nodes = page.page.call("Accessibility.getFullAXTree")["nodes"]
            controls = [node for node in nodes if not node["ignored"] and focusable(node)]
            assert len(controls) > 4
            nameless = [node["role"]["value"] for node in controls if not node.get("name", {}).get("value")]
            assert nameless == [], state
            pictures = [
                node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") == "image"
            ]
            assert all(node.get("name", {}).get("value") for node in pictures), state
            small = page.js(
                "[...document.querySelectorAll('button, input, textarea')].filter(n => n.checkVisibility())"
                ".map(n => [n.id, n.getBoundingClientRect().height]).filter(([, height]) => height < 19)"
            )
            assert small == [], state
            reached(page, state)


def focusable(node):
    told = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
    return told.get("focusable") is True and node["role"]["value"] not in (
        "RootWebArea",
        "paragraph",
        "heading",
    )


def reached(page, state):
    """By Tab everything is reached in the order in which it stands, and is seen to be."""
    wanted = page.js(
        "[...document.querySelectorAll('button, input, textarea, [tabindex=\"0\"]')].filter(n => n.checkVisibility())"
        ".map((n, i) => (n.dataset.order = i, i))"
    )
    page.js("document.getElementById('state').focus()")  # the first thing on the page
    got = []
    for _ in wanted:
        page.key("Tab")
        got.append(page.js("Number(document.activeElement.dataset.order ?? -1)"))
        outline = page.js(
            "(s => s.outlineStyle + ' ' + s.outlineWidth)(getComputedStyle(document.activeElement))"
        )
        assert outline == "solid 3px", (state, page.focus())
    assert got == wanted, state


def test_the_headings_and_marks_of_the_page(one, glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(one, person) as page:
        assert page.js("document.documentElement.lang") == "en"
        headings = page.js("[...document.querySelectorAll('h1, h2')].map(h => h.textContent)")
        assert headings == ["uivlm console", "Run", "Phone", "Steps", "Traces"]
        assert page.js("document.querySelectorAll('main').length") == 1
        assert page.js("document.getElementById('said').role") == "status"
        ids = page.js("[...document.querySelectorAll('[id]')].map(n => n.id)")
        assert len(ids) == len(set(ids))
        named = page.js(
            "[...document.querySelectorAll('[aria-labelledby], [aria-describedby]')]"
            ".flatMap(n => [n.getAttribute('aria-labelledby'), n.getAttribute('aria-describedby')]).filter(Boolean)"
        )
        assert set(named) <= set(ids)
        page.start("g")
        page.until("document.getElementById('said').textContent.startsWith('Waiting for you')")

"""The console's page in a real Chromium: traces and accessibility."""

import pytest

from tests.helpers.browser_tab import CONTRAST, tab
from tests.helpers.console_client import DONE, SWIPE, TAP, Scripted, at_console
from uivlm.actions.action import Type
from uivlm.actions.gesture import Touch

pytestmark = pytest.mark.slow

TAP_DONE, SWIPE_DONE = Touch(((25, 100),), 60), Touch(((50, 160), (50, 40)), 500)
DRAWN = "[...document.querySelectorAll('#frame svg > *')].map(n => [n.tagName, n.getAttribute('class')])"
WORDS = "document.querySelector('#frame svg').textContent"


def test_replay(browser, glass, tmp_path):
    with (
        at_console(Scripted(TAP, SWIPE, Type("x"), TAP), glass, tmp_path) as person,
        tab(browser, person) as page,
    ):
        for number in range(3):
            person.does("start", goal="g", step_mode=True) if not number else person.does(
                "confirm", request_id=number
            )
            person.asked(number + 1)
        person.does("deny", request_id=3)
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
        page.says("#replay-step", '3 of 3: type "x" · not executed')
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


def test_broken_traces_are_shown_as_broken(browser, glass, tmp_path):
    with at_console(Scripted(TAP, DONE), glass, tmp_path) as person, tab(browser, person) as page:
        person.does("start", goal="g", step_mode=False)
        page.says("#list", "run · complete")
        page.says("#state", "Ended")  # nothing moves any more
        (tmp_path / person.view.trace / "trace.jsonl").write_text("{")
        page.click("#refresh_traces")
        page.says("#list .damaged", f"{person.view.trace}: damaged")
        assert page.js("document.querySelectorAll('#list button').length") == 0


# -- for everybody -------------------------------------------------------------------------------------------


def states(page, person):
    """The page in each of its states."""
    yield "idle"
    page.start("g")
    page.open_button("confirm")
    yield "asking"
    page.take_over()
    yield "human_control"
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
    person.session.trace_dir.joinpath(person.view.trace, "run.json").write_text("{")
    page.click("#refresh_traces")
    page.says("#list", "damaged")
    page.js(
        "document.getElementById('wrong').hidden = false;"
        "document.querySelector('#wrong p').textContent = 'Wrong.'"
    )
    yield "broken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_named_and_reached(browser, glass, tmp_path, scheme):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(browser, person) as page:
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
    payload = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
    return payload.get("focusable") is True and node["role"]["value"] not in (
        "RootWebArea",
        "paragraph",
        "heading",
    )


def reached(page, state):
    """By Tab everything is reached in the order in which it stands, and is seen to be."""
    expected = page.js(
        "[...document.querySelectorAll('button, input, textarea, [tabindex=\"0\"]')]"
        ".filter(n => n.checkVisibility())"
        ".map((n, i) => (n.dataset.order = i, i))"
    )
    page.js("document.getElementById('state').focus()")  # the first thing on the page
    got = []
    for _ in expected:
        page.key("Tab")
        got.append(page.js("Number(document.activeElement.dataset.order ?? -1)"))
        outline = page.js(
            "(s => s.outlineStyle + ' ' + s.outlineWidth)(getComputedStyle(document.activeElement))"
        )
        assert outline == "solid 3px", (state, page.focus())
    assert got == expected, state


def test_the_headings_and_marks_of_the_page(browser, glass, tmp_path):
    with at_console(Scripted(TAP), glass, tmp_path) as person, tab(browser, person) as page:
        assert page.js("document.documentElement.lang") == "en"
        headings = page.js("[...document.querySelectorAll('h1, h2')].map(h => h.textContent)")
        assert headings == ["uivlm console", "Run", "Phone", "Steps", "Traces"]
        assert page.js("document.querySelectorAll('main').length") == 1
        assert page.js("document.getElementById('announcement').role") == "status"
        ids = page.js("[...document.querySelectorAll('[id]')].map(n => n.id)")
        assert len(ids) == len(set(ids))
        named = page.js(
            "[...document.querySelectorAll('[aria-labelledby], [aria-describedby]')]"
            ".flatMap(n => [n.getAttribute('aria-labelledby'), n.getAttribute('aria-describedby')])"
            ".filter(Boolean)"
        )
        assert set(named) <= set(ids)
        page.start("g")
        page.until("document.getElementById('announcement').textContent.startsWith('Waiting for you')")

"""A gesture is performed on the screen that it was decided on, or not at all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.helpers.guarded_run import DONE, FREE, PAGE, TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import Action, Point, Press, Swipe, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.device import OPAQUE_WINDOW
from uivlm.episodes.episode import Element, History, Screen
from uivlm.safety.policy import PERMISSIVE_POLICY, Policy
from uivlm.safety.screen_change import has_changed, has_changed_under
from uivlm.safety.supervisor import ConfirmationRequest


def show_dialog(phone: Phone) -> None:
    phone.pixels = np.full_like(phone.pixels, 200)
    phone.pixels[90:110, 30:70] = 20
    phone.payload = (PAGE, button("Pay now"))


class Person(ScriptedSupervisor):
    """Something happens while the person looks at the gesture."""

    def __init__(self, happens: Callable[[], None], previews: bool) -> None:
        super().__init__("yes")
        self.happens, self.previews_gestures = happens, previews  # type: ignore[misc]

    def answer(self, request: ConfirmationRequest) -> Any:
        if not self.requests:
            self.happens()
        return super().answer(request)


@pytest.mark.parametrize("policy", [PERMISSIVE_POLICY, FREE, Policy()])
def test_a_previewed_gesture_is_not_performed_on_another_screen(policy: Policy) -> None:
    phone = Phone(elements=[PAGE, button("Next")])
    agent = Says(TAP, DONE)
    assert run(phone, policy, agent, Person(lambda: show_dialog(phone), previews=True)).status == "complete"
    assert phone.gestures == []
    assert agent.histories[1].screen.pixels[100, 50, 0] == 20, "the agent gets the new screen"


def test_reasons_are_those_of_the_new_screen() -> None:
    """A white dialog on a white page: no pixel differs, but another button is pressed."""
    phone = Phone(elements=[PAGE, button("Send")])

    def change() -> None:
        phone.payload = (PAGE, button("Pay now"))

    person = Person(change, previews=False)
    assert run(phone, Policy(), Says(TAP, TAP, DONE), person).status == "complete"
    assert [ask.reasons for ask in person.requests] == [
        ("the touched element says 'Send'",),
        ("the touched element says 'Pay now'",),
    ]
    assert len(phone.gestures) == 1


def test_a_transparent_window_that_comes_meanwhile() -> None:
    phone = Phone(elements=[PAGE, button("Send")])

    def cover() -> None:
        phone.payload = (PAGE, button("Send"), Element(0, 0, 1, 1, "", OPAQUE_WINDOW))

    person, agent = Person(cover, previews=False), Says(TAP, DONE)
    assert run(phone, Policy(), agent, person).status == "complete"
    assert (phone.gestures, len(agent.histories)) == ([], 2)


class Slow(Says):
    """Something happens while the agent thinks."""

    def __init__(self, happens: Callable[[], None], *actions: Action) -> None:
        super().__init__(*actions)
        self.happens = happens

    def act(self, history: History) -> Decision:
        if not self.histories:
            self.happens()
        return super().act(history)


def test_nobody_needs_to_be_asked_to_look_again() -> None:
    phone = Phone(elements=[PAGE, button("Next")])
    assert run(phone, Policy(), Slow(lambda: show_dialog(phone), TAP, DONE)).status == "complete"
    assert phone.gestures == []
    phone = Phone()
    assert run(phone, PERMISSIVE_POLICY, Slow(lambda: show_dialog(phone), TAP, DONE)).status == "complete"
    assert len(phone.gestures) == 1, "recheck is off"


def test_the_screen_is_compared_after_the_elements_are_listed() -> None:
    class Restless(Phone):
        def elements(self) -> tuple[Element, ...] | None:
            listed = super().elements()
            show_dialog(self)
            return listed

    phone = Restless(elements=[PAGE, button("Next")])
    assert run(phone, Policy(), Says(TAP, DONE)).status == "complete"
    assert phone.gestures == []


def test_another_app_in_front_is_another_screen() -> None:
    """It looks the same: an app that imitates the one that the agent saw."""
    phone = Phone(["app.one"], elements=[PAGE, button("Next")])

    def switch() -> None:
        phone.apps[0] = "app.two"

    for action in (TAP, Type("x"), Press("enter"), Press("back")):
        phone.apps[0] = "app.one"
        assert run(phone, Policy(), Slow(switch, action, DONE)).status == "complete"
        phone.apps[0] = "app.one"
        person = Person(switch, previews=True)
        assert run(phone, PERMISSIVE_POLICY, Says(action, DONE), person).status == "complete"
        assert phone.gestures == []


class Moving(Phone):
    """A film plays in some rows."""

    def __init__(self, top: int, bottom: int) -> None:
        super().__init__(elements=[PAGE, button("Play")])
        self.rows, self.random = slice(top, bottom), np.random.default_rng(5)
        self.changes = False

    def screen(self) -> Screen:
        pixels = self.pixels.copy()
        pixels[self.rows] = self.random.integers(0, 256, pixels[self.rows].shape)
        return Screen(pixels)


def test_a_film_elsewhere_does_not_matter_to_a_touch() -> None:
    phone = Moving(20, 80)
    assert run(phone, Policy(), Says(TAP, DONE)).status == "complete"
    assert len(phone.gestures) == 1


def test_a_film_under_the_finger_ends_with_a_reason_or_a_person() -> None:
    phone = Moving(90, 110)
    outcome = run(phone, Policy(), Says(TAP))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert "the screen changed 3 times in a row between decision and gesture" in outcome.message
    person = ScriptedSupervisor("yes")
    assert run(phone, Policy(), Says(TAP, TAP, TAP, TAP, DONE), person).status == "complete"
    assert (len(person.requests), len(phone.gestures)) == (1, 1)
    assert run(phone, Policy(), Says(Press("back"), DONE)).status == "complete", "back touches nothing"


# --- what a difference is ---------------------------------------------------------------------------------

PLAIN = np.full((1200, 540, 3), 0x99, np.uint8)
TAP_PIXEL = Touch(((270, 600),), 60)


def drawn(*strokes: tuple[int, int, int, int], shade: int = 0x88, ground: int = 0x99) -> Screen:
    """Strokes (top, left, bottom, right) of one shade."""
    pixels = np.full_like(PLAIN, ground)
    for top, left, bottom, right in strokes:
        pixels[top:bottom, left:right] = shade
    return Screen(pixels)


@pytest.mark.parametrize(("shade", "ground"), [(0x88, 0x99), (0x55, 0x5F), (0, 255)])
def test_faint_text_is_another_screen(shade: int, ground: int) -> None:
    ten = drawn((590, 250, 610, 253), (590, 260, 610, 270), shade=shade, ground=ground)
    nine = drawn((590, 244, 610, 253), (590, 260, 610, 270), shade=shade, ground=ground)
    assert has_changed(ten, nine)
    assert has_changed_under(TAP_PIXEL, ten, nine)
    assert not has_changed(ten, ten)


def test_faint_text_is_not_a_repetition() -> None:
    """Three taps of plus, and the number in faint ink grows."""

    class Counter(Phone):
        def screen(self) -> Screen:
            return drawn((590, 240, 610, 250 + 10 * len(self.gestures)))

    assert run(Counter(), FREE, Says(TAP), max_steps=6).status == "max_steps"


def test_a_caret_or_a_clock_is_not_a_difference() -> None:
    empty, caret = drawn(), drawn((580, 270, 620, 275), shade=0)
    clock = drawn((10, 20, 40, 120), shade=0)
    for other in (caret, clock):
        assert not has_changed(empty, other)
        assert not has_changed_under(TAP_PIXEL, empty, other)


@pytest.mark.parametrize(
    ("gesture", "changed"),
    [
        (TAP_PIXEL, False),
        (Touch(((270, 600), (270, 250)), 300), True),  # it ends there
        (TypeText("x"), True),
        (PressKey("enter"), True),
        (PressKey("back"), False),
        (PressKey("home"), False),
    ],
)
def test_what_a_gesture_depends_on(gesture: Gesture, changed: bool) -> None:
    before, after = drawn(), drawn((200, 200, 260, 320))
    assert has_changed_under(gesture, before, after) == changed
    wide = Element(0.1, 0, 0.6, 1, "Pay", clickable=True)
    assert has_changed_under(TAP_PIXEL, before, after, (wide,)), "the whole button counts"
    turned = Screen(np.full((540, 1200, 3), 0x99, np.uint8))
    assert has_changed_under(gesture, before, turned)


def test_a_swipe_needs_its_two_ends() -> None:
    phone = Moving(20, 80)
    scroll = Swipe(Point(0.9, 0.5), Point(0.6, 0.5))
    assert run(phone, Policy(), Says(scroll, DONE)).status == "complete"
    assert len(phone.gestures) == 1

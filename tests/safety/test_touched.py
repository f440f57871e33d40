"""What a gesture presses is read from the elements as Android dispatches a touch."""

import pytest

from tests.helpers.fake_phone import FakePhone, phone_on
from tests.helpers.guarded_run import DONE, PAGE, TAP, Phone, Says, ScriptedSupervisor, button, run
from uivlm.actions.action import Action, Point, Press, Swipe, Type
from uivlm.actions.gesture import TAP_MS, Touch
from uivlm.devices.adb.server import private_server
from uivlm.devices.device import OPAQUE_WINDOW
from uivlm.devices.sim.services import SERVICES, SizedDevice, dumpsys
from uivlm.devices.sim.shell_parser import CommandResult, success_result
from uivlm.episodes.episode import Element
from uivlm.safety.policy import Policy
from uivlm.safety.touched import touched

SLIDE, SCROLL = Swipe(Point(0.5, 0.2), Point(0.5, 0.8)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))


def text(label: str, y: float = 0.47, x: float = 0.47, size: float = 0.06) -> Element:
    return Element(y, x, size, size, label, "TextView", clickable=False)


def at(
    y: float, x: float, height: float, width: float, label: str = "", clickable: bool | None = True
) -> Element:
    return Element(y, x, height, width, label, "View", clickable)


ROW = at(0.4, 0, 0.2, 1)
COMMITS: dict[str, tuple[list[Element], Action]] = {
    "the price of a tile [Buy | $5.00]": ([ROW, text("Buy", x=0.1), text("$5.00")], TAP),
    "the described icon of a row": ([ROW, text("Account"), text("Delete account", x=0.2)], TAP),
    "a button larger than a quarter of the screen": ([at(0.2, 0, 0.7, 1, "Pay")], TAP),
    "its text is in a part of it": ([at(0.2, 0, 0.7, 1), text("Pay", y=0.8)], TAP),
    "a label of seven words": ([button("Pay $12.00 to John Smith and Sons")], TAP),
    "another label of seven words": ([button("Send 50 EUR to Alice Miller now")], TAP),
    "a text without a button": ([text("Pay")], TAP),
    "a swipe within a wide button": ([at(0.4, 0, 0.2, 1, "Pay")], SLIDE),
    "slide to pay, the text between the ends": ([at(0.4, 0, 0.2, 0.3), text("Slide to pay")], SLIDE),
    "swipe to delete": ([ROW, text("Delete", x=0.85)], Swipe(Point(0.5, 0.9), Point(0.5, 0.3))),
    "a scroll that starts on a button": ([at(0.75, 0, 0.2, 1, "Pay")], SCROLL),
    "a scroll that ends on a button": ([at(0.15, 0, 0.2, 1, "Pay")], SCROLL),
    "a later element over an earlier one": ([button("Next"), button("Pay")], TAP),
    "enter in a typed text": ([button("Send", y=0.8)], Type("see you at 8\n")),
    "enter between two typed lines": ([button("Send", y=0.8)], Type("a\nb")),
    "another line break": ([button("Send", y=0.8)], Type("a\u2028")),
    "a typed blank": ([button("Delete", y=0.8)], Type(" ")),
    "typed blanks": ([button("Delete", y=0.8)], Type("\u00a0 ")),
    "enter and a long button": ([button("Pay $12.00 to John Smith and Sons", y=0.8)], Press("enter")),
}
UNKNOWN: dict[str, tuple[list[Element], Action]] = {
    "nothing of the tree": ([at(0, 0, 0.4, 1, "Page", False)], TAP),
    "the keyboard": ([at(0.3, 0, 0.7, 1, "", None), Element(0.4, 0, 0.6, 1, "", OPAQUE_WINDOW)], TAP),
    "a window over a harmless button": ([button("Next"), Element(0, 0, 1, 1, "", OPAQUE_WINDOW)], TAP),
    "an app of one node": ([at(0, 0, 1, 1, "", None)], TAP),
    "a clickable app of one node": ([at(0, 0, 1, 1)], TAP),
    "a canvas": ([text("Map", y=0.1), at(0.2, 0, 0.8, 1, "", None)], TAP),
    "a paper plane": ([ROW, text("To Anna", x=0.2), at(0.45, 0.45, 0.1, 0.1)], TAP),
    "a silent button in a described page": ([at(0, 0, 1, 1, "Page", False), button("")], TAP),
    "a canvas in a described page": ([at(0, 0, 1, 1, "Page", False), at(0, 0, 1, 0.9, "", None)], TAP),
    "a slide on a canvas": ([at(0, 0, 1, 1, "", None)], SLIDE),
    "a scroll outside the tree": ([at(0, 0, 0.7, 1, "Page", False)], SCROLL),
    "enter in an app of one node": ([at(0, 0, 1, 1, "", None)], Press("enter")),
    "a typed blank in an app of one node": ([at(0, 0, 1, 1, "", None)], Type(" ")),
}
HARMLESS: dict[str, tuple[list[Element], Action]] = {
    "a plain place of a page": ([text("Pay", y=0.1)], TAP),
    "a button in a row that pays": ([ROW, text("Pay", x=0.1), button("Details")], TAP),
    "a picture in a named row": ([ROW, text("Alarm", x=0.1), at(0.45, 0.45, 0.1, 0.1, "", None)], TAP),
    "a caption on a canvas": ([at(0, 0, 1, 1, "", None), text("Zoom")], TAP),
    "a scroll between two buttons": ([at(0.4, 0, 0.2, 1, "Pay")], SCROLL),
    "a scroll on a canvas": ([at(0, 0, 1, 1, "", None)], SCROLL),
    "a long text that is not a button": ([text("please send me the report by Monday morning")], TAP),
    "ordinary text": ([button("Send", y=0.8)], Type("send it")),
    "back": ([button("Send", y=0.8)], Press("back")),
}


@pytest.mark.parametrize("name", COMMITS)
def test_what_commits_needs_a_person(name: str) -> None:
    elements, action = COMMITS[name]
    phone = Phone(elements=[PAGE, *elements])
    outcome = run(phone, Policy(unknown="allow"), Says(action, DONE))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert "the touched element says" in outcome.message


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_unknown_needs_a_person(name: str) -> None:
    elements, action = UNKNOWN[name]
    phone = Phone(elements=elements)
    outcome = run(phone, Policy(), Says(action, DONE))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert "the touched element is unknown" in outcome.message
    assert run(phone, Policy(unknown="allow"), Says(action, DONE)).status == "complete"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_needs_nobody(name: str) -> None:
    elements, action = HARMLESS[name]
    assert run(Phone(elements=[PAGE, *elements]), Policy(), Says(action, DONE)).status == "complete"


def test_the_innermost_button_is_pressed() -> None:
    row, inner, other = ROW, button("Details"), button("Share", y=0.49, height=0.2)
    pressed = touched(Touch(((50, 100),), TAP_MS), Phone().screen(), [PAGE, row, inner, other])
    assert pressed.elements == (inner, other), "of two that overlap, both count"
    assert set(pressed.labels) == {"Details", "Share", "Page"}


def test_the_strict_profile_asks_for_all_but_scrolling_and_back() -> None:
    strict = Policy(profile="strict", confirm_apps=(), confirm_labels=())
    for action in (TAP, SLIDE, Type("x"), Press("enter"), Press("home")):
        phone = Phone()
        outcome = run(phone, strict, Says(action, DONE))
        assert (outcome.status, phone.gestures) == ("denied", []), action
        assert "the strict profile confirms each" in outcome.message
    assert run(Phone(), strict, Says(SCROLL, Press("back"), DONE)).status == "complete"
    person = ScriptedSupervisor("yes")
    assert run(Phone(), strict, Says(TAP, Type("x"), DONE), person).status == "complete"
    assert len(person.requests) == 2


# --- through the real adb client --------------------------------------------------------------------------

WINDOW_ABOVE = """  Window #0 Window{{9e u0 {title}}}:
    mDisplayId=0
    mOwnerUid=10999 package=com.evil appop=SYSTEM_ALERT_WINDOW
    mAttrs={{(0,0)(fillxfill) ty={kind}
      fl=NOT_FOCUSABLE}}
    mHasSurface=true isReadyForDisplay()=true
    touchable region=SkRegion((0,200,123,271))
    Frames: frame=[0,0][123,271]
    isVisible=true
"""


def test_the_real_adb_client_reports_what_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    above = [""]

    def with_window(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
        result = dumpsys(device, args)
        head, line, rest = result.stdout.decode().partition("windows)\n")
        return success_result(head + line + above[0] + rest) if args == ("window", "windows") else result

    monkeypatch.setitem(SERVICES, "dumpsys", with_window)
    row = [at(0.4, 0, 0.2, 1), text("Buy", x=0.1), text("$5.00"), text("Keys", y=0.9)]
    next_page = [at(0, 0, 1, 1, "Next")]
    low = Press("back"), Swipe(Point(0.95, 0.5), Point(0.95, 0.6))
    with private_server() as adb, phone_on(adb, phone=FakePhone()) as (device, phone, _):
        for elements, window, actions, reason in (
            (row, "", (TAP,), "'Buy'"),
            (row, "", (Type("see you at 8\n"),), "'Buy'"),
            (next_page, "", (TAP,), ""),
            (next_page, WINDOW_ABOVE.format(title="x", kind="APPLICATION_OVERLAY"), (TAP,), "is unknown"),
            (next_page, WINDOW_ABOVE.format(title="InputMethod", kind="INPUT_METHOD"), (TAP,), ""),
            (next_page, WINDOW_ABOVE.format(title="InputMethod", kind="INPUT_METHOD"), low, "is unknown"),
            ((), "", (TAP,), "is unknown"),  # an app of one node
        ):
            phone.elements_shown, above[0], phone.gestures = tuple(elements), window, []
            outcome = run(device, Policy(), Says(*actions, DONE))  # type: ignore[arg-type]
            assert outcome.status == ("denied" if reason else "complete"), outcome.message
            assert reason in outcome.message
            assert len(phone.gestures) == len(actions) - bool(reason)

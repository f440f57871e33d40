"""The output of other tools' models: every action of every format is parsed as ours."""

import random
import string

import pytest

from tests.helpers.foreign_answers import FIXED, FOREIGN_FORMATS, PLAN, SIZE, VALID, decision, parse, tool
from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Swipe, Tap, Type
from uivlm.actions.matching import matches
from uivlm.actions.text import ActionText
from uivlm.evaluation.answer_formats import MAX_CHARS, parse_answer
from uivlm.evaluation.names import AnswerFormat


@pytest.mark.parametrize(("text", "answer_format", "action"), VALID, ids=lambda value: ascii(value)[:50])
def test_every_action(text: str, answer_format: AnswerFormat, action: Action) -> None:
    answer = parse(text, answer_format)
    if not isinstance(action, Swipe):
        assert answer == action
        return
    assert isinstance(answer, Swipe), answer
    ends = (answer.start.y, answer.start.x, answer.end.y, answer.end.x)
    assert ends == pytest.approx((action.start.y, action.start.x, action.end.y, action.end.x))


def test_our_own_format_and_its_bins() -> None:
    assert parse_answer("tap at 5 7", "ours", SIZE) == Tap(Point(0.055, 0.075))
    assert parse_answer("tap at 5 7", "ours", SIZE, num_bins=10) == ActionText(10).parse("tap at 5 7")
    assert isinstance(parse_answer("tap at 50 7", "ours", SIZE, num_bins=10), InvalidAction)
    long = ActionText().format(Type("x" * MAX_CHARS))
    assert parse_answer(long, "ours", SIZE) == Type("x" * MAX_CHARS)


def test_the_coordinate_range() -> None:
    text = tool(action="click", coordinate=[500, 500])
    assert parse_answer(text, "mobile_use", (1000, 1000)) == Tap(Point(0.5, 0.5))
    assert parse_answer(text, "mobile_use", (2000, 500)) == Tap(Point(0.25, 1))
    assert isinstance(parse_answer(text, "mobile_use", (400, 800)), InvalidAction)
    with pytest.raises(ValueError, match=r"coordinate_range: got \(0, 5\)"):
        parse_answer(text, "mobile_use", (0, 5))


def seeclick(action: Action) -> str:
    match action:
        case Tap(at):
            return f'{{"action_type": 4, "click_point": ({at.x:.2f},{at.y:.2f})}}'
        case Swipe(start, end):
            y, x = end.y - start.y, end.x - start.x
            type_id = (1 if y > 0 else 0) if abs(y) >= abs(x) else (8 if x > 0 else 9)
            return f'{{"action_type": {type_id}}}'
        case Type(text):
            return f'{{"action_type": 3, "typed_text": {text!r}}}'
    return f'{{"action_type": {(5, 6, 7, 10, 11)[FIXED.index(action)]}}}'


def autoui(action: Action) -> str:
    def gesture(touch: Point, lift: Point) -> str:
        return decision("DUAL_POINT", *(f"[{p.y:.4f}, {p.x:.4f}]" for p in (touch, lift)))

    match action:
        case Tap(at):
            return PLAN + gesture(at, at)
        case Swipe(start, end):
            return gesture(start, end)
        case Type(text):
            return PLAN + decision("TYPE", text=text)  # the texts below hold no quotes, as Auto-UI's
    names = ("PRESS_BACK", "PRESS_HOME", "PRESS_ENTER", "STATUS_TASK_COMPLETE", "STATUS_TASK_IMPOSSIBLE")
    return decision(names[FIXED.index(action)])


def mobile_use(action: Action) -> str:
    def pixels(point: Point) -> list[int]:
        return [round(point.x * SIZE[1]), round(point.y * SIZE[0])]

    match action:
        case Tap(at):
            return tool(action="click", coordinate=pixels(at))
        case Swipe(start, end):
            return tool(action="swipe", coordinate=pixels(start), coordinate2=pixels(end))
        case Type(text):
            return tool(action="type", text=text)
        case Press(key):
            return tool(action="system_button", button=key.capitalize())
        case Finish(status):
            return tool(action="terminate", status="success" if status == "complete" else "failure")


def uitars(action: Action) -> str:
    def box(point: Point) -> str:
        return f"'<|box_start|>({round(point.x * SIZE[1])},{round(point.y * SIZE[0])})<|box_end|>'"

    match action:
        case Tap(at):
            call = f"click(start_box={box(at)})"
        case Swipe(start, end):
            call = f"drag(start_box={box(start)}, end_box={box(end)})"
        case Type(text):
            call = f"type(content={text!r})"
        case Press(key):
            call = f"press_{key}()"
        case Finish(status):
            call = "finished(content='')" if status == "complete" else "call_user()"
    return f"Thought: I act.\nAction: {call}"


def showui(action: Action) -> str:
    def answer(name: str, value: str | None = None, position: list[float] | None = None) -> str:
        return repr({"action": name, "value": value, "position": position})

    match action:
        case Tap(at):
            return answer("CLICK", position=[round(at.x, 2), round(at.y, 2)])
        case Swipe():
            return answer(f"SCROLL {content_direction(action)}")
        case Type(text):
            return answer("TYPE", value=text)
        case Press(key):
            return answer(f"PRESS {key.upper()}")
        case Finish(status):
            return answer(f"STATUS TASK {status.upper()}")


def osatlas(action: Action) -> str:
    match action:
        case Tap(at):
            call = f"CLICK <point>[[{round(at.x * SIZE[1])}, {round(at.y * SIZE[0])}]]</point>"
        case Swipe():
            call = f"SCROLL [{content_direction(action)}]"
        case Type(text):
            call = f"TYPE [{text}]"
        case _:
            names = ("PRESS_BACK", "PRESS_HOME", "ENTER", "COMPLETE", "IMPOSSIBLE")
            call = names[FIXED.index(action)]
    return f"thoughts:\nI act.\nactions:\n{call}"


def content_direction(swipe: Swipe) -> str:
    """The content moves as the finger does, to show what is on the other side."""
    y, x = swipe.end.y - swipe.start.y, swipe.end.x - swipe.start.x
    return ("UP" if y > 0 else "DOWN") if abs(y) >= abs(x) else ("LEFT" if x > 0 else "RIGHT")


FORMATTERS = {
    "seeclick": seeclick, "showui": showui, "autoui": autoui, "mobile_use": mobile_use, "uitars": uitars,
    "osatlas": osatlas,
}  # fmt: skip


@pytest.mark.parametrize("answer_format", FOREIGN_FORMATS)
def test_a_formatted_action_matches(answer_format: AnswerFormat) -> None:
    rng = random.Random(13)
    letters = string.ascii_letters + "   éß漢,.;:{}[]()"
    typed = [Type("".join(rng.choice(letters) for _ in range(rng.randrange(20)))) for _ in range(50)]
    points = [Point(rng.random(), rng.random()) for _ in range(400)]
    taps = [Tap(point) for point in points]
    swipes = []
    for start, end in zip(points[::2], points[1::2], strict=True):
        far, near = sorted((abs(start.y - end.y), abs(start.x - end.x)), reverse=True)
        if far > 0.06 and far - near > 0.01:  # rounding to a format's numbers cannot change what it is
            swipes.append(Swipe(start, end))
    assert len(swipes) > 150
    for gold in (*FIXED, *typed, *taps, *swipes):
        answer = parse(FORMATTERS[answer_format](gold), answer_format)
        assert isinstance(answer, Action), answer
        assert matches(answer, gold)
        if isinstance(gold, Type):
            assert answer == gold
        if isinstance(gold, Swipe):
            assert isinstance(answer, Swipe)
            assert heading(answer) == heading(gold)


def heading(swipe: Swipe) -> tuple[bool, bool]:
    """Along y?, and towards larger numbers?"""
    y, x = swipe.end.y - swipe.start.y, swipe.end.x - swipe.start.x
    return abs(y) >= abs(x), (y if abs(y) >= abs(x) else x) > 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("type(content='it's 5 o'clock')", "it's 5 o'clock"),
        ('type(content="a "quoted" word\\n")', 'a "quoted" word\n'),
        ("type(content='it\\'s')", "it's"),
    ],
)
def test_unescaped_quotes(call: str, text: str) -> None:
    assert parse_answer(f"Action: {call}", "uitars", (1000, 1000)) == Type(text)

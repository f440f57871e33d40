"""Answers of other tools' models: every action of every dialect read as ours, everything else refused, nothing raised."""

import json
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import Language, NotAnAction
from uivlm.evaluation.dialects import LONGEST, Dialect, parse
from uivlm.evaluation.match import matches

SIZE = (2000, 1000)  # height, width: not square, so that a swap of the two shows
OTHERS: tuple[Dialect, ...] = ("seeclick", "autoui", "mobile_use", "uitars")
FIXED = [Press("back"), Press("home"), Press("enter"), Finish("complete"), Finish("impossible")]
DOWN, UP = Swipe(Point(0.8, 0.5), Point(0.2, 0.5)), Swipe(Point(0.2, 0.5), Point(0.8, 0.5))  # of the content
LEFT, RIGHT = Swipe(Point(0.5, 0.2), Point(0.5, 0.8)), Swipe(Point(0.5, 0.8), Point(0.5, 0.2))


def read(words: str, dialect: Dialect) -> Action | NotAnAction:
    return parse(words, dialect, SIZE)


def decision(name: str, touch: str = "[-1.0, -1.0]", lift: str = "[-1.0, -1.0]", text: str = "") -> str:
    return (
        f'Action Decision: "action_type": "{name}", "touch_point": "{touch}", "lift_point": "{lift}", '
        f'"typed_text": "{text}"'
    )


def tool(**arguments: object) -> str:
    call = json.dumps({"name": "mobile_use", "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


SEECLICK = [
    ('{"action_type": 4, "click_point": (0.49,0.61)}', Tap(Point(0.61, 0.49))),
    ('  {"click_point": [0, 1], "action_type": 4}\n', Tap(Point(1, 0))),
    ('{"action_type": 3, "typed_text": "it\'s \\"new\\" é"}', Type('it\'s "new" é')),
    ('{"action_type": 3, "typed_text": ""}', Type("")),
    ('{"action_type": 3, "typed_text": "C:\\d"}', Type("C:\\d")),
    ('{"action_type": 0}', DOWN),
    ('{"action_type": 1}', UP),
    ('{"action_type": 8}', LEFT),
    ('{"action_type": 9}', RIGHT),
    *zip([f'{{"action_type": {number}}}' for number in (5, 6, 7, 10, 11)], FIXED, strict=True),
]
PLAN = "Action Plan: [DUAL_POINT, PRESS_HOME, STATUS_TASK_COMPLETE]; "
AUTOUI = [
    (PLAN + decision("DUAL_POINT", "[0.8497, 0.5964]", "[0.8497, 0.5964]"), Tap(Point(0.8497, 0.5964))),
    (decision("DUAL_POINT", "[0.5, 0.5]", "[0.5, 0.53]"), Tap(Point(0.5, 0.5))),
    (PLAN + decision("DUAL_POINT", "[0.8, 0.5]", "[0.2, 0.5]"), DOWN),
    (PLAN + decision("TYPE", text="what's new in Zürich; Action Plan: [1]"), Type("what's new in Zürich; Action Plan: [1]")),
    (decision("PRESS_BACK"), FIXED[0]),
    (PLAN + decision("PRESS_HOME"), FIXED[1]),
    (PLAN + decision("PRESS_ENTER"), FIXED[2]),
    (PLAN + decision("STATUS_TASK_COMPLETE"), FIXED[3]),
    (PLAN + decision("STATUS_TASK_IMPOSSIBLE"), FIXED[4]),
]  # fmt: skip
MOBILE_USE = [
    (tool(action="click", coordinate=[250, 500]), Tap(Point(0.25, 0.25))),
    (tool(action="click", coordinate=[1000, 2000]), Tap(Point(1, 1))),
    (tool(action="click", coordinate=[250.5, 500]), Tap(Point(0.25, 0.2505))),
    (tool(action="swipe", coordinate=[500, 1600], coordinate2=[500, 400]), DOWN),
    (tool(action="swipe", coordinate=[500, 1600], coordinate2=[530, 1600]), Tap(Point(0.8, 0.5))),
    (tool(action="type", text='a "quoted"\nline 漢 </tool_call>'), Type('a "quoted"\nline 漢 </tool_call>')),
    (tool(action="system_button", button="Back"), FIXED[0]),
    (tool(action="system_button", button="HOME"), FIXED[1]),
    (tool(action="system_button", button="enter"), FIXED[2]),
    (tool(action="terminate", status="success"), FIXED[3]),
    (tool(action="terminate", status="failure"), FIXED[4]),
    ("Thought: a {brace} and a call.\nAction: tap\n" + tool(action="click", coordinate=[0, 0]), Tap(Point(0, 0))),
    ('{"name": "mobile_use", "arguments": {"action": "type", "text": "bare"}}', Type("bare")),
    ('So I type.\n{"name": "mobile_use", "arguments": {"action": "type", "text": "x"}}\n', Type("x")),
    ('<tool_call>{"name": "mobile_use", "arguments": {"action": "type", "text": "cut"}}', Type("cut")),
    ('{"name": "mobile_use", "arguments": {"action": "type", "text": "half"}}\n</tool_call>', Type("half")),
    (tool(action="system_button", button="Back") + "\nThat is all.", FIXED[0]),
]  # fmt: skip
UITARS = [
    ("Thought: The field is empty.\nAction: click(start_box='(250,500)')", Tap(Point(0.25, 0.25))),
    ("Action: left_single(start_box='(250, 500)')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='<|box_start|>(250,500)<|box_end|>')", Tap(Point(0.25, 0.25))),
    ("Action: click(point='<point>250 500</point>')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='[200, 400, 300, 600]')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='(200,400,300,600)')", Tap(Point(0.25, 0.25))),
    ("click(start_box='250.0,500.0')", Tap(Point(0.25, 0.25))),
    ("Action: drag(start_box='(500,1600)', end_box='(500,400)')", DOWN),
    ("Action: drag(start_point='<point>500 1600</point>', end_point='<point>500 400</point>')", DOWN),
    ("Action: drag(start_box='(500,1600)', end_box='(500,1610)')", Tap(Point(0.8, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='down')", Swipe(Point(0.75, 0.5), Point(0.25, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='up')", Swipe(Point(0.25, 0.5), Point(0.75, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='left')", Swipe(Point(0.5, 0.25), Point(0.5, 0.75))),
    ("Action: scroll(point='<point>500 1000</point>', direction='right')", Swipe(Point(0.5, 0.75), Point(0.5, 0.25))),
    ("Action: scroll(start_box='(500,1800)', direction='down')", Swipe(Point(1, 0.5), Point(0.65, 0.5))),
    ("Action: scroll(start_box='(1000,0)', direction='right')", Swipe(Point(0, 1), Point(0, 0.75))),
    ("Action: type(content='it\\'s \\\"new\\\"\\n')", Type('it\'s "new"\n')),
    ("Action: type(content=\"it's\")", Type("it's")),
    ("Action: type(content='two\nlines')", Type("two\nlines")),
    ("Action: type(content='')", Type("")),
    ("Action: type(content='50\\d')", Type("50\\d")),
    ("Action: press_back()", FIXED[0]),
    ("Action: press_home()\n", FIXED[1]),
    ("Action: press_enter()", FIXED[2]),
    ("Action: hotkey(key='enter')", FIXED[2]),
    ("Action: finished(content='done')", FIXED[3]),
    ("Action: finished()", FIXED[3]),
    ("Action: call_user()", FIXED[4]),
]  # fmt: skip
SAID = [
    *((words, "seeclick", action) for words, action in SEECLICK),
    *((words, "autoui", action) for words, action in AUTOUI),
    *((words, "mobile_use", action) for words, action in MOBILE_USE),
    *((words, "uitars", action) for words, action in UITARS),
]


@pytest.mark.parametrize(("words", "dialect", "action"), SAID, ids=lambda value: ascii(value)[:50])
def test_every_action(words: str, dialect: Dialect, action: Action) -> None:
    answer = read(words, dialect)
    if not isinstance(action, Swipe):
        assert answer == action
        return
    assert isinstance(answer, Swipe), answer
    ends = (answer.start.y, answer.start.x, answer.end.y, answer.end.x)
    assert ends == pytest.approx((action.start.y, action.start.x, action.end.y, action.end.x))


def test_our_own_words_and_their_bins() -> None:
    assert parse("tap at 5 7", "ours", SIZE) == Tap(Point(0.055, 0.075))
    assert parse("tap at 5 7", "ours", SIZE, bins=10) == Language(10).parse("tap at 5 7")
    assert isinstance(parse("tap at 50 7", "ours", SIZE, bins=10), NotAnAction)
    long = Language().say(Type("x" * LONGEST))
    assert parse(long, "ours", SIZE) == Type("x" * LONGEST)


def test_the_space_of_the_coordinates() -> None:
    words = tool(action="click", coordinate=[500, 500])
    assert parse(words, "mobile_use", (1000, 1000)) == Tap(Point(0.5, 0.5))
    assert parse(words, "mobile_use", (2000, 500)) == Tap(Point(0.25, 1))
    assert isinstance(parse(words, "mobile_use", (400, 800)), NotAnAction)
    with pytest.raises(ValueError, match="a height of 0 and a width of 5"):
        parse(words, "mobile_use", (0, 5))


CLICK = tool(action="click", coordinate=[1, 1])
BARE = '{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [1, 1]}}'
ANYWHERE = [
    "",
    " ",
    "\n",
    "{}",
    "[]",
    "None",
    "tap at 5 5",
    "\ud800",
    "\x00",
    "{",
    "Action:",
    "é" * 300,
    "x" * (LONGEST + 1),
]
REFUSED = {
    "seeclick": [
        '{"action_type": 2}', '{"action_type": -4}', '{"action_type": True}', '{"action_type": 5.0}', '{"action_type": "5"}',
        '{"action_type": 4}', '{"action_type": 4, "click_point": (0.5,)}', '{"action_type": 4, "click_point": (0.5, 0.5, 0.5)}',
        '{"action_type": 4, "click_point": "ab"}', '{"action_type": 4, "click_point": ("0.5", "0.5")}',
        '{"action_type": 4, "click_point": (True, 0.5)}', '{"action_type": 4, "click_point": (None, 0.5)}',
        '{"action_type": 4, "click_point": (1e999, 0.5)}', '{"action_type": 4, "click_point": (1e999-1e999, 0.5)}',
        '{"action_type": 4, "click_point": (1.01, 0.5)}', '{"action_type": 4, "click_point": (0.5, -0.01)}',
        '{"action_type": 4, "click_point": (1j, 0.5)}', '{"action_type": 4, "click_point": (%s, 0.5)}' % ("9" * 4000),
        '{"action_type": 0x%s}' % ("f" * 5000), '{"action_type": 4, "click_point": {0.5, 0.6}}',
        '{"action_type": 3}', '{"action_type": 3, "typed_text": 5}', '{"action_type": 3, "typed_text": b"x"}',
        '{"action_type": 3, "typed_text": "a"b"}', '{"action_type": 3, "typed_text": "a" * 9}', '{"action_type": true}',
        '{"action_type": 5} {"action_type": 6}', 'I press {"action_type": 5}', '{"action_type": 5}, {"action_type": 6}',
        '{"action_type": __import__("os").getpid()}', '{"action_type": (lambda: 5)()}', "{[]: 1}", '[{"action_type": 5}]',
    ],
    "autoui": [
        decision("DUAL_POINT"), decision("DUAL_POINT", "[0.5]", "[0.5]"), decision("DUAL_POINT", "[0.5, 0.5]", "[0.5, 1.5]"),
        decision("DUAL_POINT", "[NaN, 0.5]", "[0.5, 0.5]"), decision("DUAL_POINT", "[Infinity, 0.5]", "[0.5, 0.5]"),
        decision("DUAL_POINT", "[true, 0.5]", "[0.5, 0.5]"), decision("DUAL_POINT", "0.5, 0.5", "0.5, 0.5"),
        decision("DUAL_POINT", "5", "[0.5, 0.5]"), decision("DUAL_POINT", "[1, 1, 1]", "[0.5, 0.5]"), decision("DUAL_POINT", "", ""),
        decision("SCROLL"), decision("press_back"), decision(""), decision("TYPE", text='a"b'), decision("TYPE", text="a\\qb"),
        'Action Decision: "action_type": "TYPE"', 'Action Decision: "action_type": "DUAL_POINT"', "Action Decision:",
        'Action Decision: "action_type": 5', 'Action Decision: "action_type": ["TYPE"]', 'Action Decision: {"action_type": "PRESS_BACK"}',
        decision("PRESS_BACK").removeprefix("Action Decision: "), "I think. " + decision("PRESS_BACK"), PLAN,
        decision("PRESS_BACK") + " " + decision("PRESS_HOME"), decision("PRESS_BACK") + "}", decision("PRESS_BACK") + ".",
        'Action Decision: "action_type": "DUAL_POINT", "touch_point": [0.5, 0.5], "lift_point": [0.5, 0.5]',
    ],
    "mobile_use": [
        tool(action="double_click", coordinate=[1, 1]), tool(action="click"), tool(action="click", coordinate=[1]),
        tool(action="click", coordinate=[1, 1, 1, 1]), tool(action="click", coordinate="[1, 1]"), tool(action="click", coordinate=["1", "1"]),
        tool(action="click", coordinate=[True, 1]), tool(action="click", coordinate=[None, 1]), tool(action="click", coordinate=[float("nan"), 1]),
        tool(action="click", coordinate=[float("inf"), 1]), tool(action="click", coordinate=[-1, 1]), tool(action="click", coordinate=[1001, 1]),
        tool(action="click", coordinate=[1, 2001]), tool(action="click", coordinate=[10**4000, 1]), tool(action="swipe", coordinate=[1, 1]),
        tool(action="swipe", coordinate=[1, 1], coordinate2=[1, 9999]), tool(action="type"), tool(action="type", text=5),
        tool(action="terminate"), tool(action="terminate", status="maybe"), tool(action=["click"]), tool(action=None), tool(),
        CLICK + CLICK, CLICK + "\n" + BARE, BARE + "\n" + BARE, BARE + " and so on", "<tool_call>" + CLICK, "<tool_call>", "</tool_call>",
        BARE.replace("mobile_use", "computer_use"), BARE.replace('"mobile_use"', "null"), BARE[:-1], BARE + "}", f"[{BARE}]",
        '{"name": "mobile_use"}', '{"name": "mobile_use", "arguments": []}', '{"name": "mobile_use", "arguments": "{}"}',
        "{'name': 'mobile_use', 'arguments': {'action': 'wait'}}", '{"action": "click", "coordinate": [1, 1]}',
    ],
    "uitars": [
        "Action: double_tap(start_box='(1,1)')", "Action: click()", "Action: click(start_box='(1,1')", "Action: click(start_box=(1,1))",
        "Action: click('(1,1)')", "Action: click(start_box='1')", "Action: click(start_box='(1,1,1)')", "Action: click(start_box='')",
        "Action: click(start_box='(nan,1)')", "Action: click(start_box='(1e3,1)')", "Action: click(start_box='(1,1) (2,2)')",
        "Action: click(start_box='(%s,1)')" % ("9" * 400), "Action: click(start_box='(-{0},1,{0},1)')".format("9" * 400),
        "Action: click(start_box='(1001,1)')", "Action: click(start_box='(1,-1)')", "Action: click(start_box='(\u0661,1)')",
        "Action: click(start_box='(1,1)', start_box='(2,2)')", "Action: click(**{'start_box': '(1,1)'})", "Action: click(*['(1,1)'])",
        "Action: click(start_box=f'(1,1)')", "Action: click(start_box=b'(1,1)')", "Action: click(start_box='(1,1)', button=1)",
        "Action: click(start_box='(1,1)')\n\nclick(start_box='(2,2)')", "Action: press_back()\nAction: press_home()", "Action: press_back",
        "Action: press_back(); press_home()", "Action: (press_back(), press_home())", "Action: press_back() or press_home()",
        "Action: os.press_back()", "Action: press_back()()", "Action: [press_back()]", "press_back() then", "Thought: press_back()",
        "Action: drag(start_box='(1,1)')", "Action: scroll(start_box='(1,1)')", "Action: scroll(start_box='(1,1)', direction='forward')",
        "Action: scroll(direction='down')", "Action: type()", "Action: type(content=5)",
        "Action: type(content='open)", "Action: press_menu()", "Action: __import__('os').getpid()", "Action: exec(content='1/0')",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "words"),
    [(dialect, words) for dialect in OTHERS for words in (*REFUSED[dialect], *ANYWHERE)],
    ids=lambda value: ascii(value)[:60],
)
def test_anything_else_is_not_an_action(dialect: Dialect, words: str) -> None:
    answer = read(words, dialect)
    assert isinstance(answer, NotAnAction), answer
    assert answer.words == words
    assert 5 < len(answer.reason) < 100


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("mobile_use", tool(action="long_press", coordinate=[1, 1], time=2)),
        ("mobile_use", tool(action="open", text="Maps")),
        ("mobile_use", tool(action="wait", time=2)),
        ("mobile_use", tool(action="answer", text="42")),
        ("mobile_use", tool(action="key", text="volume_up")),
        ("mobile_use", tool(action="system_button", button="Menu")),
        ("uitars", "Action: long_press(start_box='(1,1)')"),
        ("uitars", "Action: open_app(app_name='Maps')"),
        ("uitars", "Action: wait()"),
        ("uitars", "Action: left_double(start_box='(1,1)')"),
        ("uitars", "Action: right_single(start_box='(1,1)')"),
        ("uitars", "Action: hotkey(key='ctrl c')"),
    ],
)
def test_what_aitw_has_no_action_for(dialect: Dialect, words: str) -> None:
    answer = read(words, dialect)
    assert isinstance(answer, NotAnAction)
    assert answer.reason.startswith("AITW has no action for ")


def test_several_answers_are_none() -> None:
    for dialect, words, reason in (
        ("mobile_use", CLICK + CLICK, "several tool calls: which one counts is not said"),
        ("mobile_use", BARE + BARE, "several tool calls: which one counts is not said"),
        ("uitars", "Action: press_back()\nAction: press_home()", "`Action:` 2 times: which one counts is not said"),
    ):  # fmt: skip
        assert read(words, dialect) == NotAnAction(words, reason)


NESTS = [
    "(",
    "[",
    "{",
    '{"a":',
    "-",
    "~",
    "not ",
    "1+",
    "f(",
    "f(a=",
    "lambda:",
    "1 if 1 else ",
    "a.",
    "'",
    "\\",
    "(1,",
    "Action:",
]


@pytest.mark.parametrize("dialect", OTHERS)
def test_deep_nesting(dialect: Dialect) -> None:
    heads = (
        "",
        'Action Decision: "action_type": ',
        '<tool_call>{"name": ',
        "Action: click(start_box=",
        '{"action_type": ',
    )
    for nest in NESTS:
        for depth in (90, 199, 1000, LONGEST):
            for head in heads:
                words = (head + nest * depth)[: LONGEST - 1] + "1"
                assert isinstance(read(words, dialect), NotAnAction)


BITS = [
    *("{", "}", "(", ")", "[", "]", '"', "'", "\\", "\\n", "\n", ",", ", ", ":", ": ", "=", "-", " ", "0", "0.5", "1", "4", "11", "999"),
    *("1e999", "NaN", "Infinity", "nan", "True", "true", "null", "None", "1j", "b'", "f'{", "lambda:", "*", "**", "+", "\x00", "\ud800", "é"),
    *('{"action_type": ', '"click_point": (0.5,0.5)', '"typed_text": "', '{"action_type": 4, "click_point": (', "Action Plan: [", "]; "),
    *('Action Decision: "action_type": "', "DUAL_POINT", "TYPE", "PRESS_BACK", '", "touch_point": "[0.5, 0.5]"', ', "lift_point": "['),
    *("<tool_call>", "</tool_call>", '{"name": "mobile_use", "arguments": {"action": "', "click", '", "coordinate": [1, 1]', "swipe"),
    *('"coordinate2": [', "system_button", '", "button": "Back"', "terminate", "Thought: ", "Action: ", "click(", "start_box='", "(1,1)"),
    *("')", "point='<point>", "</point>", "<|box_start|>", "scroll(", "direction='down'", "drag(", "type(content='", "finished(", "press_home()"),
]  # fmt: skip
TEXTS = [words for words, _, _ in SAID] + [words for several in REFUSED.values() for words in several]


@pytest.mark.parametrize("dialect", OTHERS)
@settings(max_examples=2500, deadline=None, derandomize=True, database=None)
@given(words=st.lists(st.sampled_from(BITS), max_size=12).map("".join) | st.text(max_size=60))
def test_random_strings(dialect: Dialect, words: str) -> None:
    assert isinstance(read(words, dialect), Action | NotAnAction)


@pytest.mark.parametrize("dialect", OTHERS)
def test_damaged_answers(dialect: Dialect) -> None:
    """Real answers with a piece cut out, doubled or replaced: each is an action on the screen, or none."""
    rng = random.Random(11)
    kinds = set()
    for _ in range(10_000):
        words = rng.choice(TEXTS)[:300]
        for _ in range(rng.randint(1, 3)):
            i, j = sorted(rng.randint(0, len(words)) for _ in range(2))
            j = min(j, i + rng.randint(0, 6))
            words = words[:i] + rng.choice(["", rng.choice(BITS), words[i:j] * 2]) + words[j:]
        answer = read(words, dialect)
        kinds.add(type(answer))
        assert isinstance(answer, Action | NotAnAction)
        for point in (getattr(answer, side) for side in ("at", "start", "end") if hasattr(answer, side)):
            assert 0 <= point.y <= 1
            assert 0 <= point.x <= 1
    assert {NotAnAction, Tap, Type, Press, Finish} <= kinds


def seeclick(action: Action) -> str:
    match action:
        case Tap(at):
            return f'{{"action_type": 4, "click_point": ({at.x:.2f},{at.y:.2f})}}'
        case Swipe(start, end):
            y, x = end.y - start.y, end.x - start.x
            number = (1 if y > 0 else 0) if abs(y) >= abs(x) else (8 if x > 0 else 9)
            return f'{{"action_type": {number}}}'
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
    return f"Thought: so be it.\nAction: {call}"


SAYS = {"seeclick": seeclick, "autoui": autoui, "mobile_use": mobile_use, "uitars": uitars}


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_right_answer_matches(dialect: Dialect) -> None:
    rng = random.Random(13)
    letters = string.ascii_letters + "   éß漢,.;:{}[]()"
    typed = [Type("".join(rng.choice(letters) for _ in range(rng.randrange(20)))) for _ in range(50)]
    points = [Point(rng.random(), rng.random()) for _ in range(400)]
    taps = [Tap(point) for point in points]
    swipes = []
    for start, end in zip(points[::2], points[1::2], strict=True):
        far, near = sorted((abs(start.y - end.y), abs(start.x - end.x)), reverse=True)
        if far > 0.06 and far - near > 0.01:  # rounding to a dialect's numbers cannot change what it is
            swipes.append(Swipe(start, end))
    assert len(swipes) > 150
    for gold in (*FIXED, *typed, *taps, *swipes):
        answer = read(SAYS[dialect](gold), dialect)
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
def test_quotes_that_were_not_escaped(call: str, text: str) -> None:
    assert parse(f"Action: {call}", "uitars", (1000, 1000)) == Type(text)

"""Anything but one action in a tool's format is an InvalidAction, and nothing raises."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.foreign_answers import (
    BARE,
    CLICK,
    FOREIGN_FORMATS,
    REFUSED,
    REFUSED_BY_ALL,
    VALID,
    parse,
    tool,
)
from uivlm.actions.action import Action, Finish, InvalidAction, Press, Tap, Type
from uivlm.evaluation.answer_formats import MAX_CHARS
from uivlm.evaluation.names import AnswerFormat


@pytest.mark.parametrize(
    ("answer_format", "text"),
    [
        (answer_format, text)
        for answer_format in FOREIGN_FORMATS
        for text in (*REFUSED[answer_format], *REFUSED_BY_ALL)
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_anything_else_is_not_an_action(answer_format: AnswerFormat, text: str) -> None:
    answer = parse(text, answer_format)
    assert isinstance(answer, InvalidAction), answer
    assert answer.text == text
    assert 5 < len(answer.reason) < 100


@pytest.mark.parametrize(
    ("answer_format", "text"),
    [
        ("mobile_use", tool(action="long_press", coordinate=[1, 1], time=2)),
        ("mobile_use", tool(action="open", text="Maps")),
        ("mobile_use", tool(action="wait", time=2)),
        ("mobile_use", tool(action="answer", text="42")),
        ("mobile_use", tool(action="key", text="volume_up")),
        ("mobile_use", tool(action="system_button", button="Menu")),
        ("showui", "{'action': 'SELECT', 'value': 'a', 'position': [0.5, 0.5]}"),
        ("osatlas", "actions:\nLONG_PRESS <point>[[1, 1]]</point>"),
        ("osatlas", "OPEN_APP [Maps]"),
        ("osatlas", "WAIT"),
        ("osatlas", "PRESS_RECENT"),
        ("uitars", "Action: long_press(start_box='(1,1)')"),
        ("uitars", "Action: open_app(app_name='Maps')"),
        ("uitars", "Action: wait()"),
        ("uitars", "Action: left_double(start_box='(1,1)')"),
        ("uitars", "Action: right_single(start_box='(1,1)')"),
        ("uitars", "Action: hotkey(key='ctrl c')"),
    ],
)
def test_actions_that_aitw_lacks(answer_format: AnswerFormat, text: str) -> None:
    answer = parse(text, answer_format)
    assert isinstance(answer, InvalidAction)
    assert answer.reason.startswith("AITW has no action for ")


def test_several_actions_are_invalid() -> None:
    for answer_format, text, reason in (
        ("mobile_use", CLICK + CLICK, "several tool calls; expected one"),
        ("mobile_use", BARE + BARE, "several tool calls; expected one"),
        ("uitars", "Action: press_back()\nAction: press_home()", "`Action:` appears 2 times; expected once"),
    ):  # fmt: skip
        assert parse(text, answer_format) == InvalidAction(text, reason)


OPENERS = [
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


@pytest.mark.parametrize("answer_format", FOREIGN_FORMATS)
def test_deep_nesting(answer_format: AnswerFormat) -> None:
    heads = (
        "",
        'Action Decision: "action_type": ',
        '<tool_call>{"name": ',
        "Action: click(start_box=",
        '{"action_type": ',
    )
    for nest in OPENERS:
        for depth in (90, 199, 1000, MAX_CHARS):
            for head in heads:
                text = (head + nest * depth)[: MAX_CHARS - 1] + "1"
                assert isinstance(parse(text, answer_format), InvalidAction)


PIECES = [
    "{", "}", "(", ")", "[", "]", '"', "'", "\\", "\\n", "\n", ",", ", ", ":", ": ", "=", "-", " ", "0",
    "0.5", "1", "4", "11", "999",
    "1e999", "NaN", "Infinity", "nan", "True", "true", "null", "None", "1j", "b'", "f'{", "lambda:", "*",
    "**", "+", "\x00", "\ud800", "é",
    '{"action_type": ', '"click_point": (0.5,0.5)', '"typed_text": "', '{"action_type": 4, "click_point": (',
    "Action Plan: [", "]; ",
    'Action Decision: "action_type": "', "DUAL_POINT", "TYPE", "PRESS_BACK", '", "touch_point": "[0.5, 0.5]"',
    ', "lift_point": "[',
    "<tool_call>", "</tool_call>", '{"name": "mobile_use", "arguments": {"action": "', "click",
    '", "coordinate": [1, 1]', "swipe",
    '"coordinate2": [', "system_button", '", "button": "Back"', "terminate", "Thought: ", "Action: ",
    "click(", "start_box='", "(1,1)",
    "')", "point='<point>", "</point>", "<|box_start|>", "scroll(", "direction='down'", "drag(",
    "type(content='", "finished(", "press_home()", "actions:\n", "CLICK <point>[[", "]]</point>", "TYPE [",
    "SCROLL [UP]", "{'action': '", "CLICK", "', 'position': [", "', 'value': '",
]  # fmt: skip
TEXTS = [text for text, _, _ in VALID] + [text for refused in REFUSED.values() for text in refused]


@pytest.mark.slow
@pytest.mark.parametrize("answer_format", FOREIGN_FORMATS)
@settings(max_examples=1500, deadline=None, derandomize=True, database=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=60))
def test_random_strings(answer_format: AnswerFormat, text: str) -> None:
    assert isinstance(parse(text, answer_format), Action | InvalidAction)


@pytest.mark.parametrize("answer_format", FOREIGN_FORMATS)
def test_damaged_texts(answer_format: AnswerFormat) -> None:
    """Valid texts with a piece removed, doubled or replaced: each is an action on the screen, or invalid."""
    rng = random.Random(11)
    action_classes = set()
    for _ in range(10_000):
        text = rng.choice(TEXTS)[:300]
        for _ in range(rng.randint(1, 3)):
            i, j = sorted(rng.randint(0, len(text)) for _ in range(2))
            j = min(j, i + rng.randint(0, 6))
            text = text[:i] + rng.choice(["", rng.choice(PIECES), text[i:j] * 2]) + text[j:]
        answer = parse(text, answer_format)
        action_classes.add(type(answer))
        assert isinstance(answer, Action | InvalidAction)
        for point in (getattr(answer, side) for side in ("at", "start", "end") if hasattr(answer, side)):
            assert 0 <= point.y <= 1
            assert 0 <= point.x <= 1
    assert {InvalidAction, Tap, Type, Press, Finish} <= action_classes

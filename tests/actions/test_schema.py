"""The one JSON of actions and gestures."""

import json
from typing import get_args

import pytest

from tests.helpers.scripted_loop import SWIPE, TAP
from uivlm.actions.action import Action, Finish, InvalidAction, Press, Type
from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.actions.schema import SchemaError, action_from_json, action_to_json, gesture_from_json

HARD = 'a "quoted" \\ 北京 🚀\nline\ttab </script>'
ACTIONS = [TAP, SWIPE, Type(HARD), Type(""), *map(Press, ("back", "home", "enter"))]
ACTIONS += [Finish("complete"), Finish("impossible"), InvalidAction(HARD, "no")]
GESTURES = [Touch(((0, 0),), 60), Touch(((1, 2), (3, 4)), 500), TypeText(HARD), PressKey("back")]


def test_every_action_and_gesture_comes_back() -> None:
    assert {type(each) for each in ACTIONS} == {*get_args(Action), InvalidAction}
    assert {type(each) for each in GESTURES} == {*get_args(Gesture)}
    for action in ACTIONS:
        assert action_from_json(json.loads(json.dumps(action_to_json(action)))) == action
    for gesture in GESTURES:
        assert gesture_from_json(json.loads(json.dumps(action_to_json(gesture)))) == gesture


JUNK = [
    None,
    True,
    1,
    10**400,
    -1.5,
    "x",
    [],
    [1, 2],
    {},
    {"type": 3},
    {"y": "0", "x": 0},
    {"y": True, "x": 0},
    {"x": 0},
]


@pytest.mark.parametrize("whole", [*map(action_to_json, ACTIONS), *map(action_to_json, GESTURES)], ids=str)
def test_no_junk_is_an_action(whole: dict[str, object]) -> None:
    """Any value anywhere: an action, or one ValueError."""
    decode = gesture_from_json if whole["type"] in ("touch", "text", "key") else action_from_json
    for name in whole:
        for junk in JUNK:
            if type(junk) is type(whole[name]):
                continue  # another text or number of the same type may well be one
            with pytest.raises(SchemaError, match=r"^(action|gesture)"):
                decode({**whole, name: junk})
        if name != "type":
            with pytest.raises(SchemaError, match="required"):
                decode({key: value for key, value in whole.items() if key != name})
    for junk in JUNK:
        with pytest.raises(SchemaError, match=r"^(action|gesture)"):
            decode(junk)
    with pytest.raises(SchemaError, match="'long_press'"):
        decode(whole | {"type": "long_press"})


def test_a_hostile_field_name_stays_on_one_line() -> None:
    with pytest.raises(SchemaError) as error:
        action_from_json({"type": "press", "key": "back", "a\nb\x1b" + "x" * 999: 1})
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


def test_a_lone_surrogate_is_not_json() -> None:
    with pytest.raises(SchemaError, match="^action: "):
        action_from_json({"type": "type", "text": "\ud800"})

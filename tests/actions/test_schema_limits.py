"""The writing of JSON against the standard library's, and the reading of JSON made to cost much."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from uivlm.actions.action import Point, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.schema import ACTION, SchemaError, action_from_json, dump_json, parse_json
from uivlm.episodes.episode import Element, History, Screen, Step
from uivlm.rollout.trace_schema import STEP
from uivlm.serving.protocol import EncodedScreen, Timings, write_decision, write_history

NOT_FINITE = (math.nan, math.inf, -math.inf, np.float32("nan"))


def history(element: Element, action: Tap | Swipe | Type) -> History:
    screen = Screen(np.zeros((2, 2, 3), np.uint8), (element,))
    return History("goal", (Step(screen, action),), screen)


def encode(screen: Screen) -> EncodedScreen:
    return EncodedScreen("iVBORw0K", "0" * 64)


@pytest.mark.parametrize("text", ['NaN "Infinity" \\ \0 é 🚀', "null \\ \0 é 🚀"])  # pydantic's JSON, json's
def test_numbers_and_texts_arrive_as_they_were(text: str) -> None:
    element = Element(np.float32(0.1), np.float64(1 / 3), np.int64(2), 1e-7, text, "\u2028")
    tree = json.loads(write_history(history(element, Tap(Point(np.float32(0.7), -0.0))), encode))
    assert tree["screen"]["elements"] == [
        {
            "y": float(np.float32(0.1)),
            "x": 1 / 3,
            "height": 2,
            "width": 1e-7,
            "text": text,
            "ui_type": "\u2028",
        }
    ]
    assert tree["steps"][0]["action"] == {"type": "tap", "at": {"y": float(np.float32(0.7)), "x": 0.0}}


@pytest.mark.parametrize("number", NOT_FINITE)
def test_no_field_of_a_body_is_written_as_null_for_a_number_that_is_not_finite(number: float) -> None:
    fine, tap = Element(0.1, 0.2, 0.3, 0.4), Tap(Point(0.5, 0.5))
    for name in ("y", "x", "height", "width"):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_history(history(replace(fine, **{name: number}), tap), encode)
    for action in (Tap(Point(number, 0.5)), Swipe(Point(0.5, 0.5), Point(0.5, number))):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_history(history(fine, action), encode)
    timings = Timings(0.5, 0.5, 1)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_decision(Decision(tap, "a"), (30, 20), replace(timings, queue_ms=number))


def test_half_a_surrogate_pair_next_to_a_word_that_looks_like_a_value() -> None:
    assert json.loads(dump_json(ACTION, Type("null \ud800 🚀"))) == {"type": "type", "text": "null \ufffd 🚀"}


NUM_FIELDS = 20_000
REPEATED = "{" + '"kind": 0, ' * NUM_FIELDS + '"a": 0}'
UNKNOWN = json.dumps({str(i): 0 for i in range(NUM_FIELDS)})


@pytest.mark.parametrize("text", [REPEATED, UNKNOWN, f'{{"action": [{{"a": {REPEATED}}}]}}'])
def test_an_object_of_very_many_fields_is_rejected_before_an_error_is_kept_for_each(text: str) -> None:
    for data in (text, text.encode()):
        with pytest.raises(SchemaError, match=r"^step: .* fields; expected at most 1000$"):
            parse_json(STEP, data, "step")


def test_a_parsed_object_of_very_many_fields_is_rejected_too() -> None:
    with pytest.raises(SchemaError, match=f"^action: an object has {NUM_FIELDS} fields"):
        action_from_json(json.loads(UNKNOWN))


def test_very_many_small_objects_are_no_reason_to_reject() -> None:
    with pytest.raises(SchemaError, match=r"^action\.at\.more: unknown field, got a list"):
        parse_json(
            ACTION,
            json.dumps({"type": "tap", "at": {"y": 0.5, "x": 0.5, "more": [{"a": 0}] * NUM_FIELDS}}),
            "action",
        )

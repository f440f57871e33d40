"""The protocols' rules by hand, their defects one by one, and what holds for all of them."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.helpers.episodes import DONE, SWIPE_UP, TAP
from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.evaluation.names import PROTOCOLS, ProtocolName
from uivlm.evaluation.protocols.prediction import StepPrediction
from uivlm.evaluation.protocols.score import score_protocol
from uivlm.evaluation.protocols.seeclick import regroup_boxes

BOX = np.array([[0.4, 0.4, 0.1, 0.2]])  # y 0.4 to 0.5, x 0.4 to 0.6
NONE = np.zeros((0, 4))
DOWN, LEFT = Swipe(Point(0.2, 0.5), Point(0.8, 0.5)), Swipe(Point(0.5, 0.9), Point(0.5, 0.1))
RIGHT = Swipe(Point(0.5, 0.1), Point(0.5, 0.9))


def predict(
    gold: Action, predicted: Action | None, boxes: np.ndarray = BOX, missing: bool = False
) -> StepPrediction:
    return StepPrediction(0, "A", gold, boxes, predicted, missing)


def rate(protocol: ProtocolName, *rows: StepPrediction, as_released: bool = False, history: int = 4) -> float:
    return score_protocol(rows, protocol, as_released, history).overall


def tap(y: float, x: float) -> Tap:
    return Tap(Point(y, x))


HAND: list[tuple[Action, Action | None, str]] = [  # recorded, predicted, protocols that accept it
    (tap(0.45, 0.5), tap(0.45, 0.5), "aitw autoui seeclick showui aitz androidcontrol"),
    (tap(0.45, 0.5), tap(0.55, 0.5), "aitw autoui seeclick showui aitz"),  # 0.1 away, in no box
    (tap(0.45, 0.42), tap(0.45, 0.58), "aitw autoui seeclick showui aitz androidcontrol"),  # in the box
    (tap(0.45, 0.45), tap(0.36, 0.7), "aitw autoui seeclick showui"),  # in the box grown to 240 %
    (tap(0.1, 0.1), tap(0.9, 0.9), ""),
    (SWIPE_UP, DOWN, "aitw autoui seeclick showui"),
    (SWIPE_UP, Swipe(Point(0.9, 0.2), Point(0.3, 0.3)), "aitw autoui seeclick showui aitz androidcontrol"),
    (SWIPE_UP, LEFT, ""),
    (Type("buy milk"), Type(" Buy  Milk"), "aitw autoui seeclick showui androidcontrol"),
    (Type("milk"), Type("buy milk"), "aitw autoui seeclick showui aitz"),
    (Type("running shoes"), Type("running shoe!"), "aitw autoui seeclick showui aitz"),
    (Type("milk"), Type("shoes"), "aitw autoui seeclick showui"),
    (Type("milk"), Press("enter"), ""),
    (Finish("complete"), Finish("impossible"), "aitz"),
    (Press("back"), Press("back"), "aitw autoui seeclick showui aitz androidcontrol"),
    (Press("back"), Press("home"), ""),
    (DONE, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "predicted", "accepting"), HAND, ids=str)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_steps_by_hand(
    protocol: ProtocolName, gold: Action, predicted: Action | None, accepting: str
) -> None:
    assert rate(protocol, predict(gold, predicted)) == (protocol in accepting.split())


def test_means_by_hand() -> None:
    """Two episodes in A (1 of 1 and 1 of 3 steps correct), one in B (2 of 4)."""
    steps = [
        (0, "A", 1),
        (1, "A", 1),
        (1, "A", 0),
        (1, "A", 0),
        (2, "B", 1),
        (2, "B", 0),
        (2, "B", 1),
        (2, "B", 0),
    ]
    rows = [
        StepPrediction(i, subset, DONE, BOX, DONE if correct else Press("back"))
        for i, subset, correct in steps
    ]
    assert score_protocol(rows, "aitw").subsets == {"A": pytest.approx(2 / 3), "B": 0.5}
    assert score_protocol(rows, "aitw").overall == pytest.approx((2 / 3 + 1 / 2) / 2)
    for protocol in ("autoui", "seeclick", "showui"):
        assert score_protocol(rows, protocol).subsets == {"A": 0.5, "B": 0.5}
        assert score_protocol(rows, protocol).overall_by_aitw_mean == score_protocol(rows, "aitw").overall, (
            "the mean alone makes the difference"
        )
    score = score_protocol(rows, "aitz")
    assert score.overall == 4 / 8
    assert score.extra_metrics == {
        "complete_match": pytest.approx(1 / 3),
        "goal_progress": pytest.approx((1 + 1 / 3 + 1 / 4) / 3),
    }
    assert {score_protocol(rows, protocol).num_steps for protocol in PROTOCOLS} == {8}


# -- defects: each changes the metric that it is known for, and nothing else ---------------------------------


def test_autoui_left_and_right_had_the_points_of_up_and_down() -> None:
    wrong = predict(LEFT, SWIPE_UP)
    assert rate("autoui", wrong) == 0
    assert rate("autoui", wrong, as_released=True) == 1
    assert (
        rate("autoui", predict(SWIPE_UP, DOWN), as_released=True)
        == rate("autoui", predict(SWIPE_UP, DOWN))
        == 1
    )


def test_autoui_scores_the_previous_prediction_again() -> None:
    """Two of three predictions are invalid, and two of three steps are correct."""
    rows = [predict(DONE, DONE), predict(DONE, None), predict(Press("back"), None)]
    assert rate("autoui", *rows) == pytest.approx(1 / 3)
    assert rate("autoui", *rows, as_released=True) == pytest.approx(2 / 3)
    assert score_protocol(rows, "autoui", True).num_unreadable == 0, "and no count shows it"


def test_autoui_metrics() -> None:
    rows = [
        predict(Type("it's"), Type("its")),
        predict(Type("milk"), Type("shoes")),
        predict(DONE, DONE),
        predict(SWIPE_UP, tap(0.1, 0.1)),
    ]
    score = score_protocol(rows, "autoui")
    assert score.extra_metrics == {"type": 1.0, "text": 0.5}  # over all steps; a swipe has the type of a tap
    assert score.overall == 0.75


def test_seeclick_steps_without_a_prediction_leave_the_denominator() -> None:
    rows = [predict(DONE, DONE), predict(DONE, None, missing=True)]
    assert rate("seeclick", *rows) == 0.5
    assert rate("seeclick", *rows, as_released=True) == 1
    assert score_protocol(rows, "seeclick", True).num_steps == 1


def test_seeclick_accuracies_by_type_leave_out_invalid_predictions() -> None:
    rows = [
        predict(tap(0.45, 0.5), tap(0.45, 0.5)),
        predict(TAP, None),
        predict(SWIPE_UP, SWIPE_UP),
        predict(SWIPE_UP, None),
    ]
    metrics = score_protocol(rows, "seeclick").extra_metrics
    assert metrics["click"] == metrics["scroll"] == 0.5
    metrics = score_protocol(rows, "seeclick", True).extra_metrics
    assert metrics["click"] == metrics["scroll"] == 1
    assert rate("seeclick", *rows) == rate("seeclick", *rows, as_released=True) == 0.5


def test_seeclick_an_empty_text_is_always_correct() -> None:
    rows = [predict(Type("milk"), Type("")), predict(Type("milk"), Type("buy milk"))]
    assert score_protocol(rows, "seeclick").extra_metrics["text"] == 0.5
    assert score_protocol(rows, "seeclick", True).extra_metrics["text"] == 1


def test_showui_boxes_are_as_wide_as_the_history() -> None:
    rows = [predict(tap(0.45, 0.42), tap(0.45, 0.58), np.concatenate([BOX, BOX]))]
    assert rate("showui", *rows) == rate("showui", *rows, as_released=True) == 1, (
        "with its history of four nothing shows"
    )
    assert rate("showui", *rows, as_released=True, history=8) == 1
    for history in (2, 5):  # too few columns; groups of unequal length: both raise
        assert rate("showui", *rows, as_released=True, history=history) == 0
    assert rate("seeclick", *rows, as_released=True) == 1
    numbers = np.arange(20.0).reshape(5, 4) / 20
    assert regroup_boxes(numbers, 5)[:, 0].tolist() == pytest.approx([0, 5 / 20, 10 / 20, 15 / 20])


def test_aitz_scores_taps_at_the_corner() -> None:
    rows = [
        predict(tap(0.45, 0.5), tap(0.45, 0.5)),
        predict(tap(0.9, 0.9), tap(0.01, 0.01), NONE),
        predict(SWIPE_UP, SWIPE_UP),
    ]
    assert rate("aitz", *rows) == pytest.approx(2 / 3)
    assert rate("aitz", *rows, as_released=True) == pytest.approx(2 / 3)
    assert [rate("aitz", row, as_released=True) for row in rows] == [0, 1, 1]


def test_aitz_an_empty_text_is_correct() -> None:
    rows = [predict(Type("milk"), Type("")), predict(Type(""), Type("milk")), predict(Type(""), Type(""))]
    assert [rate("aitz", row) for row in rows] == [0, 0, 1]
    assert [rate("aitz", row, as_released=True) for row in rows] == [1, 1, 1]


def test_autoui_an_empty_text_is_contained_in_every_text() -> None:
    row = predict(Type("milk"), Type(""))
    assert score_protocol([row], "autoui").extra_metrics["text"] == 0
    assert score_protocol([row], "autoui", True).extra_metrics["text"] == 1
    assert rate("autoui", row) == rate("autoui", row, as_released=True) == 1


def test_seeclick_any_action_is_a_correct_text() -> None:
    for protocol in PROTOCOLS[2:4]:
        rows = [predict(Type("clock"), tap(0.5, 0.5)), predict(Type("clock"), Press("home"))]
        assert score_protocol(rows, protocol).extra_metrics["text"] == 0
        assert score_protocol(rows, protocol, True).extra_metrics["text"] == 1
        assert rate(protocol, *rows, as_released=True) == 0


@pytest.mark.parametrize("as_released", [False, True])
def test_texts_are_compared_without_case(as_released: bool) -> None:
    row = predict(Type("Open Clock"), Type(" cLOCK "))
    for protocol, is_correct in (("autoui", 1), ("seeclick", 0), ("showui", 0)):  # Auto-UI strips, too
        score = score_protocol([row], protocol, as_released)
        assert score.extra_metrics["text"] == is_correct
    row = predict(Type("Open Clock"), Type("cLOCK"))
    for protocol in ("autoui", "seeclick", "showui"):
        assert score_protocol([row], protocol, as_released).extra_metrics["text"] == 1


@pytest.mark.parametrize("protocol", ["autoui", "seeclick", "showui"])
def test_a_screen_without_boxes_is_wrong(protocol: ProtocolName) -> None:
    """Even home against home, and it stays in the denominator."""
    rows = [predict(Press("home"), Press("home"), NONE), predict(DONE, DONE)]
    assert rate(protocol, *rows) == 1
    score = score_protocol(rows, protocol, True)
    assert (score.overall, score.num_steps) == (0.5, 2)
    assert score.extra_metrics["type"] == (1 if protocol == "autoui" else 0.5)  # outside its `try`


def test_androidcontrol_counts_the_taps_that_no_box_decides() -> None:
    """0.1 off: wrong by the recorded element, right by the distance, and the score says how many."""
    rows = [predict(tap(0.45, 0.5), tap(0.55, 0.5)), predict(tap(0.45, 0.5), tap(0.55, 0.5), NONE)]
    score = score_protocol(rows, "androidcontrol")
    assert [rate("androidcontrol", row) for row in rows] == [0, 1]
    assert score.extra_metrics == {"taps_by_distance": 0.5}


def test_aitw_leaves_out_steps_without_boxes() -> None:
    rows = [predict(DONE, DONE), predict(TAP, None, NONE)]
    assert rate("aitw", *rows) == 0.5
    assert rate("aitw", *rows, as_released=True) == 1


# -- what must hold of all -----------------------------------------------------------------------------------


def random_action(random: Random) -> Action:
    def point() -> Point:
        return Point(random.random(), random.random())

    swipe = Swipe(point(), point())
    return random.choice(
        [Tap(point()), swipe, Type(random.choice(["a", "milk", "'\""])), Press("back"), DONE]
    )


def random_predictions(seed: int, count: int = 200) -> list[StepPrediction]:
    random = Random(seed)
    rows = []
    for i in range(count):
        boxes = np.array(
            [[random.random() * 0.8, random.random() * 0.8, 0.2, 0.2] for _ in range(random.randrange(4))]
        )
        gold = random_action(random)
        if isinstance(gold, Swipe) and abs(gold.end.y - gold.start.y) + abs(gold.end.x - gold.start.x) < 0.1:
            gold = SWIPE_UP
        predicted = random.choice([gold, random_action(random), None])
        missing = predicted is None and i % 2 == 0
        rows.append(StepPrediction(i // 5, "AB"[i // 100], gold, boxes.reshape(-1, 4), predicted, missing))
    return rows


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_recorded_actions_are_correct(protocol: ProtocolName) -> None:
    rows = [replace(row, predicted=row.gold, missing=False) for row in random_predictions(1)]
    score = score_protocol(rows, protocol)
    assert (score.overall, score.num_unreadable, set(score.subsets.values())) == (1, 0, {1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dropping_a_prediction_never_raises_the_score(protocol: ProtocolName) -> None:
    rows = random_predictions(2)
    before = score_protocol(rows, protocol)
    for i in range(0, len(rows), 7):
        fewer = [*rows[:i], replace(rows[i], predicted=None, missing=True), *rows[i + 1 :]]
        after = score_protocol(fewer, protocol)
        assert after.overall <= before.overall + 1e-12
        assert after.num_steps == before.num_steps


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_order_of_episodes_changes_nothing(protocol: ProtocolName) -> None:
    rows = random_predictions(3)
    episodes = [rows[i : i + 5] for i in range(0, len(rows), 5)]
    Random(0).shuffle(episodes)
    shuffled = score_protocol([row for episode in episodes for row in episode], protocol)
    ordered = score_protocol(rows, protocol)
    assert shuffled.overall == pytest.approx(ordered.overall, abs=1e-12)
    assert shuffled.subsets == pytest.approx(ordered.subsets)
    assert shuffled.extra_metrics == pytest.approx(ordered.extra_metrics)

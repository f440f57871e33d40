"""Peers' rules by hand, their defects one by one, and what must hold of all of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from bridges import prepare
from test_evaluation import DONE, TAP, UP, Scripted, episode

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.evaluation.benchmark import evaluate
from uivlm.evaluation.match import boxes_of
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.names import PROTOCOLS, Protocol
from uivlm.evaluation.predictions import is_verdicts, of_another, of_verdicts
from uivlm.evaluation.protocols.answer import Answer
from uivlm.evaluation.protocols.score import score
from uivlm.evaluation.protocols.seeclick import regrouped
from uivlm.sentences.store import Prepared

BOX = np.array([[0.4, 0.4, 0.1, 0.2]])  # y 0.4 to 0.5, x 0.4 to 0.6
NONE = np.zeros((0, 4))
DOWN, LEFT = Swipe(Point(0.2, 0.5), Point(0.8, 0.5)), Swipe(Point(0.5, 0.9), Point(0.5, 0.1))
RIGHT = Swipe(Point(0.5, 0.1), Point(0.5, 0.9))


def answer(
    gold: Action, guess: Action | None, boxes: np.ndarray = BOX, index: int = 0, missing: bool = False
) -> Answer:
    return Answer(index, "A", gold, boxes, guess, missing)


def rate(protocol: Protocol, *rows: Answer, defects: bool = False, history: int = 4) -> float:
    return score(rows, protocol, defects, history).overall


def tap(y: float, x: float) -> Tap:
    return Tap(Point(y, x))


HAND: list[tuple[Action, Action | None, str]] = [  # recorded, answered, protocols that call it right
    (tap(0.45, 0.5), tap(0.45, 0.5), "aitw autoui seeclick showui aitz androidcontrol"),
    (tap(0.45, 0.5), tap(0.55, 0.5), "aitw autoui seeclick showui aitz"),  # 0.1 away, out of the box; in none of its own
    (tap(0.45, 0.42), tap(0.45, 0.58), "aitw autoui seeclick showui aitz androidcontrol"),  # 0.16 away, in the box
    (tap(0.45, 0.45), tap(0.36, 0.7), "aitw autoui seeclick showui"),  # in the box grown to 240 %
    (tap(0.1, 0.1), tap(0.9, 0.9), ""),
    (UP, DOWN, "aitw autoui seeclick showui"),
    (UP, Swipe(Point(0.9, 0.2), Point(0.3, 0.3)), "aitw autoui seeclick showui aitz androidcontrol"),
    (UP, LEFT, ""),
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


@pytest.mark.parametrize(("gold", "guess", "right"), HAND, ids=str)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_steps_by_hand(protocol: Protocol, gold: Action, guess: Action | None, right: str) -> None:
    assert rate(protocol, answer(gold, guess)) == (protocol in right.split())


def test_means_by_hand() -> None:
    """Two episodes in A (1 of 1 and 1 of 3 steps right), one in B (2 of 4)."""
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
    rows = [Answer(i, subset, DONE, BOX, DONE if yes else Press("back")) for i, subset, yes in steps]
    assert score(rows, "aitw").subsets == {"A": pytest.approx(2 / 3), "B": 0.5}
    assert score(rows, "aitw").overall == pytest.approx((2 / 3 + 1 / 2) / 2)
    for protocol in ("autoui", "seeclick", "showui"):
        assert score(rows, protocol).subsets == {"A": 0.5, "B": 0.5}
        assert score(rows, protocol).by_rules == score(rows, "aitw").overall, (
            "the mean alone makes the difference"
        )
    told = score(rows, "aitz")
    assert told.overall == 4 / 8
    assert told.more == {"success": pytest.approx(1 / 3), "progress": pytest.approx((1 + 1 / 3 + 1 / 4) / 3)}
    assert {score(rows, one).steps for one in PROTOCOLS} == {8}


# -- defects: each moves the figure that it is known for, and nothing else --------------------------------------------


def test_autoui_left_and_right_had_the_points_of_up_and_down() -> None:
    wrong = answer(LEFT, UP)
    assert rate("autoui", wrong) == 0
    assert rate("autoui", wrong, defects=True) == 1
    assert rate("autoui", answer(UP, DOWN), defects=True) == rate("autoui", answer(UP, DOWN)) == 1


def test_autoui_scores_the_answer_before_again() -> None:
    """Two of three answers are garbage, and two of three steps are right."""
    rows = [answer(DONE, DONE), answer(DONE, None), answer(Press("back"), None)]
    assert rate("autoui", *rows) == pytest.approx(1 / 3)
    assert rate("autoui", *rows, defects=True) == pytest.approx(2 / 3)
    assert score(rows, "autoui", True).invalid == 0, "and nothing tells that"


def test_autoui_figures() -> None:
    rows = [
        answer(Type("it's"), Type("its")),
        answer(Type("milk"), Type("shoes")),
        answer(DONE, DONE),
        answer(UP, tap(0.1, 0.1)),
    ]
    told = score(rows, "autoui")
    assert told.more == {"type": 1.0, "text": 0.5}  # over all steps; a swipe has the type of a tap
    assert told.overall == 0.75


def test_seeclick_steps_without_an_answer_leave_the_denominator() -> None:
    rows = [answer(DONE, DONE), answer(DONE, None, missing=True)]
    assert rate("seeclick", *rows) == 0.5
    assert rate("seeclick", *rows, defects=True) == 1
    assert score(rows, "seeclick", True).steps == 1


def test_seeclick_shares_by_kind_leave_out_what_cannot_be_read() -> None:
    rows = [answer(tap(0.45, 0.5), tap(0.45, 0.5)), answer(TAP, None), answer(UP, UP), answer(UP, None)]
    assert score(rows, "seeclick").more["click"] == score(rows, "seeclick").more["scroll"] == 0.5
    assert score(rows, "seeclick", True).more["click"] == score(rows, "seeclick", True).more["scroll"] == 1
    assert rate("seeclick", *rows) == rate("seeclick", *rows, defects=True) == 0.5


def test_seeclick_an_empty_text_is_always_right() -> None:
    rows = [answer(Type("milk"), Type("")), answer(Type("milk"), Type("buy milk"))]
    assert score(rows, "seeclick").more["text"] == 0.5
    assert score(rows, "seeclick", True).more["text"] == 1


def test_showui_boxes_are_as_wide_as_the_history() -> None:
    rows = [answer(tap(0.45, 0.42), tap(0.45, 0.58), np.concatenate([BOX, BOX]))]
    assert rate("showui", *rows) == rate("showui", *rows, defects=True) == 1, (
        "with its history of four nothing shows"
    )
    assert rate("showui", *rows, defects=True, history=5) == 1
    assert rate("showui", *rows, defects=True, history=2) == 0
    assert rate("seeclick", *rows, defects=True) == 1
    numbers = np.arange(12.0).reshape(3, 4) / 12
    assert regrouped(numbers, 5)[:, 0].tolist() == pytest.approx([0, 5 / 12])


def test_aitz_judges_taps_at_the_corner() -> None:
    rows = [
        answer(tap(0.45, 0.5), tap(0.45, 0.5)),
        answer(tap(0.9, 0.9), tap(0.01, 0.01), NONE),
        answer(UP, UP),
    ]
    assert rate("aitz", *rows) == pytest.approx(2 / 3)
    assert rate("aitz", *rows, defects=True) == pytest.approx(2 / 3)
    assert [rate("aitz", one, defects=True) for one in rows] == [0, 1, 1]


def test_aitw_callers_leave_out_steps_without_boxes() -> None:
    rows = [answer(DONE, DONE), answer(TAP, None, NONE)]
    assert rate("aitw", *rows) == 0.5
    assert rate("aitw", *rows, defects=True) == 1


# -- what must hold of all --------------------------------------------------------------------------------------------


def some_action(random: Random) -> Action:
    def point() -> Point:
        return Point(random.random(), random.random())

    swipe = Swipe(point(), point())
    return random.choice(
        [Tap(point()), swipe, Type(random.choice(["a", "milk", "'\""])), Press("back"), DONE]
    )


def some_answers(seed: int, number: int = 200) -> list[Answer]:
    random = Random(seed)
    rows = []
    for i in range(number):
        boxes = np.array(
            [[random.random() * 0.8, random.random() * 0.8, 0.2, 0.2] for _ in range(random.randrange(4))]
        )
        gold = some_action(random)
        if isinstance(gold, Swipe) and abs(gold.end.y - gold.start.y) + abs(gold.end.x - gold.start.x) < 0.1:
            gold = UP
        guess = random.choice([gold, some_action(random), None])
        rows.append(
            Answer(i // 5, "AB"[i // 100], gold, boxes.reshape(-1, 4), guess, guess is None and i % 2 == 0)
        )
    return rows


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_recorded_is_right(protocol: Protocol) -> None:
    rows = [replace(one, guess=one.gold, missing=False) for one in some_answers(1)]
    told = score(rows, protocol)
    assert (told.overall, told.invalid, set(told.subsets.values())) == (1, 0, {1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_that_is_dropped_can_only_lower_the_score(protocol: Protocol) -> None:
    rows = some_answers(2)
    before = score(rows, protocol)
    for i in range(0, len(rows), 7):
        fewer = [*rows[:i], replace(rows[i], guess=None, missing=True), *rows[i + 1 :]]
        after = score(fewer, protocol)
        assert after.overall <= before.overall + 1e-12
        assert after.steps == before.steps


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_order_of_episodes_changes_nothing(protocol: Protocol) -> None:
    rows = some_answers(3)
    episodes = [rows[i : i + 5] for i in range(0, len(rows), 5)]
    Random(0).shuffle(episodes)
    turned = score([one for each in episodes for one in each], protocol)
    one = score(rows, protocol)
    assert turned.overall == pytest.approx(one.overall, abs=1e-12)
    assert turned.subsets == pytest.approx(one.subsets)
    assert turned.more == pytest.approx(one.more)


# -- files ------------------------------------------------------------------------------------------------------------


EPISODES = [episode("1", "A", TAP, UP), episode("2", "A", Type("milk"), DONE), episode("1", "B", DONE)]


def test_our_verdicts_score_alike(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    said = ("tap at 20 30", "complete")
    verdicts = evaluate(Scripted(lambda history: said[len(history.steps) % 2]), EPISODES, path)
    rows = of_verdicts(path, EPISODES)
    assert score(rows, "aitw").overall == pytest.approx(summarise(verdicts).overall.partial)
    assert is_verdicts(path)
    for other in (EPISODES[:2], EPISODES[::-1]):
        with pytest.raises(ValueError, match="is about 5 steps, the data has"):
            of_verdicts(path, other)


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def row(episode: str, t: int, answer: str, **more: str) -> dict[str, object]:
    return {"episode": episode, "t": t, "answer": answer, **more}


def test_answers_of_another_tool(tmp_path: Path) -> None:
    rows = [
        row("1", 0, '{"action_type": 4, "click_point": (0.3,0.2)}', subset="A"),
        row("1", 0, '{"action_type": 10}', subset="B"),
    ]
    rows += [row("2", 1, '{"action_type": 10}'), row("2", 0, "I would type milk")]
    path = write(tmp_path / "said.jsonl", rows)
    assert not is_verdicts(path)
    found = of_another(path, EPISODES, "seeclick", (1, 1), 100)
    assert [one.guess for one in found] == [Tap(Point(0.2, 0.3)), None, None, DONE, DONE]
    assert [one.missing for one in found] == [False, True, False, False, False]
    assert [one.index for one in found] == [0, 0, 1, 1, 2]
    assert score(found, "seeclick").overall == pytest.approx((2 / 4 + 1) / 2)
    assert score(found, "seeclick", True).overall == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row("9", 0, "complete")], r"answers step 0 of episode '9', which the data has not \(1 such rows\)"),
        ([row("1", 7, "complete", subset="B")], "answers step 7 of episode '1' of B, which the data has not"),
        (
            [row("2", 0, "complete"), row("2", 0, "complete")],
            "line 2: a second answer to step 0 of episode '2'",
        ),
        (["{"], "line 1: expected"),
        (["[]"], "line 1: expected"),
        ([{"episode": "1", "t": 0}], "line 1: expected"),
        ([row("2", 0, "complete"), {"episode": 1, "t": 0, "answer": "x"}], "line 2: expected"),
        ([{"episode": "1", "t": True, "answer": "x"}], "line 1: expected"),
    ],
)
def test_bad_files_of_answers(rows: list[object], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        of_another(write(tmp_path / "said.jsonl", rows), EPISODES, "ours", (1, 1), 100)


def test_prepared_data_is_read_without_its_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Prepared.open(prepare(tmp_path / "data", EPISODES)).episodes("train")
    monkeypatch.setattr("uivlm.sentences.store.decode_image", lambda _: pytest.fail("a screen is read"))
    path = write(tmp_path / "said.jsonl", [row("2", 1, "complete")])
    found = of_another(path, given, "ours", (1, 1), 100)
    assert len(found) == 5
    assert np.allclose(found[0].boxes, boxes_of(EPISODES[0].steps[0].screen))

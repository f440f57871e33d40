"""AITW's matching: the verdicts of the released code, and the rules one by one."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN, ROOT
from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.aitw import to_aitw
from uivlm.actions.matching import enlarge_boxes, fields_match, fields_match_batch, matches, usable_boxes
from uivlm.episodes.episode import Element, Screen, boxes_of

HERE = ROOT / "tests" / "golden"
NAN = float("nan")


def verdict(row: dict, swapped: bool = False) -> bool:
    a, b = (row["a2"], row["a1"]) if swapped else (row["a1"], row["a2"])
    return fields_match(
        a["touch_yx"], a["lift_yx"], a["type"], b["touch_yx"], b["lift_yx"], b["type"], row["boxes"]
    )


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    with (GOLDEN / "aitw_matching.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def test_golden_verdicts(rows: list[dict]) -> None:
    counted = [row for row in rows if row["match"] is not None and not row["edge"]]
    wrong = [row["id"] for row in counted if verdict(row) != row["match"]]
    assert counted, "the golden file holds no row that decides anything"
    assert wrong == []
    assert {row["match"] for row in counted} == {True, False}


def test_golden_edge_rows(rows: list[dict]) -> None:
    """Decided by the last bit of a float32, so counted apart. In our own copy of the file all agree."""
    edge = [row for row in rows if row["match"] is not None and row["edge"]]
    wrong = [row["id"] for row in edge if verdict(row) != row["match"]]
    print(f"\nedge rows: {len(edge) - len(wrong)} of {len(edge)} as the reference; differing: {wrong}")
    if GOLDEN.resolve() == HERE.resolve():
        assert len(edge) == 49
        assert len([row for row in rows if row["match"] is not None]) == 3143
        assert wrong == []


def all_at_once(rows: list[dict]) -> list[bool]:
    fields = [
        [row[a][name] for row in rows] for a in ("a1", "a2") for name in ("touch_yx", "lift_yx", "type")
    ]
    return fields_match_batch(*fields, [row["boxes"] for row in rows]).tolist()


def test_all_at_once_is_one_by_one(rows: list[dict]) -> None:
    """Edges, NaN and rows on which the reference raised among them."""
    assert all_at_once(rows) == [verdict(row) for row in rows]
    assert all_at_once(rows[:1]) == [verdict(rows[0])]
    assert fields_match_batch([], [], [], [], [], [], []).tolist() == []
    random = np.random.default_rng(0)
    many = [
        {
            **{
                a: {
                    "touch_yx": at,
                    "lift_yx": at + random.normal(0, 0.03, 2),
                    "type": int(random.choice([4, 4, 4, 3, 5])),
                }
                for a, at in (("a1", random.random(2)), ("a2", random.random(2)))
            },
            "boxes": random.random((random.integers(5), 4)) / 2,
        }
        for _ in range(5000)
    ]
    found = all_at_once(many)
    assert found == [verdict(row) for row in many]
    assert 500 < sum(found) < 4500


def test_rows_where_the_reference_raised(rows: list[dict]) -> None:
    raised = [row for row in rows if row["match"] is None]
    print(
        f"\nthe reference raised on {len(raised)} rows: {Counter(row['reference_error'] for row in raised)}"
    )
    for row in raised:
        assert verdict(row) in (True, False)
        if row["a1"]["type"] != 4 or row["a2"]["type"] != 4:
            assert verdict(row) == (row["a1"]["type"] == row["a2"]["type"])


def test_matching_is_symmetric(rows: list[dict]) -> None:
    assert [row["id"] for row in rows if verdict(row) != verdict(row, swapped=True)] == []


def test_every_row_matches_itself(rows: list[dict]) -> None:
    for row in rows:
        assert verdict({**row, "a2": row["a1"]})


def tap(y: float, x: float) -> Tap:
    return Tap(Point(y, x))


def swipe(y0: float, x0: float, y1: float, x1: float) -> Swipe:
    return Swipe(Point(y0, x0), Point(y1, x1))


BOX = [[0.4, 0.4, 0.1, 0.2]]  # enlarged: y 0.33..0.57, x 0.26..0.74


@pytest.mark.parametrize(
    ("a", "b", "boxes", "match"),
    [
        (Type("a"), Type("b"), [], True),
        (Finish("complete"), Finish("impossible"), [], False),
        (Press("back"), Press("home"), [], False),
        (tap(0.5, 0.5), Type("a"), [], False),
        (tap(0.5, 0.5), swipe(0.5, 0.5, 0.1, 0.5), [], False),
        (tap(0.5, 0.5), swipe(0.5, 0.5, 0.51, 0.5), [], True),  # a swipe that short is a tap
        (tap(0.5, 0.5), tap(0.59, 0.6), [], True),  # 0.1345
        (tap(0.5, 0.5), tap(0.6, 0.6), [], False),  # 0.1414
        (tap(0.45, 0.28), tap(0.45, 0.72), BOX, True),
        (tap(0.34, 0.28), tap(0.56, 0.72), BOX, True),
        (tap(0.32, 0.28), tap(0.56, 0.72), BOX, False),  # above
        (tap(0.34, 0.25), tap(0.56, 0.72), BOX, False),  # left
        (tap(0.45, 0.28), tap(0.45, 0.72), np.zeros((0, 4)), False),
        (tap(0.0, 0.5), tap(0.23, 0.5), [[0.0, 0.4, 0.1, 0.2]], True),  # clipped at 0, height kept: to 0.24
        (tap(0.0, 0.5), tap(0.25, 0.5), [[0.0, 0.4, 0.1, 0.2]], False),
        (tap(0.1, 0.1), tap(0.9, 0.9), [[0.05, 0.05, 0.1, 0.1], [0.85, 0.85, 0.1, 0.1]], False),  # two boxes
        (swipe(0.8, 0.5, 0.2, 0.5), swipe(0.1, 0.1, 0.2, 0.15), [], True),  # sign and length do not count
        (swipe(0.8, 0.5, 0.2, 0.5), swipe(0.5, 0.1, 0.5, 0.9), [], False),
        (swipe(0.25, 0.25, 0.5, 0.5), swipe(0.1, 0.1, 0.9, 0.1), [], True),  # a tie is y
        (swipe(0.25, 0.25, 0.5, 0.5), swipe(0.1, 0.1, 0.1, 0.9), [], False),
        (tap(NAN, 0.5), tap(NAN, 0.5), [], True),
        (tap(NAN, 0.5), swipe(0.1, 0.5, 0.9, 0.5), [], True),  # NaN: a swipe along the NaN's axis
        (tap(0.5, NAN), swipe(0.1, 0.5, 0.9, 0.5), [], False),
        (tap(NAN, 0.5), tap(0.5, 0.5), BOX, False),
        (tap(0.1, 0.1), tap(0.9, 0.9), [[NAN, NAN, NAN, NAN]], False),
        (tap(-1.0, -1.0), tap(-1.0, -1.0), [], True),
        (tap(1e300, 0.5), tap(0.5, 0.5), BOX, False),
    ],
)  # fmt: skip
def test_rules(a: Action, b: Action, boxes: object, match: bool) -> None:
    assert matches(a, b, boxes) is match
    assert matches(b, a, boxes) is match
    (type_a, *points_a, _), (type_b, *points_b, _) = to_aitw(a), to_aitw(b)
    (fields_a, fields_b) = ([[point] for point in points] for points in (points_a, points_b))
    assert fields_match_batch(*fields_a, [type_a], *fields_b, [type_b], [boxes]).tolist() == [match]


def test_enlarged_box() -> None:
    assert enlarge_boxes(BOX)[0] == pytest.approx([0.33, 0.26, 0.57, 0.74], abs=1e-6)
    assert enlarge_boxes([[0.0, 0.9, 0.5, 0.1]])[0] == pytest.approx([0.0, 0.83, 1.0, 1.07], abs=1e-6)
    assert enlarge_boxes([]).shape == (0, 4)


@pytest.mark.parametrize(
    "box", [[100, 40, 60, 20], [0, 0, 1.01, 0.1], [0.2, 0.2, 0.9, -0.01], [0.0, 0.0, np.nan, 1], [0, 0, 2, 2]]
)
def test_unusable_boxes_contain_no_point(box: list[float]) -> None:
    """They are left out alone: the distance and the other boxes decide as without them."""
    near, far = tap(0.45, 0.5), tap(0.9, 0.9)
    assert usable_boxes([BOX[0], box]).tolist() == [True, False]
    for a, b in ((near, near), (near, tap(0.36, 0.7)), (near, far), (far, tap(0.6, 0.9))):
        for boxes in ([box], [box, BOX[0]], [BOX[0], box]):
            others = [other for other in boxes if other is not box]
            assert matches(a, b, boxes) == matches(a, b, others)
            fields = (to_aitw(action) for action in (a, b))
            (type_a, touch_a, lift_a, _), (type_b, touch_b, lift_b, _) = fields
            batch = fields_match_batch([touch_a], [lift_a], [type_a], [touch_b], [lift_b], [type_b], [boxes])
            assert batch.tolist() == [matches(a, b, others)]
    assert not matches(near, far, [box]), "in the original such a box may hold the whole screen"


@pytest.mark.parametrize(("box", "clipped"), [
    ([0.4, 0.4, 0.1, 1.0000001], [0.4, 0.4, 0.1, 1]),
    ([0.4, 0.4, 1.009, 0.2], [0.4, 0.4, 1, 0.2]),
    ([0.4, 0.4, 0.1, -0.009], [0.4, 0.4, 0.1, 0]),
])  # fmt: skip
def test_a_box_that_is_a_hair_off_is_clipped(box: list[float], clipped: list[float]) -> None:
    assert usable_boxes([box]).all()
    assert enlarge_boxes([box]).tolist() == enlarge_boxes([clipped]).tolist()


def test_boxes_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="y, x, height, width"):
        matches(tap(0.5, 0.5), tap(0.9, 0.9), [0.1, 0.1, 0.1, 0.1])


def test_boxes_of_a_screen() -> None:
    pixels = np.zeros((4, 2, 3), np.uint8)
    screen = Screen(pixels, (Element(0.4, 0.3, 0.1, 0.2, "ok"), Element(0.0, 0.1, 0.05, 0.06, "", "ICON_X")))
    assert boxes_of(screen).tolist() == [[0.4, 0.3, 0.1, 0.2], [0.0, 0.1, 0.05, 0.06]]
    assert boxes_of(Screen(pixels)).shape == (0, 4)

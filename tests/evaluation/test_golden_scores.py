"""`uivlm score` on one set of golden answers: the table of all protocols, computed by hand.

The rules by hand are those of the peers' code, by file and function:

- njucckevin/SeeClick: agent_tasks/aitw_test.py (its loop); agent_tasks/action_matching.py, `action_2_format`
  and `pred_2_format` (lower case, four strokes), `check_actions_match` (raises without boxes)
- showlab/ShowUI: main/eval_aitw.py, `validate_aitw`; main/utils_aitw.py, `action2json` and `pred2json_post`
- cooelf/Auto-GUI: main.py, the loop after `trainer.predict`; utils_data.py for the recorded actions
- IMNearth/CoAT (AITZ): coat/evaluate.py, `ActionEvaluator.__call__`, `_check_click_`, `_parse_answer_`
- OS-Copilot/OS-Atlas: eval/eval_scripts/android_control/evaluation_unify.py, `evaluate` (the distance)
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.episodes import make_episode
from tests.helpers.tiny_models import prepare
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.cli import main
from uivlm.cli.options import stdout_console
from uivlm.episodes.episode import Element, Episode, Screen

Score = Callable[[list[Episode]], str]

UP, LEFT = Swipe(Point(0.8, 0.5), Point(0.2, 0.5)), Swipe(Point(0.5, 0.9), Point(0.5, 0.1))
IN_BOX, OUTSIDE = Tap(Point(0.15, 0.3)), Tap(Point(0.6, 0.5))  # the box: y 0.1 to 0.2, x 0.1 to 0.5
# (subset, episode): recorded action and answer of each step. The screen of the first step of 2 has no box.
STEPS = {
    ("A", "1"): [
        (IN_BOX, "tap at 15 30"),
        (Type("Clock"), 'Input text "clock"'),
        (Type("milk"), 'Input text ""'),
        (Type("shoes"), "tap at 15 30"),
    ],
    ("A", "2"): [(Press("home"), "press home"), (LEFT, "swipe from 80 50 to 20 50"), (UP, "I would scroll")],
    ("B", "3"): [
        (OUTSIDE, None),
        (OUTSIDE, "tap at 70 50"),
        (Finish("impossible"), "complete"),
        (UP, "swipe from 20 50 to 80 50"),
    ],
}
# By hand, which steps are right (1, wrong 0, not counted -):
#                            A: episode 1, 2   B: episode 3
#   aitw                     1110 100          0101
#   aitw, as released        1110 -00          0101   no box: no verdict
#   autoui                   1110 100          0101
#   autoui, as released      1110 011          0101   no box: wrong; left has the points of up; the unreadable
#                                                     and the missing answer repeat "swipe up"
#   seeclick, showui         1110 100          0101
#     as released            1110 000          -101   no box: unreadable, and wrong; missing: left out
#   aitz                     1000 100          0110   "clock" is not in "Clock", and their ratio is 0.8
#   aitz, as released        0010 100          0010   taps are scored at (0, 0); an empty text is right
#   androidcontrol           1100 100          0100
# Overall, difference by rules and by mean (points), steps, missing, unreadable, and the other metrics in %.
# A mean per episode of A: (3/4 + 1/3) / 2 = 13/24, and so on.
AITW = 100 * (13 / 24 + 1 / 2) / 2
TABLE: dict[str, tuple[float, float, float, int, int, int, dict[str, float]]] = {
    "aitw": (AITW, 0, 0, 11, 1, 1, {}),
    "autoui": (100 * (4 / 7 + 2 / 4) / 2, 0, 100 * (15 / 28 - 25 / 48), 11, 1, 1,
               {"type": 100 * 7 / 11, "text": 100 * 5 / 11}),
    "seeclick": (100 * (4 / 7 + 2 / 4) / 2, 0, 100 * (15 / 28 - 25 / 48), 11, 1, 1,
                 {"type": 100 * 7 / 11, "click": 100 * 2 / 3, "scroll": 100 / 3, "text": 100 / 3}),
    "showui": (100 * (4 / 7 + 2 / 4) / 2, 0, 100 * (15 / 28 - 25 / 48), 11, 1, 1,
               {"type": 100 * 7 / 11, "click": 100 * 2 / 3, "scroll": 100 / 3, "text": 100 / 3}),
    "aitz": (100 * 4 / 11, 100 * ((7 / 24 + 1 / 2) / 2 - 25 / 48), 100 * (4 / 11 - 19 / 48), 11, 1, 1,
             {"complete_match": 0, "goal_progress": 100 * (1 / 4 + 1 / 3 + 0) / 3}),
    "androidcontrol": (100 * 4 / 11, 100 * ((5 / 12 + 1 / 4) / 2 - 25 / 48), 100 * (4 / 11 - 1 / 3), 11, 1, 1,
                       {"taps_by_distance": 100 * 2 / 3}),
    "aitw, as released": (100 * (3 / 8 + 1 / 2) / 2, 100 * (7 / 16 - 25 / 48), 0, 10, 1, 1, {}),
    "autoui, as released": (100 * (5 / 7 + 2 / 4) / 2, 100 * ((17 / 24 + 1 / 2) / 2 - 25 / 48),
                            100 * (17 / 28 - 29 / 48), 11, 0, 0,
                            {"type": 100 * 9 / 11, "text": 100 * 7 / 11}),
    "seeclick, as released": (100 * (3 / 7 + 2 / 3) / 2, 100 * ((3 / 8 + 2 / 3) / 2 - 25 / 48),
                              100 * (23 / 42 - 25 / 48), 10, 0, 2,
                              {"type": 100 * 6 / 10, "click": 100, "scroll": 50, "text": 100}),
    "showui, as released": (100 * (3 / 7 + 2 / 3) / 2, 100 * ((3 / 8 + 2 / 3) / 2 - 25 / 48),
                            100 * (23 / 42 - 25 / 48), 10, 0, 2,
                            {"type": 100 * 6 / 10, "click": 100, "scroll": 50, "text": 100}),
    "aitz, as released": (100 * 3 / 11, 100 * ((7 / 24 + 1 / 4) / 2 - 25 / 48), 100 * (3 / 11 - 13 / 48), 11,
                          1, 1, {"complete_match": 0, "goal_progress": 100 * (0 + 1 / 3 + 0) / 3}),
}  # fmt: skip
SURPLUS = {"episode": "3", "step": 9, "answer": "complete"}  # an answer to a step that the data lacks


def episodes() -> list[Episode]:
    made = [make_episode(name, subset, *(gold for gold, _ in rows)) for (subset, name), rows in STEPS.items()]
    first, *rest = made[1].steps
    without_box = replace(first, screen=Screen(first.screen.pixels))
    return [made[0], replace(made[1], steps=(without_box, *rest)), made[2]]


ROW = re.compile(
    r"([a-z]+(?:, as released)?) +([0-9.]+) +([-+][0-9.]+) +([-+][0-9.]+) +(\d+) +(\d+) +(\d+) +(\d+)(.*)"
)


def table_rows(output: str) -> dict[str, list[str]]:
    """Protocol -> the other cells of its row."""
    rows = [ROW.fullmatch(line.strip()) for line in output.splitlines()]
    return {row[1]: [cell.strip() for cell in row.groups()[1:]] for row in rows if row}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {"episode": name, "step": t, "answer": answer}
        for (_, name), steps in STEPS.items()
        for t, (_, answer) in enumerate(steps)
        if answer is not None
    ]
    path = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, SURPLUS]))
    return path


@pytest.fixture
def score(
    answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Score:
    """What `uivlm score` prints about the golden answers, with the given episodes as its data."""

    def run(recorded: list[Episode]) -> str:
        data = prepare(tmp_path / "data", recorded)
        monkeypatch.setattr(sys, "argv", ["uivlm", "score", str(answers), str(data), "--split", "train"])
        monkeypatch.setattr(stdout_console, "width", 200)
        with pytest.raises(SystemExit) as ended:
            main.main()
        output = capsys.readouterr()
        assert not ended.value.code, output.err
        return output.out

    return run


def test_the_table_of_all_protocols(score: Score) -> None:
    output = score(episodes())
    printed = table_rows(output)
    assert list(printed) == list(TABLE), output
    for protocol, (overall, rules, mean, steps, missing, unreadable, metrics) in TABLE.items():
        cells = printed[protocol]
        rates = [float(cell) for cell in cells[:3]]
        assert rates == pytest.approx([overall, rules, mean], abs=0.0501), protocol
        assert [int(cell) for cell in cells[3:7]] == [steps, missing, unreadable, 1], protocol
        shown = dict(cell.rsplit(" ", 1) for cell in (cells[7].split(", ") if metrics else ()))
        assert {name: float(rate) for name, rate in shown.items()} == pytest.approx(metrics, abs=0.0501)


def test_an_unusable_box_changes_no_score_and_is_named(score: Score) -> None:
    """A box in pixels, on the screen of a tap: it would hold all points."""
    *others, recorded = episodes()
    first, tapped, *rest = recorded.steps
    elements = (*tapped.screen.elements, Element(0, 0, 300.0, 200.0, "pixels"))
    wrong = replace(tapped, screen=Screen(tapped.screen.pixels, elements))
    output = score([*others, replace(recorded, steps=(first, wrong, *rest))])
    printed = table_rows(output)
    for protocol, (overall, *_, metrics) in TABLE.items():
        assert float(printed[protocol][0]) == pytest.approx(overall, abs=0.0501), protocol
        for name, rate in metrics.items():
            assert f"{name} {rate:.1f}" in printed[protocol][7]
    note = (
        "not fractions of the screen: 1 on 1 screens, first at step 1 of episode '3'. Prepare the data again"
    )
    assert note in output

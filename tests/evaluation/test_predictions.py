"""Files of predictions: our verdicts, and the answers of another tool."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.episodes import DONE, SWIPE_UP, TAP, make_episode
from tests.helpers.scripted_agents import TextAgent
from tests.helpers.tiny_models import prepare
from uivlm.actions.action import Point, Tap, Type
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import boxes_of
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.offline import evaluate
from uivlm.evaluation.predictions import is_verdicts_file, load_foreign, load_verdicts
from uivlm.evaluation.protocols.score import score_protocol

EPISODES = [
    make_episode("1", "A", TAP, SWIPE_UP),
    make_episode("2", "A", Type("milk"), DONE),
    make_episode("1", "B", DONE),
]


def test_our_verdicts_give_the_same_score(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    texts = ("tap at 20 30", "complete")
    verdicts = evaluate(TextAgent(lambda history: texts[len(history.steps) % 2]), EPISODES, path)
    rows = load_verdicts(path, EPISODES)
    assert score_protocol(rows, "aitw").overall == pytest.approx(summarize(verdicts).overall.partial_match)
    assert is_verdicts_file(path)
    for other in (EPISODES[:2], EPISODES[::-1]):
        with pytest.raises(ValueError, match="got verdicts on 5 steps; expected the . steps of the data"):
            load_verdicts(path, other)


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def row(episode: str, step: int, answer: str, **fields: str) -> dict[str, object]:
    return {"episode": episode, "step": step, "answer": answer, **fields}


def test_answers_of_another_tool(tmp_path: Path) -> None:
    rows = [
        row("1", 0, '{"action_type": 4, "click_point": (0.3,0.2)}', subset="A"),
        row("1", 0, '{"action_type": 10}', subset="B"),
    ]
    rows += [row("2", 1, '{"action_type": 10}'), row("2", 0, "I would type milk")]
    path = write(tmp_path / "answers.jsonl", rows)
    assert not is_verdicts_file(path)
    predictions = load_foreign(path, EPISODES, "seeclick", (1, 1), 100).predictions
    assert [prediction.predicted for prediction in predictions] == [
        Tap(Point(0.2, 0.3)),
        None,
        None,
        DONE,
        DONE,
    ]
    assert [prediction.missing for prediction in predictions] == [False, True, False, False, False]
    assert [prediction.episode_index for prediction in predictions] == [0, 0, 1, 1, 2]
    assert score_protocol(predictions, "seeclick").overall == pytest.approx((2 / 4 + 1) / 2)
    assert score_protocol(predictions, "seeclick", True).overall == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("9", 0, "complete")], "jsonl: got 1 answers; expected some to the 5 steps of the data"),
        ([row("1", 7, "complete", subset="B")], "jsonl: got 1 answers; expected some to the 5 steps"),
        (
            [row("2", 0, "complete"), row("1", 0, "complete")],
            "jsonl:2: subset: got none; expected one of A, B, since each has an episode '1'",
        ),
        (
            [row("2", 0, "complete", subset="A"), row("2", 0, "complete")],
            "jsonl:2: a second answer to step 0 of episode '2'",
        ),
        (
            [row("2", 0, "complete"), row("2", 0, "complete")],
            "jsonl:2: a second answer to step 0 of episode '2'",
        ),
        (["{"], "jsonl:1: expected"),
        (["[]"], "jsonl:1: expected"),
        ([{"episode": "1", "step": 0}], "jsonl:1: expected"),
        ([{"episode": "1", "t": 0, "answer": "x"}], 'jsonl:1: expected .*"step"'),
        ([row("2", 0, "complete"), {"episode": 1, "step": 0, "answer": "x"}], "jsonl:2: expected"),
        ([{"episode": "1", "step": True, "answer": "x"}], "jsonl:1: expected"),
    ],
)
def test_bad_files_of_answers(rows: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_foreign(write(tmp_path / "answers.jsonl", rows), EPISODES, "ours", (1, 1), 100)


def test_an_error_does_not_repeat_a_huge_id(tmp_path: Path) -> None:
    for rows in ([row("9" * 10**6, 0, "complete")], [row("1", 7, "complete", subset="B" * 10**6)],
                 [row("9" * 10**6, 0, "complete")] * 2):  # fmt: skip
        with pytest.raises(ValueError, match="answers.jsonl") as refused:
            load_foreign(write(tmp_path / "answers.jsonl", rows), EPISODES, "ours", (1, 1), 100)
        assert len(str(refused.value)) < 500


def test_missing_unreadable_and_surplus_answers_are_counted_apart(tmp_path: Path) -> None:
    """Five steps: one right, two unreadable, two without an answer; three answers to other steps."""
    rows = [row("2", 1, "complete"), row("2", 0, "I would type milk"), row("1", 0, "?", subset="B")]
    rows += [row("2", 2, "complete"), row("9", 0, "complete"), row("1", 5, "complete", subset="A")]
    foreign = load_foreign(write(tmp_path / "answers.jsonl", rows), EPISODES, "ours", (1, 1), 100)
    assert foreign.num_surplus == 3
    score = score_protocol(foreign.predictions, "aitw")
    assert (score.num_steps, score.num_missing, score.num_unreadable) == (5, 2, 2)
    assert score.overall == pytest.approx((1 / 4 + 0) / 2)
    score = score_protocol(foreign.predictions, "seeclick", True)
    assert (score.num_steps, score.num_missing, score.num_unreadable) == (3, 0, 2)


def test_an_empty_file_of_answers_is_refused(tmp_path: Path) -> None:
    for content in ("", "\n \n"):
        path = tmp_path / "answers.jsonl"
        path.write_text(content)
        with pytest.raises(ValueError, match="jsonl: got an empty file; expected"):
            is_verdicts_file(path)
        with pytest.raises(ValueError, match="jsonl: got 0 answers; expected some to the 5 steps"):
            load_foreign(path, EPISODES, "ours", (1, 1), 100)


def test_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "answers.jsonl", ["", row("2", 1, "complete"), "  ", "{"])
    path.write_text("\ufeff" + path.read_text(), "utf-8")
    assert not is_verdicts_file(path)
    with pytest.raises(ValueError, match="jsonl:4: expected"):  # lines are counted as an editor does
        load_foreign(path, EPISODES, "ours", (1, 1), 100)
    path.write_text(path.read_text("utf-8").removesuffix("{\n"), "utf-8")
    predictions = load_foreign(path, EPISODES, "ours", (1, 1), 100).predictions
    assert [prediction.predicted for prediction in predictions] == [None, None, None, DONE, None]


def test_prepared_data_is_read_without_its_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = PreparedData.open(prepare(tmp_path / "data", EPISODES)).episodes("train")
    monkeypatch.setattr("uivlm.episodes.rows.decode_image", lambda _: pytest.fail("a screen was read"))
    path = write(tmp_path / "answers.jsonl", [row("2", 1, "complete")])
    predictions = load_foreign(path, episodes, "ours", (1, 1), 100).predictions
    assert len(predictions) == 5
    assert predictions[0].boxes.shape == (1, 4)
    assert np.allclose(predictions[0].boxes, boxes_of(EPISODES[0].steps[0].screen))

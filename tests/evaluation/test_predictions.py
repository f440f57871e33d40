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
    predictions = load_foreign(path, EPISODES, "seeclick", (1, 1), 100)
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
        ([row("9", 0, "complete")], r"step 0 of episode '9' is not in the data \(1 such rows\)"),
        ([row("1", 7, "complete", subset="B")], "step 7 of episode '1' of B is not in the data"),
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
        with pytest.raises(ValueError, match="episode '") as refused:
            load_foreign(write(tmp_path / "answers.jsonl", rows), EPISODES, "ours", (1, 1), 100)
        assert len(str(refused.value)) < 500


def test_prepared_data_is_read_without_its_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = PreparedData.open(prepare(tmp_path / "data", EPISODES)).episodes("train")
    monkeypatch.setattr("uivlm.episodes.rows.decode_image", lambda _: pytest.fail("a screen was read"))
    path = write(tmp_path / "answers.jsonl", [row("2", 1, "complete")])
    predictions = load_foreign(path, episodes, "ours", (1, 1), 100)
    assert len(predictions) == 5
    assert np.allclose(predictions[0].boxes, boxes_of(EPISODES[0].steps[0].screen))

"""Predictions in a file become rows for the protocols: our verdicts, or the answers of another tool's model.

In: a file and the recorded episodes that it is about. Out: one StepPrediction for every recorded step, in the
order of the data. A step without an answer counts as wrong. A file of another tool is JSONL, one line a
step:

    {"episode": "1234", "step": 0, "answer": "the model's output"}

`step` counts from 0. "subset" is optional; it is needed if episode ids are not unique without it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from uivlm.actions.action import Action, InvalidAction
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.episode import Episode, boxes_of
from uivlm.evaluation.answer_formats import parse_answer
from uivlm.evaluation.names import AnswerFormat
from uivlm.evaluation.protocols.prediction import StepPrediction
from uivlm.evaluation.verdict import read_verdicts

PredictionKey = tuple[str, str, int]  # subset ("" if the row has none), episode, step
EXPECTED_ROW = 'expected {"episode": text, "step": number, "answer": text}'


def load_verdicts(path: Path, episodes: Sequence[Episode]) -> list[StepPrediction]:
    """The predictions of a `verdicts.jsonl`. Raises ValueError if it is about other episodes."""
    verdicts = read_verdicts(path)
    steps = list(_iter_steps(episodes))
    verdict_keys = [(v.episode_index, v.subset, v.episode, v.step) for v in verdicts]
    if verdict_keys != [(i, episode.subset, episode.id, t) for i, episode, t in steps]:
        raise ValueError(
            f"{path}: got verdicts on {len(verdicts)} steps; expected the {len(steps)} steps of the data. "
            "Pass the data, --split, --subset and --max-episodes that it was made with"
        )
    return [
        _prediction(i, episode, t, v.predicted, v.error == "skipped")
        for v, (i, episode, t) in zip(verdicts, steps, strict=True)
    ]


def load_foreign(
    path: Path,
    episodes: Sequence[Episode],
    answer_format: AnswerFormat,
    coordinate_range: tuple[int, int],
    num_bins: int,
) -> list[StepPrediction]:
    """The predictions in a file of another tool; for `coordinate_range` see `answer_formats.parse_answer`.

    Raises ValueError, with the line, for a bad row, a second answer to a step, and a step that the data
    lacks.
    """
    answers = dict(_read_answers(path))
    predictions = []
    for i, episode, t in _iter_steps(episodes):
        text = answers.pop((episode.subset, episode.id, t), None)
        if text is None:
            text = answers.pop(("", episode.id, t), None)
        action = None if text is None else parse_answer(text, answer_format, coordinate_range, num_bins)
        predicted = None if isinstance(action, InvalidAction) else action
        predictions.append(_prediction(i, episode, t, predicted, text is None))
    if answers:
        subset, episode_id, t = next(iter(answers))
        raise ValueError(
            f"{path}: step {t} of episode {episode_id!r:.80}{f' of {subset:.80}' if subset else ''} is not "
            f"in the data ({len(answers)} such rows). Pass the data and --split that it was made with"
        )
    return predictions


def is_verdicts_file(path: Path) -> bool:
    """Whether the file holds our verdicts, by its first line."""
    try:
        with path.open(encoding="utf-8") as lines:
            first = json.loads(next(lines, "{}"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected one JSON object a line ({error})") from None
    return isinstance(first, dict) and ("version" in first or "gold" in first)  # "gold": of uivlm 0.1


def _iter_steps(episodes: Sequence[Episode]) -> Iterator[tuple[int, Episode, int]]:
    for i in range(len(episodes)):
        episode = episodes.without_screens(i) if isinstance(episodes, PreparedEpisodes) else episodes[i]
        for t in range(len(episode.steps)):
            yield i, episode, t


def _prediction(
    index: int, episode: Episode, t: int, predicted: Action | None, missing: bool
) -> StepPrediction:
    step = episode.steps[t]
    return StepPrediction(index, episode.subset, step.action, boxes_of(step.screen), predicted, missing)


def _read_answers(path: Path) -> Iterator[tuple[PredictionKey, str]]:
    keys = set()
    with path.open(encoding="utf-8") as lines:
        for i, line in enumerate(lines, 1):
            key, text = _parse_row(line, f"{path}:{i}")
            if key in keys:
                raise ValueError(f"{path}:{i}: a second answer to step {key[2]} of episode {key[1]!r:.80}")
            keys.add(key)
            yield key, text


def _parse_row(line: str, location: str) -> tuple[PredictionKey, str]:
    try:
        row: Any = json.loads(line)
        key = str(row.get("subset", "")), row["episode"], row["step"]
        text = row["answer"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{location}: {EXPECTED_ROW} ({type(error).__name__}: {error})") from None
    if not (isinstance(key[1], str) and type(key[2]) is int and isinstance(text, str)):
        raise ValueError(f"{location}: {EXPECTED_ROW}")
    return key, text

"""Predictions in a file become rows for the protocols: our verdicts, or the answers of another tool's model.

In: a file and the recorded episodes that it is about. Out: one StepPrediction for every recorded step, in the
order of the data. A step without an answer counts as wrong. A file of another tool is JSONL in UTF-8, one
line a step:

    {"episode": "1234", "step": 0, "answer": "the model's output"}

`step` counts from 0. "subset" is required for an episode id that several subsets have. Blank lines and a byte
order mark are ignored.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uivlm.actions.action import Action, InvalidAction
from uivlm.actions.matching import usable_boxes
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.episode import Episode, boxes_of
from uivlm.evaluation.answer_formats import parse_answer
from uivlm.evaluation.names import AnswerFormat
from uivlm.evaluation.protocols.prediction import StepPrediction
from uivlm.evaluation.verdict import read_verdicts

StepKey = tuple[str, str, int]  # subset, episode, step
EXPECTED_ROW = 'expected {"episode": text, "step": number, "answer": text}'


@dataclass(frozen=True, slots=True)
class ForeignPredictions:
    """One prediction for every recorded step, and the number of answers to steps that the data lacks."""

    predictions: list[StepPrediction]
    num_surplus: int


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
) -> ForeignPredictions:
    """The predictions in a file of another tool; for `coordinate_range` see `answer_formats.parse_answer`.

    Raises ValueError for a file without any answer to a step of the data. Raises it, with the line, for a bad
    row, a second answer to a step, and a row without the subset that its episode id needs.
    """
    answers = _read_answers(path, _subsets_by_id(episodes))
    predictions = []
    for i, episode, t in _iter_steps(episodes):
        text = answers.pop((episode.subset, episode.id, t), None)
        action = None if text is None else parse_answer(text, answer_format, coordinate_range, num_bins)
        predicted = None if isinstance(action, InvalidAction) else action
        predictions.append(_prediction(i, episode, t, predicted, text is None))
    if all(prediction.missing for prediction in predictions):
        raise ValueError(
            f"{path}: got {len(answers)} answers; expected some to the {len(predictions)} steps of the data. "
            "Pass the data, --split, --subset and --max-episodes that they were made with"
        )
    return ForeignPredictions(predictions, len(answers))


def describe_unusable_boxes(predictions: Sequence[StepPrediction], episodes: Sequence[Episode]) -> str | None:
    """A sentence about the boxes that were left out, with the place of the first; None without any."""
    bad = [i for i, prediction in enumerate(predictions) if prediction.num_unusable_boxes]
    if not bad:
        return None
    index = predictions[bad[0]].episode_index
    t = sum(prediction.episode_index == index for prediction in predictions[: bad[0]])
    refs = episodes.refs if isinstance(episodes, PreparedEpisodes) else episodes
    num_boxes = sum(predictions[i].num_unusable_boxes for i in bad)
    return (
        f"left out boxes whose sizes are not fractions of the screen: {num_boxes} on {len(bad)} screens, "
        f"first at step {t} of episode {refs[index].id!r:.80}. Prepare the data again"
    )


def is_verdicts_file(path: Path) -> bool:
    """Whether the file holds our verdicts, by its first line. Raises ValueError for an empty file."""
    try:
        line = next((line for _, line in _iter_lines(path)), None)
        first = None if line is None else json.loads(line)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected one JSON object a line ({error})") from None
    if line is None:
        raise ValueError(f"{path}: got an empty file; {EXPECTED_ROW} on each line")
    return isinstance(first, dict) and ("version" in first or "gold" in first)  # "gold": of uivlm 0.1


def _subsets_by_id(episodes: Sequence[Episode]) -> dict[str, set[str]]:
    subsets: dict[str, set[str]] = {}
    for episode in episodes.refs if isinstance(episodes, PreparedEpisodes) else episodes:
        subsets.setdefault(episode.id, set()).add(episode.subset)
    return subsets


def _iter_steps(episodes: Sequence[Episode]) -> Iterator[tuple[int, Episode, int]]:
    for i in range(len(episodes)):
        episode = episodes.without_screens(i) if isinstance(episodes, PreparedEpisodes) else episodes[i]
        for t in range(len(episode.steps)):
            yield i, episode, t


def _prediction(
    index: int, episode: Episode, t: int, predicted: Action | None, missing: bool
) -> StepPrediction:
    step = episode.steps[t]
    boxes = boxes_of(step.screen)
    usable = usable_boxes(boxes)
    num_unusable = len(boxes) - int(usable.sum())
    return StepPrediction(index, episode.subset, step.action, boxes[usable], predicted, missing, num_unusable)


def _read_answers(path: Path, subsets: Mapping[str, Collection[str]]) -> dict[StepKey, str]:
    """The text of each answer. `subsets`: those of each episode id in the data."""
    answers: dict[StepKey, str] = {}
    for i, line in _iter_lines(path):
        location = f"{path}:{i}"
        subset, episode_id, t, text = _parse_row(line, location)
        known = subsets.get(episode_id, ())
        if subset is None and len(known) > 1:
            raise ValueError(
                f"{location}: subset: got none; expected one of {', '.join(sorted(known)):.200}, since each "
                f"has an episode {episode_id!r:.80}. Add it to every row of that id"
            )
        key = (next(iter(known), "") if subset is None else subset, episode_id, t)
        if key in answers:
            raise ValueError(f"{location}: a second answer to step {t} of episode {episode_id!r:.80}")
        answers[key] = text
    return answers


def _iter_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    with path.open(encoding="utf-8-sig") as lines:
        yield from ((i, line) for i, line in enumerate(lines, 1) if line.strip())


def _parse_row(line: str, location: str) -> tuple[str | None, str, int, str]:
    """Subset (None if the row has none), episode, step and answer."""
    try:
        row: Any = json.loads(line)
        subset, episode, t, text = row.get("subset"), row["episode"], row["step"], row["answer"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{location}: {EXPECTED_ROW} ({type(error).__name__}: {error})") from None
    if not (isinstance(episode, str) and type(t) is int and isinstance(text, str)):
        raise ValueError(f"{location}: {EXPECTED_ROW}")
    return None if subset is None else str(subset), episode, t, text

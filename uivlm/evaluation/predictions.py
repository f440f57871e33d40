"""Answers that are in a file become rows for the protocols: our own verdicts, or what another tool's model said.

In: a file and the recorded episodes that it is about. Out: one Answer for every recorded step, in the order of the data: a step
without an answer is there all the same, and wrong. A file of another tool is JSONL, one line a step:

    {"episode": "1234", "t": 0, "answer": "what the model said"}

`t` counts the steps of the episode from 0; "subset" may be told, where ids are not unique without it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from uivlm.actions.action import Action
from uivlm.actions.language import NotAnAction
from uivlm.episode import Episode
from uivlm.evaluation.dialects import parse
from uivlm.evaluation.match import boxes_of
from uivlm.evaluation.names import Dialect
from uivlm.evaluation.protocols.answer import Answer
from uivlm.evaluation.verdict import read_verdicts
from uivlm.sentences.store import Episodes

Key = tuple[str, str, int]  # subset ("" where it is not told), episode, t


def of_verdicts(path: Path, episodes: Sequence[Episode]) -> list[Answer]:
    """Of `verdicts.jsonl`. ValueError where it is about other episodes."""
    verdicts = read_verdicts(path)
    steps = list(_steps(episodes))
    if [(v.index, v.subset, v.episode, v.t) for v in verdicts] != [
        (i, one.subset, one.id, t) for i, one, t in steps
    ]:
        raise ValueError(
            f"{path} is about {len(verdicts)} steps, the data has {len(steps)} and others: name the data, split and limit "
            "that it was made with"
        )
    return [
        _answer(i, one, t, v.guess, v.error == "not asked")
        for v, (i, one, t) in zip(verdicts, steps, strict=True)
    ]


def of_another(
    path: Path, episodes: Sequence[Episode], dialect: Dialect, size: tuple[int, int], bins: int
) -> list[Answer]:
    """Of a file of another tool; `size`: height and width of what its coordinates count, see `dialects.parse`.

    ValueError with the line where a row is none, comes twice, or is about a step that the data has not.
    """
    said = dict(_read(path))
    found = []
    for i, one, t in _steps(episodes):
        words = said.pop((one.subset, one.id, t), None)
        if words is None:
            words = said.pop(("", one.id, t), None)
        answer = None if words is None else parse(words, dialect, size, bins=bins)
        guess = None if isinstance(answer, NotAnAction) else answer
        found.append(_answer(i, one, t, guess, words is None))
    if said:
        subset, episode, t = next(iter(said))
        raise ValueError(
            f"{path} answers step {t} of episode {episode!r}{f' of {subset}' if subset else ''}, which the data has not "
            f"({len(said)} such rows): name the data and split that it was made with"
        )
    return found


def is_verdicts(path: Path) -> bool:
    """Is it ours? By its first line."""
    try:
        with path.open(encoding="utf-8") as lines:
            first = json.loads(next(lines, "{}"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no file of answers, one JSON object a line ({error})") from None
    return isinstance(first, dict) and "gold" in first


def _steps(episodes: Sequence[Episode]) -> Iterator[tuple[int, Episode, int]]:
    for i in range(len(episodes)):
        one = episodes.unseen(i) if isinstance(episodes, Episodes) else episodes[i]
        for t in range(len(one.steps)):
            yield i, one, t


def _answer(index: int, of: Episode, t: int, guess: Action | None, missing: bool) -> Answer:
    step = of.steps[t]
    return Answer(index, of.subset, step.action, boxes_of(step.screen), guess, missing)


def _read(path: Path) -> Iterator[tuple[Key, str]]:
    seen = set()
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            key, words = _row(line, f"{path}, line {number}")
            if key in seen:
                raise ValueError(
                    f"{path}, line {number}: a second answer to step {key[2]} of episode {key[1]!r}"
                )
            seen.add(key)
            yield key, words


def _row(line: str, where: str) -> tuple[Key, str]:
    wanted = 'expected {"episode": text, "t": number, "answer": text}'
    try:
        row: Any = json.loads(line)
        key = str(row.get("subset", "")), row["episode"], row["t"]
        words = row["answer"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {wanted} ({type(error).__name__}: {error})") from None
    if not (isinstance(key[1], str) and type(key[2]) is int and isinstance(words, str)):
        raise ValueError(f"{where}: {wanted}")
    return key, words

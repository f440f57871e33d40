"""The verdict on one recorded step: what was predicted, what was recorded, and whether they match.

In: a recorded step and an agent's decision. Out: a Verdict. `verdicts.jsonl` holds a header, then one verdict
a line:

    {"version": 3, "num_steps": 812, "free_running": false, "batch_size": 16, ...}
    {"episode_index": 0, "episode": "1234", "step": 0, "predicted": {"type": "tap", "at": {...}}, ...}
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, with_config

from uivlm.actions import schema
from uivlm.actions.action import InvalidAction, Type
from uivlm.actions.decision import Decision
from uivlm.actions.matching import matches
from uivlm.actions.text import action_type
from uivlm.episodes.episode import Episode, boxes_of

ErrorType = Literal["", "invalid", "skipped", "wrong_type", "wrong_location", "wrong_axis"]
ERROR_TYPES: tuple[ErrorType, ...] = get_args(ErrorType)[1:]
VERSION = 3  # of verdicts.jsonl; 2 was written by uivlm 0.1


@with_config(schema.STRICT)
@dataclass(frozen=True, slots=True)
class Verdict:
    """What the agent predicted at one recorded step, what was recorded, and whether AITW's rule matches them.

    `error` is "" for a correct step. Otherwise: "invalid", the text is not an action; "skipped", the agent
    had ended the episode before (free-running); "wrong_type"; "wrong_location" of a tap; "wrong_axis" of a
    swipe.
    """

    episode_index: int  # in the data, from 0
    episode: str  # id
    step: int  # from 0
    num_steps: int  # of the episode
    subset: str
    size: tuple[int, int]  # height and width of the screen in pixels
    text: str  # the model's output
    predicted: schema.Action | None  # None: the text is not an action
    gold: schema.Action
    correct: bool
    action_type: str  # of the gold action
    error: ErrorType
    reason: str  # why the text is not an action, else ""
    confidence: float | None  # [0, 1]
    latency_ms: float  # of the whole batch that the step was in


VERDICT = TypeAdapter(Verdict)


def to_verdict(
    episode_index: int, episode: Episode, t: int, decision: Decision | None, latency_ms: float
) -> Verdict:
    """The verdict on a decision at step `t`. Without a decision the step was skipped."""
    step = episode.steps[t]
    answer = InvalidAction("", "skipped") if decision is None else decision.action
    predicted, reason = (None, answer.reason) if isinstance(answer, InvalidAction) else (answer, "")
    correct = predicted is not None and matches(predicted, step.action, boxes_of(step.screen))
    height, width, _ = step.screen.pixels.shape
    return Verdict(
        episode_index=episode_index,
        episode=episode.id,
        step=t,
        num_steps=len(episode.steps),
        subset=episode.subset,
        size=(height, width),
        text="" if decision is None else _unicode(decision.text),
        predicted=None if predicted is None else _unicode_action(predicted),
        gold=_unicode_action(step.action),
        correct=correct,
        action_type=action_type(step.action),
        error="skipped" if decision is None else classify_error(predicted, step.action, correct),
        reason=_unicode(reason),
        confidence=None if decision is None else decision.confidence,
        latency_ms=latency_ms,
    )


def classify_error(predicted: schema.Action | None, gold: schema.Action, correct: bool) -> ErrorType:
    if correct:
        return ""
    if predicted is None:
        return "invalid"
    if action_type(predicted) != action_type(gold):
        return "wrong_type"
    return "wrong_location" if action_type(gold) == "tap" else "wrong_axis"


def _unicode(text: str) -> str:
    r"""The text with each lone surrogate as its code, such as \ud800: JSON and UTF-8 cannot hold one."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _unicode_action(action: schema.Action) -> schema.Action:
    return replace(action, text=_unicode(action.text)) if isinstance(action, Type) else action


# -- the file ------------------------------------------------------------------------------------------------


def verdict_to_line(verdict: Verdict) -> bytes:
    return VERDICT.dump_json(verdict) + b"\n"


def header_to_line(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode("ascii") + b"\n"


def verdict_from_line(line: bytes, location: str) -> Verdict:
    """The verdict that `verdict_to_line` wrote. Raises SchemaError, a ValueError, for anything else."""
    return schema.parse_json(VERDICT, line, location)


def read_header(line: bytes, path: Path) -> dict[str, Any]:
    """The first line of a verdicts file. Raises ValueError for another file or another version."""
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or ("version" not in header and "gold" not in header):
        raise ValueError(f"{path}: not a verdicts file; expected a first line with its version")
    version = header.get("version", "0.1's")
    if version != VERSION:
        raise ValueError(f"{path}: got version {version}; expected version {VERSION}. Run `uivlm eval` again")
    return header


def read_verdicts(path: Path) -> list[Verdict]:
    """The verdicts of a file, in the order of the data. Raises ValueError for a bad row or a missing step."""
    with path.open("rb") as lines:
        header = read_header(next(lines, b""), path)
        verdicts = [verdict_from_line(line, f"{path}:{i}") for i, line in enumerate(lines, 2)]
    if len(verdicts) != header.get("num_steps"):
        raise ValueError(
            f"{path}: got {len(verdicts)} verdicts; expected {header.get('num_steps')}. The file lacks "
            "steps: run `uivlm eval` again"
        )
    group_by_episode(verdicts)
    return verdicts


def group_by_episode(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Verdicts, split into episodes. Raises ValueError if steps are missing or out of order."""
    episodes: list[list[Verdict]] = []
    for verdict in verdicts:
        if verdict.step == 0:
            episodes.append([])
        if not episodes or not _continues(episodes[-1], verdict):
            raise ValueError(
                f"step {verdict.step} of episode {verdict.episode!r:.80} does not follow the verdict before "
                "it: the file lacks steps, or they are out of order"
            )
        episodes[-1].append(verdict)
    for episode in episodes:
        if len(episode) != episode[0].num_steps:
            raise ValueError(
                f"episode {episode[0].episode!r:.80}: got {len(episode)} verdicts; "
                f"expected {episode[0].num_steps}. The file lacks steps"
            )
    return episodes


def _continues(episode: Sequence[Verdict], verdict: Verdict) -> bool:
    same_episode = not episode or episode[0].episode_index == verdict.episode_index
    return same_episode and verdict.step == len(episode)

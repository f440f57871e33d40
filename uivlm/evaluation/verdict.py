"""What was said at one recorded step, and whether it is right: the row that every score is made of.

In: a recorded step and an agent's decision. Out: a Verdict; as JSON, one line of `verdicts.jsonl`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from uivlm.actions.action import Action
from uivlm.actions.aitw import from_aitw, to_aitw
from uivlm.actions.language import NotAnAction, kind
from uivlm.agents.agent import Decision
from uivlm.episode import Episode
from uivlm.evaluation.match import boxes_of, matches

Error = Literal["", "no action", "not asked", "kind", "place", "axis"]
ERRORS: tuple[Error, ...] = get_args(Error)[1:]
VERSION = 2  # of the rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """Step `t` (0-based) of the `index`-th episode of the data, which has `steps` steps: what the agent said, what people did,
    whether it matches by AITW's rule, and if not, why.

    `error`: "no action", the words say none; "not asked", the agent had ended the episode before (free-running); "kind", an
    action of another kind; "place", a tap elsewhere; "axis", a swipe along the other axis.
    """

    index: int
    episode: str
    t: int
    steps: int
    subset: str
    size: tuple[int, int]  # pixels of the screen: height, width
    said: str
    guess: Action | None  # None: the words are no action
    gold: Action
    correct: bool
    kind: str  # of the gold action
    error: Error
    reason: str  # why the words are no action, else ""
    confidence: float | None  # [0, 1]
    latency_ms: float  # of the answer; of those that were answered together, of all of them


def judge(index: int, episode: Episode, t: int, decision: Decision | None, latency_ms: float) -> Verdict:
    """The verdict on a decision; None: the agent was not asked."""
    step = episode.steps[t]
    answer = NotAnAction("", "not asked") if decision is None else decision.action
    guess, reason = (None, answer.reason) if isinstance(answer, NotAnAction) else (answer, "")
    correct = guess is not None and matches(guess, step.action, boxes_of(step.screen))
    height, width, _ = step.screen.pixels.shape
    return Verdict(
        index=index,
        episode=episode.id,
        t=t,
        steps=len(episode.steps),
        subset=episode.subset,
        size=(height, width),
        said="" if decision is None else decision.words,
        guess=guess,
        gold=step.action,
        correct=correct,
        kind=kind(step.action),
        error="not asked" if decision is None else error_of(guess, step.action, correct),
        reason=reason,
        confidence=None if decision is None else decision.confidence,
        latency_ms=latency_ms,
    )


def error_of(guess: Action | None, gold: Action, correct: bool) -> Error:
    if correct:
        return ""
    if guess is None:
        return "no action"
    if kind(guess) != kind(gold):
        return "kind"
    return "place" if kind(gold) == "tap" else "axis"


def to_row(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON values; actions as AITW's fields."""
    row = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    for name in ("guess", "gold"):
        if row[name] is not None:
            row[name] = dict(zip(("type", "touch", "lift", "text"), to_aitw(row[name]), strict=True))
    return row


def from_row(row: dict[str, Any]) -> Verdict:
    actions = {
        name: None
        if row[name] is None
        else from_aitw(*(row[name][part] for part in ("type", "touch", "lift", "text")))
        for name in ("guess", "gold")
    }
    height, width = row["size"]
    return Verdict(**{**row, **actions, "size": (height, width)})


def read_verdicts(path: Path) -> list[Verdict]:
    """The verdicts of a file, in the order of the data. ValueError where it is none, or where steps are missing."""
    try:
        with path.open(encoding="ascii") as rows:
            found = [from_row(json.loads(row)) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} holds no verdicts of this version ({type(error).__name__}: {error}): run `uivlm eval` again"
        ) from None
    by_episode(found)
    return found


def by_episode(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Verdicts cut into episodes. ValueError where steps are missing or out of order: no score is made of a part."""
    found: list[list[Verdict]] = []
    for verdict in verdicts:
        if verdict.t == 0:
            found.append([])
        if (
            not found
            or (found[-1][:1] and found[-1][0].index != verdict.index)
            or verdict.t != len(found[-1])
        ):
            raise ValueError(
                f"the verdict on step {verdict.t} of episode {verdict.episode!r} does not follow the one before it: "
                "the file lacks steps or was reordered"
            )
        found[-1].append(verdict)
    for episode in found:
        if len(episode) != episode[0].steps:
            raise ValueError(
                f"there are verdicts on {len(episode)} of the {episode[0].steps} steps of episode "
                f"{episode[0].episode!r}: the file lacks steps"
            )
    return found

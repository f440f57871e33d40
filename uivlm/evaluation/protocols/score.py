"""Scores predictions by the rules of each protocol: its matching, denominator and mean, with or without its
defects.

In: predictions, in the order of the data. Out: a ProtocolScore. Splits differ too: no rule here makes scores
on different splits comparable.

    protocol        a tap is correct                     swipe       text      overall
    aitw            within 0.14, or in one grown box     main axis   ignored   per episode, mean of subsets
    autoui          the same                             main axis   ignored   per step, mean of subsets
    seeclick        the same                             main axis   ignored   per step, mean of subsets
    showui          as seeclick
    aitz            its box contains the recorded point  direction   similar   per step
    androidcontrol  in the recorded element's box        direction   equal     per step

Sources: the AITW and UI-VLM papers; the code of Auto-UI, SeeClick, ShowUI and AITZ; the AndroidControl paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from uivlm.evaluation.names import ProtocolName
from uivlm.evaluation.protocols import aitz, androidcontrol, autoui, seeclick
from uivlm.evaluation.protocols.prediction import ProtocolResult, StepPrediction, aitw_matches, mean

PER_EPISODE: tuple[ProtocolName, ...] = ("aitw",)
POOLED: tuple[ProtocolName, ...] = ("aitz", "androidcontrol")  # one mean over the steps of all subsets


@dataclass(frozen=True, slots=True)
class ProtocolScore:
    """Rates in [0, 1].

    `overall_by_aitw_mean` has the protocol's rules but AITW's mean (per episode, then over subsets). Its
    difference to AITW's own score comes from the rules; its difference to `overall` comes from the mean.
    """

    protocol: ProtocolName
    as_released: bool  # with the defects of the released code
    overall: float
    subsets: dict[str, float]
    num_steps: int  # the denominator
    num_missing: int  # of its steps: without an answer
    num_unreadable: int  # of its steps: with an answer that is not an action
    overall_by_aitw_mean: float
    extra_metrics: dict[str, float]


def score_protocol(
    predictions: Sequence[StepPrediction],
    protocol: ProtocolName,
    as_released: bool = False,
    history: int = seeclick.SHOWUI_HISTORY,
) -> ProtocolScore:
    """`as_released`: with the defects of the released code; ShowUI's depends on its `history`."""
    result = _apply_rules(predictions, protocol, as_released, history)
    subset_episodes: dict[str, dict[int, list[bool]]] = {}
    for prediction, is_correct in zip(result.predictions, result.correct, strict=True):
        episodes = subset_episodes.setdefault(prediction.subset, {})
        episodes.setdefault(prediction.episode_index, []).append(is_correct)
    per_episode = {name: mean(map(mean, episodes.values())) for name, episodes in subset_episodes.items()}
    per_step = {
        name: mean(is_correct for steps in episodes.values() for is_correct in steps)
        for name, episodes in subset_episodes.items()
    }
    subsets = per_episode if protocol in PER_EPISODE else per_step
    return ProtocolScore(
        protocol=protocol,
        as_released=as_released,
        overall=mean(result.correct) if protocol in POOLED else mean(subsets.values()),
        subsets=subsets,
        num_steps=len(result.predictions),
        num_missing=sum(prediction.missing for prediction in result.predictions),
        num_unreadable=sum(p.predicted is None and not p.missing for p in result.predictions),
        overall_by_aitw_mean=mean(per_episode.values()),
        extra_metrics=result.extra_metrics,
    )


def _apply_rules(
    predictions: Sequence[StepPrediction], protocol: ProtocolName, as_released: bool, history: int
) -> ProtocolResult:
    match protocol:
        case "aitw":
            # Google's matcher raises if a screen has no box: there is no verdict on that step.
            rows = [p for p in predictions if len(p.boxes)] if as_released else predictions
            return ProtocolResult(rows, aitw_matches(rows))
        case "autoui":
            return autoui.apply_rules(predictions, as_released)
        case "seeclick":
            return seeclick.apply_rules(predictions, as_released)
        case "showui":
            return seeclick.apply_rules(predictions, as_released, history if as_released else None)
        case "aitz":
            return aitz.apply_rules(predictions, as_released)
        case "androidcontrol":
            return androidcontrol.apply_rules(predictions)

"""One prediction file under the rules of each peer: its matching, its denominator, its mean; and, if wanted, its defects.

In: answers, in the order of the data. Out: a Result. Splits differ, too: no rule here makes figures on other splits comparable.

    protocol        a tap is right                      a swipe                 text             overall
    aitw            within 0.14, or in one grown box    its main axis           never compared   per episode, mean of subsets
    autoui          the same                            the axis of a stroke    never compared   per step, mean of subsets
    seeclick        the same                            the axis of a stroke    never compared   per step, mean of subsets
    showui          as seeclick
    aitz            its box holds the recorded point    its direction           nearly the same  per step
    androidcontrol  in the recorded element's box       its direction           the same         per step

Sources: the AITW paper and UI-VLM; the code of Auto-UI, SeeClick, ShowUI and AITZ; the AndroidControl paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from uivlm.evaluation.names import Protocol
from uivlm.evaluation.protocols import aitz, androidcontrol, autoui, seeclick
from uivlm.evaluation.protocols.answer import Answer, Judged, by_aitw, mean

PER_EPISODE: tuple[Protocol, ...] = ("aitw",)
POOLED: tuple[Protocol, ...] = ("aitz", "androidcontrol")  # all steps together, whatever their subset


@dataclass(frozen=True, slots=True)
class Result:
    """`overall` and `subsets`: rates in [0, 1]; `steps`: the denominator; `invalid`: share of it that is no action; `more`: the
    protocol's other figures.

    `by_rules`: its verdicts, but AITW's mean (per episode, then of subsets). What lies between that and AITW's own score is the
    work of its rules, what lies between that and `overall` the work of its mean.
    """

    protocol: Protocol
    defects: bool
    overall: float
    subsets: dict[str, float]
    steps: int
    invalid: float
    by_rules: float
    more: dict[str, float]


def score(
    answers: Sequence[Answer], protocol: Protocol, defects: bool = False, history: int = seeclick.HISTORY
) -> Result:
    """`defects`: with what the protocol's code does wrong; `history`: ShowUI's, of which its defect makes the width of boxes."""
    told = _judged(answers, protocol, defects, history)
    groups: dict[str, dict[int, list[bool]]] = {}
    for one, yes in zip(told.rows, told.right, strict=True):
        groups.setdefault(one.subset, {}).setdefault(one.index, []).append(yes)
    per_episode = {name: mean(map(mean, each.values())) for name, each in groups.items()}
    per_step = {name: mean(yes for steps in each.values() for yes in steps) for name, each in groups.items()}
    subsets = per_episode if protocol in PER_EPISODE else per_step
    return Result(
        protocol=protocol,
        defects=defects,
        overall=mean(told.right) if protocol in POOLED else mean(subsets.values()),
        subsets=subsets,
        steps=len(told.rows),
        invalid=mean(one.guess is None for one in told.rows),
        by_rules=mean(per_episode.values()),
        more=told.more,
    )


def _judged(answers: Sequence[Answer], protocol: Protocol, defects: bool, history: int) -> Judged:
    match protocol:
        case "aitw":
            # Google's matcher raises where a screen has no box, and callers leave the step out
            rows = [one for one in answers if len(one.boxes)] if defects else answers
            return Judged(rows, by_aitw(rows))
        case "autoui":
            return autoui.judge(answers, defects)
        case "seeclick":
            return seeclick.judge(answers, defects)
        case "showui":
            return seeclick.judge(answers, defects, history if defects else None)
        case "aitz":
            return aitz.judge(answers, defects)
        case "androidcontrol":
            return androidcontrol.judge(answers)

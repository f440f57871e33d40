"""Scores as tables for the terminal.

In: Summaries by the name of the run, or ProtocolScores. Out: rich Tables.
"""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from uivlm.actions.text import ACTION_TYPES
from uivlm.evaluation.breakdown import CorrectCounts
from uivlm.evaluation.metrics import Score, Summary
from uivlm.evaluation.protocols.score import ProtocolScore
from uivlm.evaluation.published_scores import DataKind

TEXT_ROW = "type, same text"  # the only row that AITW's rule ignores
ANSWER_COUNTS = ("missing", "unreadable", "surplus")
# Two lines each, so that the table fits 80 columns.
HEADINGS = (
    "episodes", "steps", "partial\nmatch", "95 % CI", "step\naccuracy", "complete\nmatch", "type\naccuracy",
    "invalid\nrate",
)  # fmt: skip


def score_table(summaries: Mapping[str, Summary], kind: DataKind, note: str = "") -> Table:
    """All runs, by subset and overall. Names may wrap, numbers never. `note`: about the chosen episodes."""
    title = "Simulated data: not AITW scores" if kind == "simulated" else None
    caption = "; episodes: ".join(filter(None, ("offline scores, not online success", note)))
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("run", overflow="fold", min_width=8)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for run, summary in summaries.items():
        table.add_row(Text(run, style="bold"))
        for name, score in summary.subsets.items():
            table.add_row(Text(f" {name}"), *_score_cells(score))
        table.add_row(" overall", *_score_cells(summary.overall), style="bold", end_section=True)
    return table


def action_type_table(summaries: Mapping[str, Summary]) -> Table:
    """Accuracy by the type of the recorded action."""
    table = Table(title="correct steps by recorded action type")
    for i, heading in enumerate(("action type", *summaries)):
        table.add_column(Text(heading), justify="right" if i else "left")
    for row in action_type_rows(summaries):
        table.add_row(*map(Text, row))
    return table


def protocol_table(results: Sequence[ProtocolScore], num_surplus: int = 0, note: str = "") -> Table:
    """The same predictions by each protocol. The first is AITW's; the others show their difference to it.

    `num_surplus`: the number of answers to steps that the data lacks. `note`: about the chosen episodes.
    """
    caption = "rules, mean: points of the difference to aitw that each causes. Splits differ too"
    table = Table(
        title="the same predictions by other rules",
        caption="; episodes: ".join(filter(None, (caption, note))),
        box=SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
    )
    table.add_column("protocol", min_width=14)
    for heading in ("overall", "rules", "mean", "steps", *ANSWER_COUNTS):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("other metrics", overflow="fold")
    aitw_score = results[0].overall
    for result in results:
        table.add_row(
            f"{result.protocol}, as released" if result.as_released else result.protocol,
            format_percent(result.overall),
            f"{100 * (result.overall_by_aitw_mean - aitw_score):+.1f}",
            f"{100 * (result.overall - result.overall_by_aitw_mean):+.1f}",
            *map(str, (result.num_steps, result.num_missing, result.num_unreadable, num_surplus)),
            ", ".join(f"{name} {format_percent(rate)}" for name, rate in result.extra_metrics.items()),
        )
    return table


def action_type_rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    """One row an action type: its name, then the accuracy of each run."""
    breakdowns = [summary.breakdown for summary in summaries.values()]
    rows = [
        [name, *(format_counts(breakdown.by_action_type.get(name)) for breakdown in breakdowns)]
        for name in ACTION_TYPES
        if any(name in breakdown.by_action_type for breakdown in breakdowns)
    ]
    texts = [breakdown.texts for breakdown in breakdowns]
    if any(stats.num_recorded for stats in texts):
        rows.append([TEXT_ROW, *(format_counts((stats.exact, stats.num_recorded)) for stats in texts)])
    return rows


def format_counts(counts: CorrectCounts | None) -> str:
    if counts is None or not counts[1]:
        return "-"
    return f"{format_percent(counts[0] / counts[1])} ({counts[0]} of {counts[1]})"


def format_percent(rate: float) -> str:
    return f"{100 * rate:.1f}"


def format_interval(low: float, high: float) -> str:
    return f"{format_percent(low)}-{format_percent(high)}"


def _score_cells(score: Score) -> list[str]:
    rates = (score.step_accuracy, score.complete_match, score.type_accuracy, score.invalid_rate)
    return [
        str(score.num_episodes),
        str(score.num_steps),
        format_percent(score.partial_match),
        format_interval(score.partial_match_low, score.partial_match_high),
        *map(format_percent, rates),
    ]

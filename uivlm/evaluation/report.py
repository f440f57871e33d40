"""Scores for people, in the terminal.

In: Summaries by the name of the run, Results of protocols. Out: rich Tables.
"""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from uivlm.actions.language import KINDS
from uivlm.evaluation.details import Counts
from uivlm.evaluation.metrics import Score, Summary
from uivlm.evaluation.protocols.score import Result

TEXTS = "type, same text"  # the one row that AITW's rule knows nothing of
HEADINGS = ("episodes", "steps", "partial", "95 %", "micro", "complete", "types", "invalid")


def table(summaries: Mapping[str, Summary], simulated: bool) -> Table:
    """All runs, subset by subset, then overall."""
    title = "Simulated data, no AITW scores" if simulated else None
    shown = Table(
        title=title, caption="offline, not live success", box=SIMPLE_HEAD, padding=0, pad_edge=False
    )
    shown.add_column("run", overflow="fold", min_width=8)
    for heading in HEADINGS:  # names may wrap, numbers never: it fits 80 columns
        shown.add_column(heading, justify="right", no_wrap=True)
    for run, summary in summaries.items():
        shown.add_row(Text(run, style="bold"))
        for name, score in summary.subsets.items():
            shown.add_row(Text(f"  {name}"), *_cells(score))
        shown.add_row("  overall", *_cells(summary.overall), style="bold", end_section=True)
    return shown


def kind_table(summaries: Mapping[str, Summary]) -> Table:
    """Accuracy by the kind of the recorded action."""
    shown = Table(title="correct steps by kind of recorded action")
    for i, heading in enumerate(("kind", *summaries)):
        shown.add_column(Text(heading), justify="right" if i else "left")
    for cells in kind_rows(summaries):
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def protocol_table(results: Sequence[Result]) -> Table:
    """The same answers by each protocol, the first being AITW's: how far from that its rules and its mean move the score."""
    shown = Table(
        title="the same answers by other rules",
        caption="rules, mean: points that these make of the difference to aitw. Splits differ, too",
    )
    heads = ("protocol", "overall", "rules", "mean", "steps", "invalid", "its other figures")
    for heading in heads:
        shown.add_column(heading, justify="left" if heading in (heads[0], heads[-1]) else "right")
    base = results[0].overall
    for one in results:
        name = f"{one.protocol}, with its defects" if one.defects else one.protocol
        apart = [f"{100 * value:+.1f}" for value in (one.by_rules - base, one.overall - one.by_rules)]
        more = ", ".join(f"{what} {percent(value)}" for what, value in one.more.items())
        shown.add_row(name, percent(one.overall), *apart, str(one.steps), percent(one.invalid), more)
    return shown


def kind_rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    told = {run: summary.details for run, summary in summaries.items()}
    present = [name for name in KINDS if any(name in each.kinds for each in told.values())]
    rows = [[name, *(share(each.kinds.get(name)) for each in told.values())] for name in present]
    if any(each.texts.recorded for each in told.values()):
        rows.append([TEXTS, *(share((each.texts.exact, each.texts.recorded)) for each in told.values())])
    return rows


def share(counts: Counts | None) -> str:
    return (
        "-"
        if counts is None or not counts[1]
        else f"{100 * counts[0] / counts[1]:.1f} ({counts[0]} of {counts[1]})"
    )


def percent(rate: float) -> str:
    return f"{100 * rate:.1f}"


def _cells(score: Score) -> list[str]:
    rates = (score.partial, score.micro, score.complete, score.types, score.failures)
    partial, *others = map(percent, rates)
    interval = f"{percent(score.low)}-{percent(score.high)}"
    return [str(score.num_episodes), str(score.num_steps), partial, interval, *others]

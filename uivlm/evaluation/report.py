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
    """The same answers by each protocol; how far its defects move its figure stands beside it."""
    shown = Table(
        title="the same answers by other rules", caption="splits differ too: compare like with like"
    )
    for i, heading in enumerate(
        ("protocol", "overall", "against aitw", "steps", "invalid", "its other figures")
    ):
        shown.add_column(heading, justify="left" if i in (0, 5) else "right")
    base = next((one.overall for one in results if one.protocol == "aitw" and not one.defects), None)
    for one in results:
        name = f"{one.protocol}, with its defects" if one.defects else one.protocol
        apart = "" if base is None else f"{100 * (one.overall - base):+.1f}"
        more = ", ".join(f"{what} {100 * value:.1f}" for what, value in one.more.items())
        shown.add_row(
            name, f"{100 * one.overall:.1f}", apart, str(one.steps), f"{100 * one.invalid:.1f}", more
        )
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

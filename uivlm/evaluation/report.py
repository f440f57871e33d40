"""Scores for people: a table for the terminal, and one HTML page that needs no other file.

In: Summaries by the name of the run; for the page also one run's verdicts and the episodes they are about. Out: a
rich Table; `report.html` with the tables, the accuracy of each kind of action, and errors drawn on their screens
(gold in green, the guess in red). All text from data and models is escaped.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from uivlm.actions.action import Swipe, Tap
from uivlm.actions.language import KINDS
from uivlm.episode import Episode, Screen
from uivlm.evaluation.metrics import Score, Summary
from uivlm.evaluation.verdict import Verdict, by_episode
from uivlm.page import page, safe
from uivlm.picture import caption, data_url, draw_action

TEXTS = "type, same text"  # the one row that AITW's rule knows nothing of
MOST_ERRORS = 40
MOST_WORDS = 400  # characters of one text on the page
SHOWN = (320, 560)  # most pixels (x, y) of a screen on the page
GOLD, GUESS = "#0a8f3c", "#d81b4a"

HEADINGS = (
    "run",
    "subset",
    "episodes",
    "steps",
    "partial",
    "95 %",
    "micro",
    "complete",
    "types",
    "invalid",
)
SIMULATED = "Simulated data: these scores are of episodes of a simulated phone. They are no AITW scores."
OFFLINE = (
    "Offline step accuracy: at each step the agent sees the recorded past and its answer is compared with the recorded "
    "action by AITW's matching rule. This is not live success: on a live phone errors add up, and other ways to the "
    "goal count."
)
LEGEND = (
    "partial: correct steps of an episode, mean over episodes. micro: correct steps of all steps. complete: episodes "
    "with every step right. types: AITW action type right. invalid: words that say no action, counted as wrong. "
    "95 %: bootstrap interval of partial, by episode. overall: plain mean of the subsets."
)


def table(summaries: Mapping[str, Summary], simulated: bool) -> Table:
    """All runs, subset by subset, then overall."""
    title = "Simulated data, no AITW scores" if simulated else None
    title = "Simulated data, no AITW scores" if simulated else None
    shown = Table(
        title=title, caption="offline, not live success", box=SIMPLE_HEAD, padding=0, pad_edge=False
    )
    shown.add_column("run", overflow="fold", min_width=8)
    for heading in HEADINGS[2:]:  # names may wrap, numbers never: it fits 80 columns
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
    for cells in _kind_rows(summaries):
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def write_page(
    path: Path,
    summaries: Mapping[str, Summary],
    verdicts: Sequence[Verdict],
    episodes: Sequence[Episode],
    simulated: bool,
    title: str = "Evaluation",
) -> Path:
    """The page. `verdicts` are one run's, made from `episodes`: its errors are drawn, at most 40 of them."""
    notes = [SIMULATED] * simulated + [OFFLINE, LEGEND]
    by_episode(verdicts)
    wrong = [v for v in verdicts if not v.correct]
    body = [
        f"<h1>{_safe(title)}</h1>",
        *(f"<p>{_safe(note)}</p>" for note in notes),
        _html_table(HEADINGS, _rows(summaries)),
        "<h2>Correct steps by kind of recorded action</h2>",
        _html_table(("kind", *summaries), _kind_rows(summaries)),
        f"<h2>Errors</h2><p>{len(wrong)} of {len(verdicts)} steps are wrong; {min(len(wrong), MOST_ERRORS)} are shown, "
        f'evenly spread. <b style="color:{GOLD}">Recorded</b> and <b style="color:{GUESS}">guessed</b> gestures.</p>',
        f"<main>{''.join(_figures(_spread(wrong), episodes))}</main>",
    ]
    partial = path.with_name(f"{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(title, STYLE, "".join(body))
    partial.write_text(
        text, encoding="utf-8", errors="backslashreplace"
    )  # lone surrogates are shown as codes
    os.replace(partial, path)
    return path


def _rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    rows = []
    for run, summary in summaries.items():
        scores = {**summary.subsets, "overall": summary.overall}
        rows += [[run, name, *_cells(score)] for name, score in scores.items()]
    return rows


def _cells(score: Score) -> list[str]:
    percent = [
        f"{100 * rate:.1f}"
        for rate in (score.partial, score.micro, score.complete, score.types, score.failures)
    ]
    interval = f"{100 * score.low:.1f}-{100 * score.high:.1f}"
    return [str(score.num_episodes), str(score.num_steps), percent[0], interval, *percent[1:]]


def _kind_rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    told = {run: summary.details for run, summary in summaries.items()}
    present = [name for name in KINDS if any(name in each.kinds for each in told.values())]
    rows = [[name, *(_share(each.kinds.get(name)) for each in told.values())] for name in present]
    if any(each.texts.recorded for each in told.values()):
        rows.append([TEXTS, *(_share((each.texts.exact, each.texts.recorded)) for each in told.values())])
    return rows


def _share(counts: tuple[int, int] | None) -> str:
    return (
        "-"
        if counts is None or not counts[1]
        else f"{100 * counts[0] / counts[1]:.1f} ({counts[0]} of {counts[1]})"
    )


def _spread(wrong: list[Verdict]) -> list[Verdict]:
    if len(wrong) <= MOST_ERRORS:
        return wrong
    return [wrong[i * len(wrong) // MOST_ERRORS] for i in range(MOST_ERRORS)]


def _figures(errors: Sequence[Verdict], episodes: Sequence[Episode]) -> list[str]:
    figures = []
    for verdict in errors:
        if verdict.index >= len(episodes):
            raise ValueError(
                f"the verdicts are about {verdict.index + 1} episodes or more, but {len(episodes)} were given"
            )
        episode = episodes[verdict.index]
        if (episode.subset, episode.id) != (verdict.subset, verdict.episode):
            raise ValueError(
                f"the verdicts on {verdict.episode!r} were not made from these episodes ({episode.id!r})"
            )
        figures.append(_figure(episode.goal, episode.steps[verdict.t].screen, verdict))
    return figures


def _figure(goal: str, screen: Screen, verdict: Verdict) -> str:
    pixels = screen.pixels
    for action, colour in ((verdict.gold, GOLD), (verdict.guess, GUESS)):
        if isinstance(action, Tap | Swipe):
            pixels = np.asarray(draw_action(pixels, action, colour))
    picture = Image.fromarray(pixels)
    picture.thumbnail(SHOWN)
    reason = f"<br><em>no action: {_safe(verdict.reason)}</em>" if verdict.guess is None else ""
    return (
        f'<figure><img src="{data_url(picture)}" alt="screen">'
        f"<figcaption><b>{_safe(goal)}</b><br><small>{_safe(verdict.subset)}, episode {_safe(verdict.episode)}, "
        f"step {verdict.t + 1}</small><br>"
        f'<span style="color:{GOLD}">recorded: {_safe(caption(verdict.gold))}</span><br>'
        f'<span style="color:{GUESS}">said: <code>{_safe(verdict.said)}</code></span>{reason}'
        f"{_sure(verdict)}</figcaption></figure>"
    )


def _sure(verdict: Verdict) -> str:
    return "" if verdict.confidence is None else f"<br><small>confidence {verdict.confidence:.2f}</small>"


def _html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(cell)}</th>" for cell in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _safe(text: str) -> str:
    """Text for the page, cut where it is long."""
    cut = text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}... ({len(text)} characters)"
    return safe(cut)


STYLE = """
body { max-width: 1100px }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1.2rem }
figure { margin: 0 } img { max-width: 100%; border: 1px solid #bbb }
figcaption { font-size: 13px; overflow-wrap: anywhere } code { white-space: pre-wrap }
"""

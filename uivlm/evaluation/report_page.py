"""A run's score as one HTML page that needs no other file: tables, plots, and the errors drawn on their screens.

In: Summaries by the name of the run, one run's verdicts and the episodes they are about. Out: `report.html`. Recorded actions are
green, answers red. All text from data and models is escaped; what is shown of the errors is chosen without a script.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from uivlm.actions.action import Swipe, Tap
from uivlm.actions.language import KINDS
from uivlm.episode import Episode, Screen
from uivlm.evaluation.details import FAR, NOTHING, Counts, Details, Trust
from uivlm.evaluation.metrics import Score, Summary
from uivlm.evaluation.published import EPISODE_WISE, SEECLICK_SPLIT, SUBSETS, Figure
from uivlm.evaluation.report import kind_rows, percent, share
from uivlm.evaluation.verdict import ERRORS, Verdict, by_episode
from uivlm.page import page, safe
from uivlm.picture import caption, data_url, draw_action
from uivlm.plot import Line, plot

MOST_ERRORS = 40
MOST_WORDS = 400  # characters of one text on the page
SHOWN = (320, 560)  # most pixels (x, y) of a screen on the page
GOLD, GUESS = "#0a8f3c", "#d81b4a"

HEADINGS = (
    "run", "subset", "episodes", "steps", "partial", "95 %", "micro", "95 %", "complete", "progress", "types", "invalid",
)  # fmt: skip
SIMULATED = "Simulated data: these scores are of episodes of a simulated phone. They are no AITW scores."
OFFLINE = (
    "Offline step accuracy: at each step the agent sees a recorded screen and its answer is compared with the recorded "
    "action by AITW's matching rule. This is not live success: on a live phone errors add up, and other ways to the "
    "goal count."
)
LEGEND = (
    "partial: correct steps of an episode, mean over episodes. micro: correct steps of all steps. complete: episodes "
    "with every step right. progress: steps before the first wrong one. types: AITW action type right. invalid: words "
    "that say no action, counted as wrong. 95 %: bootstrap intervals, by episode. overall: plain mean of the subsets."
)
PUBLISHED = (
    "Published figures, as their authors claim them. E: mean over episodes, M: over steps. Compare with the same split and "
    "the same mean only; the two tables are of different splits."
)


def write_page(
    path: Path,
    summaries: Mapping[str, Summary],
    verdicts: Sequence[Verdict],
    episodes: Sequence[Episode],
    simulated: bool,
    title: str = "Evaluation",
    about: Mapping[str, Any] | None = None,
) -> Path:
    """The page. `verdicts` are the last run's, made from `episodes`: its errors are drawn, at most 40 of them. `about`: what
    the run was."""
    by_episode(verdicts)
    *_, told = summaries.values()
    wrong = [v for v in verdicts if not v.correct]
    body = [
        f"<h1>{_safe(title)}</h1>",
        *(f"<p>{_safe(note)}</p>" for note in [SIMULATED] * simulated + [OFFLINE, LEGEND]),
        _table(HEADINGS, _rows(summaries)),
        "" if simulated else _published(),
        "<h2>Correct steps by kind of recorded action</h2>",
        _table(("kind", *summaries), kind_rows(summaries)),
        *_details(told.details),
        _errors(wrong, len(verdicts), episodes),
        "" if about is None else f"<h2>The run</h2><pre>{_safe(json.dumps(about, indent=1), 4000)}</pre>",
    ]
    fresh = path.with_name(f"{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(title, STYLE + _filters(), "".join(body))
    fresh.write_text(text, encoding="utf-8", errors="backslashreplace")  # lone surrogates are shown as codes
    os.replace(fresh, path)
    return path


def _rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    rows = []
    for run, summary in summaries.items():
        scores = {**summary.subsets, "overall": summary.overall}
        rows += [[run, name, *_cells(score)] for name, score in scores.items()]
    return rows


def _cells(score: Score) -> list[str]:
    partial = [percent(score.partial), f"{percent(score.low)}-{percent(score.high)}"]
    micro = [percent(score.micro), f"{percent(score.micro_low)}-{percent(score.micro_high)}"]
    others = (score.complete, score.progress, score.types, score.failures)
    return [str(score.num_episodes), str(score.num_steps), *partial, *micro, *map(percent, others)]


def _published() -> str:
    heads = ("model", "overall", *SUBSETS, "mean", "source")
    parts = [f"<h2>Published</h2><p>{_safe(PUBLISHED)}</p>"]
    for name, figures in (("Episode-wise splits", EPISODE_WISE), ("SeeClick's split", SEECLICK_SPLIT)):
        parts.append(f"<h3>{_safe(name)}</h3>{_table(heads, [_figure_row(one) for one in figures])}")
    return "".join(parts)


def _figure_row(one: Figure) -> list[str]:
    values = [f"{value:g}" for value in one.subsets] or ["-"] * len(SUBSETS)
    return [one.model, f"{one.overall:g}", *values, one.mean, one.source]


# -- what right and wrong steps are made of ---------------------------------------------------------------------------


def _details(told: Details) -> list[str]:
    texts, swipes = told.texts, told.swipes
    facts = [
        ["typed texts: just so", share((texts.exact, texts.recorded))],
        ["typed texts: but for case, width, spaces", share((texts.normalised, texts.recorded))],
        ["typed texts: mean similarity", f"{texts.similarity:.3f}"],
        ["swipes answered by a swipe: the right way", share((swipes.direction, swipes.answered))],
        [
            "swipes: mean error of length, start, end",
            f"{swipes.length:.3f}, {swipes.start:.3f}, {swipes.end:.3f}",
        ],
        *(
            [f"taps within {far:g}", share((sum(told.taps[: i + 1]), sum(told.taps)))]
            for i, far in enumerate(FAR[:-1])
        ),
        *([f"wrong: {name}", str(number)] for name, number in told.errors.items()),
    ]
    return [
        f"<h2>What was recorded, and what was answered</h2>{_confusion(told.confusion)}",
        f"<h2>Beside the rule</h2>{_table(('', ''), facts)}",
        _by("Steps before", told.by_step),
        _by("Steps of the episode", told.by_length),
        _by("Screen, pixels", told.by_size),
        "" if told.trust is None else _trust(told.trust),
    ]


def _confusion(pairs: Mapping[tuple[str, str], int]) -> str:
    """Rows: what was recorded; columns: what was answered; the darker, the greater the share of its row."""
    recorded = [name for name in KINDS if any(gold == name for gold, _ in pairs)]
    answered = [name for name in (*KINDS, NOTHING) if any(guess == name for _, guess in pairs)]
    rows = []
    for gold in recorded:
        total = sum(number for (name, _), number in pairs.items() if name == gold)
        cells = []
        for guess in answered:
            number = pairs.get((gold, guess), 0)
            cells.append(
                f'<td style="background:rgb(37 99 168 / {0.6 * number / total:.2f})">{number or ""}</td>'
            )
        rows.append(f"<tr><td>{_safe(gold)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{_safe(name)}</th>" for name in ("recorded", *answered))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _by(name: str, counts: Mapping[str, Counts]) -> str:
    return f"<h3>{_safe(name)}</h3>{_table((name, 'correct'), [[key, share(value)] for key, value in counts.items()])}"


def _trust(told: Trust) -> str:
    """Accuracy over confidence beside what it should be, and over the share of steps that are answered at all."""
    sure, right = [one[0] for one in told.bins], [one[1] for one in told.bins]
    calibration = plot(
        [Line("right", sure, right), Line("as sure", [0, 1], [0, 1])], "confidence 1", high=1.0
    )
    shares, accuracy = zip(*told.coverage, strict=True)
    coverage = plot([Line("right of the answered", shares, accuracy)], "all steps answered", high=1.0)
    return (
        f"<h2>Confidence</h2><p>Expected calibration error {told.error:.3f}.</p>"
        f"<figure><figcaption>Share of right steps over confidence</figcaption>{calibration}</figure>"
        f"<figure><figcaption>Share of right steps if the least sure are left out</figcaption>{coverage}</figure>"
    )


# -- the errors -------------------------------------------------------------------------------------------------------


def _errors(wrong: list[Verdict], total: int, episodes: Sequence[Episode]) -> str:
    shown = (
        wrong
        if len(wrong) <= MOST_ERRORS
        else [wrong[i * len(wrong) // MOST_ERRORS] for i in range(MOST_ERRORS)]
    )
    kinds = [name for name in KINDS if any(v.kind == name for v in shown)]
    errors = [name for name in ERRORS if any(v.error == name for v in shown)]
    return (
        f"<h2>Errors</h2><p>{len(wrong)} of {total} steps are wrong; {len(shown)} are shown, evenly spread. "
        f'<b style="color:{GOLD}">Recorded</b> and <b style="color:{GUESS}">answered</b> gestures.</p>'
        f"{_choice('recorded', kinds)}{_choice('error', errors)}"
        f"<main>{''.join(_figures(shown, episodes))}</main>"
    )


def _choice(name: str, values: Sequence[str]) -> str:
    options = [("all", "all"), *((_slug(value), value) for value in values)]
    buttons = "".join(
        f'<label><input type="radio" name="{name}" id="{name}-{slug}"{" checked" if slug == "all" else ""}> {_safe(value)}</label> '
        for slug, value in options
    )
    return f"<p>{name}: {buttons}</p>"


def _filters() -> str:
    """Rules that hide what was not chosen."""
    chosen = [("recorded", name) for name in KINDS] + [("error", name) for name in ERRORS]
    return "".join(
        f"body:has(#{group}-{_slug(name)}:checked) main figure:not(.{group}-{_slug(name)}) {{ display: none }}\n"
        for group, name in chosen
    )


def _slug(name: str) -> str:
    return name.replace(" ", "-")


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
    sure = "" if verdict.confidence is None else f"<br><small>confidence {verdict.confidence:.2f}</small>"
    return (
        f'<figure class="recorded-{_slug(verdict.kind)} error-{_slug(verdict.error)}">'
        f'<img src="{data_url(picture)}" alt="screen">'
        f"<figcaption><b>{_safe(goal)}</b><br><small>{_safe(verdict.subset)}, episode {_safe(verdict.episode)}, "
        f"step {verdict.t + 1}</small><br>"
        f'<span style="color:{GOLD}">recorded: {_safe(caption(verdict.gold))}</span><br>'
        f'<span style="color:{GUESS}">said: <code>{_safe(verdict.said)}</code></span>{reason}{sure}</figcaption></figure>'
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_safe(cell)}</th>" for cell in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _safe(text: str, most: int = MOST_WORDS) -> str:
    """Text for the page, cut where it is long."""
    return safe(text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)")


STYLE = """
body { max-width: 1100px }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; max-width: 800px; height: auto; font-size: 12px }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1.2rem }
figure { margin: 0 } img { max-width: 100%; border: 1px solid #bbb }
figcaption { font-size: 13px; overflow-wrap: anywhere } code { white-space: pre-wrap }
label { margin-right: .8rem }
"""

"""The evaluation report: one HTML page with tables, charts, and the errors drawn on their screens.

In: Summaries by the name of the run, the verdicts of the last run, and the episodes that they are about. Out:
`report.html`, which needs no other file. Recorded actions are green, predictions red. Errors are filtered by
CSS alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from uivlm import atomic
from uivlm.actions.action import Swipe, Tap
from uivlm.actions.text import ACTION_TYPES
from uivlm.episodes.episode import Episode, Screen
from uivlm.evaluation.breakdown import INVALID, TAP_DISTANCE_EDGES, Breakdown, Calibration
from uivlm.evaluation.metrics import Score, Summary
from uivlm.evaluation.published_scores import EPISODE_WISE, SEECLICK_SPLIT, SUBSETS, DataKind, PublishedScore
from uivlm.evaluation.report import action_type_rows, format_counts, format_interval, format_percent
from uivlm.evaluation.verdict import ERROR_TYPES, Verdict, group_by_episode
from uivlm.reports.draw import caption, data_url, draw_action
from uivlm.reports.html import render
from uivlm.reports.svg import Series, plot

MAX_ERRORS = 40
MAX_TEXT_CHARS = 400  # of one text on the page
MAX_RUN_INFO_CHARS = 4000
MAX_THUMBNAIL_SIZE = (320, 560)  # width and height of a screen on the page, in pixels
GOLD_COLOR, PREDICTED_COLOR = "#0a8f3c", "#d81b4a"

HEADINGS = (
    "run", "subset", "episodes", "steps", "partial_match", "95 % CI", "step_accuracy", "95 % CI",
    "complete_match", "goal_progress", "type_accuracy", "invalid_rate",
)  # fmt: skip
PUBLISHED_HEADINGS = ("model", "overall", *SUBSETS, "mean", "source")

Cells = Sequence[str]
Table = dict[str, Any]  # title, headings, rows of cells


def write_eval_report(
    path: Path,
    summaries: Mapping[str, Summary],
    verdicts: Sequence[Verdict],
    episodes: Sequence[Episode],
    kind: DataKind,
    title: str = "Evaluation",
    run_info: Mapping[str, Any] | None = None,
    note: str = "",
) -> Path:
    """Write the page. `verdicts` are the last run's, made from `episodes`; up to 40 errors are drawn.

    `note`: about the chosen episodes.
    """
    group_by_episode(verdicts)
    breakdown = list(summaries.values())[-1].breakdown
    wrong = [verdict for verdict in verdicts if not verdict.correct]
    drawn = _evenly(wrong, MAX_ERRORS)
    page = render(
        "eval_report",
        title=_shorten(title),
        simulated=kind == "simulated",
        note=note,
        scores=_table("", HEADINGS, _score_rows(summaries)),
        published=_published_tables() if kind == "aitw" else [],
        action_types=_table("", ("action type", *summaries), action_type_rows(summaries)),
        confusion=_confusion(breakdown.confusion),
        details=_table("", ("", ""), _detail_rows(breakdown)),
        positions=_position_tables(breakdown),
        calibration=None if breakdown.calibration is None else _calibration(breakdown.calibration),
        num_steps=len(verdicts),
        num_wrong=len(wrong),
        errors=[_error_figure(verdict, episodes) for verdict in drawn],
        filters={
            "recorded": _options(ACTION_TYPES, {verdict.action_type for verdict in drawn}),
            "error": _options(ERROR_TYPES, {verdict.error for verdict in drawn}),
        },
        gold_color=GOLD_COLOR,
        predicted_color=PREDICTED_COLOR,
        run_info="" if run_info is None else _shorten(json.dumps(run_info, indent=1), MAX_RUN_INFO_CHARS),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    return atomic.write_file(path, page.encode("utf-8", "backslashreplace"))  # lone surrogates as codes


def _table(title: str, headings: Cells, rows: Sequence[Cells]) -> Table:
    return {
        "title": title,
        "headings": [_shorten(cell) for cell in headings],
        "rows": [[_shorten(cell) for cell in row] for row in rows],
    }


def _score_rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    return [
        [run, name, *_score_cells(score)]
        for run, summary in summaries.items()
        for name, score in {**summary.subsets, "overall": summary.overall}.items()
    ]


def _score_cells(score: Score) -> list[str]:
    rates = (score.complete_match, score.goal_progress, score.type_accuracy, score.invalid_rate)
    return [
        str(score.num_episodes),
        str(score.num_steps),
        format_percent(score.partial_match),
        format_interval(score.partial_match_low, score.partial_match_high),
        format_percent(score.step_accuracy),
        format_interval(score.step_accuracy_low, score.step_accuracy_high),
        *map(format_percent, rates),
    ]


def _published_tables() -> list[Table]:
    splits = {"Episode-wise splits": EPISODE_WISE, "SeeClick's split": SEECLICK_SPLIT}
    return [
        _table(name, PUBLISHED_HEADINGS, [_published_row(score) for score in scores])
        for name, scores in splits.items()
    ]


def _published_row(published: PublishedScore) -> list[str]:
    subsets = [f"{score:g}" for score in published.subsets] or ["-"] * len(SUBSETS)
    return [published.model, f"{published.overall:g}", *subsets, published.averaging, published.source]


# -- breakdown -----------------------------------------------------------------------------------------------


def _detail_rows(breakdown: Breakdown) -> list[list[str]]:
    texts, swipes, taps = breakdown.texts, breakdown.swipes, breakdown.tap_distance_counts
    errors = (swipes.length_error, swipes.start_error, swipes.end_error)
    return [
        ["typed texts: equal", format_counts((texts.exact, texts.num_recorded))],
        [
            "typed texts: equal but for case, letter width and spaces",
            format_counts((texts.normalized, texts.num_recorded)),
        ],
        ["typed texts: mean similarity", f"{texts.similarity:.3f}"],
        ["predicted swipes: same direction", format_counts((swipes.direction_correct, swipes.num_predicted))],
        [
            "predicted swipes: mean error of length, start, end",
            ", ".join(f"{error:.3f}" for error in errors),
        ],
        *(
            [f"predicted taps: within {edge:g}", format_counts((sum(taps[: i + 1]), sum(taps)))]
            for i, edge in enumerate(TAP_DISTANCE_EDGES[:-1])
        ),
        *([f"errors: {name}", str(count)] for name, count in breakdown.errors.items()),
    ]


def _position_tables(breakdown: Breakdown) -> list[Table]:
    tables = {
        "Step index": breakdown.by_step,
        "Steps of the episode": breakdown.by_episode_length,
        "Screen size in pixels": breakdown.by_screen_size,
    }
    return [
        _table(name, (name, "correct"), [[key, format_counts(value)] for key, value in counts.items()])
        for name, counts in tables.items()
    ]


def _confusion(pairs: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """Rows: recorded action type; columns: predicted action type; opacity: share of the row."""
    recorded = [name for name in ACTION_TYPES if any(gold == name for gold, _ in pairs)]
    predicted = [name for name in (*ACTION_TYPES, INVALID) if any(other == name for _, other in pairs)]
    rows = []
    for gold in recorded:
        counts = [pairs.get((gold, name), 0) for name in predicted]
        cells = [{"count": count, "opacity": f"{0.6 * count / sum(counts):.2f}"} for count in counts]
        rows.append({"name": gold, "cells": cells})
    return {"headings": ["recorded", *predicted], "rows": rows}


def _calibration(calibration: Calibration) -> dict[str, Any]:
    """The calibration error; charts of accuracy over confidence and over the share of confident steps."""
    confidences = [confidence for confidence, _, _ in calibration.bins]
    accuracies = [accuracy for _, accuracy, _ in calibration.bins]
    reliability = [Series("accuracy", confidences, accuracies), Series("calibrated", [0, 1], [0, 1])]
    shares, coverage_accuracies = zip(*calibration.coverage, strict=True)
    coverage = [Series("accuracy", shares, coverage_accuracies)]
    return {
        "ece": f"{calibration.ece:.3f}",
        "reliability_chart": plot(reliability, "confidence 1", y_max=1.0),
        "coverage_chart": plot(coverage, "all steps", y_max=1.0),
    }


# -- errors --------------------------------------------------------------------------------------------------


def _evenly(verdicts: list[Verdict], max_count: int) -> list[Verdict]:
    """At most `max_count` verdicts, evenly spread."""
    if len(verdicts) <= max_count:
        return verdicts
    return [verdicts[i * len(verdicts) // max_count] for i in range(max_count)]


def _options(names: Sequence[str], present: set[str]) -> list[dict[str, str]]:
    """The values that a reader can filter by, with their CSS names."""
    return [{"slug": _slug(name), "name": name} for name in names if name in present]


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _error_figure(verdict: Verdict, episodes: Sequence[Episode]) -> dict[str, Any]:
    if verdict.episode_index >= len(episodes):
        raise ValueError(
            f"got verdicts on episode {verdict.episode_index} and {len(episodes)} episodes: pass the "
            "episodes that the verdicts were made from"
        )
    episode = episodes[verdict.episode_index]
    if (episode.subset, episode.id) != (verdict.subset, verdict.episode):
        raise ValueError(
            f"the verdicts on {verdict.episode!r:.80} were not made from these episodes "
            f"(got {episode.id!r:.80})"
        )
    return {
        "slugs": f"recorded-{_slug(verdict.action_type)} error-{_slug(verdict.error)}",
        "image": data_url(_draw_error(episode.steps[verdict.step].screen, verdict)),
        "goal": _shorten(episode.goal),
        "subset": _shorten(verdict.subset),
        "episode": _shorten(verdict.episode),
        "step": verdict.step,
        "gold": _shorten(caption(verdict.gold)),
        "text": _shorten(verdict.text),
        "error": verdict.error,
        "reason": _shorten(verdict.reason),
        "confidence": "" if verdict.confidence is None else f"{verdict.confidence:.2f}",
    }


def _draw_error(screen: Screen, verdict: Verdict) -> Image.Image:
    pixels = screen.pixels
    for action, color in ((verdict.gold, GOLD_COLOR), (verdict.predicted, PREDICTED_COLOR)):
        if isinstance(action, Tap | Swipe):
            pixels = np.asarray(draw_action(pixels, action, color))
    image = Image.fromarray(pixels)
    image.thumbnail(MAX_THUMBNAIL_SIZE)
    return image


def _shorten(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}... ({len(text)} characters)"

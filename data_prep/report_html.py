"""The HTML report of prepared data: a folder and its report in, the text of `report.html` out.

The page needs no other file and runs no script. The same data gives the same bytes. Long texts are
truncated, and rows, bars and screens are limited, so that the page stays below MAX_BYTES.
"""

from cmath import rect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path
from typing import Any

from data_prep.split import SPLITS
from uivlm.actions.text import ActionText
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.episode import Episode
from uivlm.episodes.episode_index import EpisodeIndex, EpisodeRef
from uivlm.reports.draw import data_url, draw_action
from uivlm.reports.html import render

REPORT_HTML = "report.html"
MAX_BYTES = 4 << 20  # 32 phone screens are far below 1 MB, 32 screens of noise below 3 MB
MAX_EPISODES = 4  # samples
MAX_STEPS = 8  # screens of a sample
MAX_THUMBNAIL_SIZE = (240, 320)  # pixels (x, y)
MAX_ROWS = 20  # of a table or a list
MAX_TEXT_CHARS = 300
MAX_BARS = 28  # of the histogram; the last one is for all longer episodes
ACTION_COLOR = "#e8175d"

CELL_SIZE = 20  # SVG units, side of a cell of the heat map
PETAL_RADIUS = 90  # SVG units, of the longest petal
DIRECTIONS = (
    "right",
    "down right",
    "down",
    "down left",
    "left",
    "up left",
    "up",
    "up right",
)  # as in report.py
LEAK_LABELS = {"id": "episode id", "parent": "parent episode", "goal": "goal text"}
TOKEN_LABELS = {
    "num_episodes": "episodes", "visual_tokens_per_screen": "tokens per screen",
    "tokens_per_step": "tokens per step", "median": "median", "p95": "95 %", "longest": "longest",
    "longest_sentence": "longest sentence",
}  # fmt: skip

Cell = str | float | tuple[str, ...]  # text; a bar, 0 to 100; a list


@dataclass(frozen=True, slots=True)
class Table:
    heads: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    num_more: int = 0  # rows left out


def render_report(folder: Path, report: dict[str, Any]) -> str:
    """The page of the prepared data in `folder`."""
    damaged = [f"{part['name']}: {part['error']}" for part in report["damaged"]]
    num_damaged = f"{len(damaged):,} of {report['shards']['read']:,}"
    tiles = {"episodes": report["episodes"], "steps": report["steps"]}
    tiles |= {f"{split} episodes": count["episodes"] for split, count in report["by_split"].items()}
    return render(
        "data_report",
        title=f"Prepared data: {report['episodes']:,} episodes",
        tiles=[(name, f"{count:,}") for name, count in tiles.items()],
        damaged_title=f"⚠ Left out: {num_damaged} parts could not be read",
        damaged=_lines(damaged),
        unusable=_lines(report["unusable_examples"]),
        splits=_counts_table("split", report["by_split"]),
        subsets=_counts_table("subset", report["by_subset"]),
        outcomes=_outcomes(report),
        notes=_table(("noted", "count"), list(report["notes"].items()) or [("nothing", 0)]),
        rules=[(name, _shorten(rule)) for name, rule in _rules(report).items() if rule],
        histogram=_histogram(report["episode_lengths"]),
        actions=_share_table(("action", "steps"), report["actions"].items()),
        screens=_share_table(("screen (pixels)", "steps"), report["screens"].items()),
        heatmap=_tap_heatmap(report["tap_heatmap"]),
        rose=_swipe_rose(report["swipe_directions"]),
        leaks=_leaks(report["leaks_of_test_into_train"]),
        tokens=_tokens(report.get("tokens", {})),
        samples=_samples(PreparedData.open(folder)),
    )


def _counts_table(name: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    rows = [(part, count["episodes"], count["steps"]) for part, count in counts.items()]
    return _share_table((name, "episodes", "steps"), rows)


def _outcomes(report: dict[str, Any]) -> Table:
    """What happened to every record that was read."""
    steps, episodes = report["dropped_steps"], report["dropped_episodes"]
    rows = [("written", report["episodes"], report["steps"])]
    rows += [
        (f"dropped: {reason}", episodes.get(reason, 0), steps.get(reason, 0))
        for reason in {**steps, **episodes}
    ]
    return _share_table(("outcome", "whole episodes", "steps"), rows)


def _rules(report: dict[str, Any]) -> dict[str, str]:
    not_written, shards = report["split_ids_not_written"], report["shards"]
    duplicates = report["duplicate_ids"]
    duplicate_ids = f"{duplicates['count']:,} ({duplicates['policy']}): {', '.join(duplicates['examples'])}"
    num_read = shards["read"] - len(report["damaged"])
    missing_ids = f"{not_written['count']:,}: {', '.join(not_written['examples'])}"
    return {
        "Read": f"{report['records_read']:,} records from {num_read:,} of {shards['found']:,} parts",
        "Missing shards": ", ".join(f"{n:,} of {subset}" for subset, n in shards["missing"].items()),
        "Missing steps": report["missing_steps_policy"],
        "Split": report["split_rule"],
        "Ids not written": missing_ids if not_written["count"] else "",
        "Ids under two labels": duplicate_ids if duplicates["count"] else "",
        "Subsample of train": ", ".join(
            f"{100 * n:g} % of {subset}" for subset, n in report["subsample"].items()
        ),
    }


def _leaks(leaks: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        (
            LEAK_LABELS[name],
            f"{leak['test_episodes']:,} of {leak['of']:,}",
            _percent(leak["test_episodes"], leak["of"]),
            _lines(leak["examples"]),
        )
        for name, leak in leaks.items()
    ]
    return _table(("also in train", "test episodes", "share", "examples"), rows)


def _tokens(counts: Mapping[str, Mapping[str, float]]) -> Table | None:
    rows = [(recipe, *(count[key] for key in TOKEN_LABELS)) for recipe, count in counts.items()]
    return _table(("recipe", *TOKEN_LABELS.values()), rows) if rows else None


def _histogram(lengths: Mapping[str, int]) -> dict[str, Any]:
    longest = max(map(int, lengths))
    counts = [0] * min(longest, MAX_BARS)
    for length, count in lengths.items():
        counts[min(int(length), len(counts)) - 1] += count
    bars = []
    for i, count in enumerate(counts):
        length = f"{i + 1}+" if i + 1 == MAX_BARS < longest else f"{i + 1}"
        bars.append({
            "x": 4 + 13 * i, "height": 120 * count / max(counts), "count": f"{count:,}",
            "title": f"{length} steps: {count:,} episodes", "label": length if not i or i % 2 else "",
        })  # fmt: skip
    return {"width": 10 + 13 * MAX_BARS, "bars": bars}


def _tap_heatmap(counts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A phone: the opacity of a cell is its share of the taps."""
    total, largest = sum(map(sum, counts)), max(map(max, counts))
    cells = [
        {
            "x": CELL_SIZE * column, "y": CELL_SIZE * row,
            "opacity": 0.06 + 0.84 * count / largest if count else 0,
            "title": f"row {row + 1}, column {column + 1}: {count:,} taps ({_percent(count, total)})",
            "label": f"{100 * count / total:.0f}" if count and count >= 0.01 * total else "",
        }
        for row, row_counts in enumerate(counts) for column, count in enumerate(row_counts)
    ]  # fmt: skip
    width, height = CELL_SIZE * len(counts[0]), CELL_SIZE * len(counts)
    return {"width": width, "height": height, "cell_size": CELL_SIZE, "cells": cells, "total": f"{total:,}"}


def _swipe_rose(counts: Sequence[int]) -> dict[str, Any]:
    """Petals in the directions of the finger, y downwards as on the screen."""
    total, largest = sum(counts), max(counts)
    petals = []
    for i, (direction, count) in enumerate(zip(DIRECTIONS, counts, strict=True)):
        angle = 2 * pi * i / len(DIRECTIONS)
        radius = PETAL_RADIUS * sqrt(count / largest) if count else 0
        a, b, at = rect(radius, angle - 0.33), rect(radius, angle + 0.33), rect(PETAL_RADIUS + 10, angle)
        arc = f"A{radius:.2f} {radius:.2f} 0 0 1 {b.real:.2f} {b.imag:.2f}Z"
        petals.append({
            "path": f"M0 0L{a.real:.2f} {a.imag:.2f}{arc}",
            "title": f"{direction}: {count:,} swipes ({_percent(count, total)})",
            "x": at.real, "y": at.imag + 4,
            "label": f"{count:,}" if " " in direction else f"{direction} {count:,}",
            "anchor": "middle" if direction in ("up", "down") else "start" if at.real > 0 else "end",
        })  # fmt: skip
    return {"radius": PETAL_RADIUS, "petals": petals, "total": f"{total:,}"}


def _samples(prepared: PreparedData) -> list[dict[str, Any]]:
    refs = EpisodeIndex.of(_choose_samples(prepared.refs))
    action_text = ActionText(int(prepared.meta["num_bins"]))
    episodes = PreparedEpisodes(prepared.folder, refs)
    return [_sample(ref, episode, action_text) for ref, episode in zip(refs, episodes, strict=True)]


def _choose_samples(refs: Sequence[EpisodeRef]) -> list[EpisodeRef]:
    """Repeatedly the first episode of the split, then the subset, that has the fewest samples."""
    left: dict[tuple[str, str], list[EpisodeRef]] = {}
    for ref in refs:
        group = left.setdefault((ref.split, ref.subset), [])
        if len(group) < MAX_EPISODES:
            group.append(ref)
    order = [(split, subset) for split in SPLITS for subset in sorted({subset for _, subset in left})]
    chosen: list[EpisodeRef] = []
    for _ in range(min(MAX_EPISODES, len(refs))):
        splits, subsets = [ref.split for ref in chosen], [ref.subset for ref in chosen]
        rarest = min(filter(left.get, order), key=lambda key: (splits.count(key[0]), subsets.count(key[1])))
        chosen.append(left[rarest].pop(0))
    return chosen


def _sample(ref: EpisodeRef, episode: Episode, action_text: ActionText) -> dict[str, Any]:
    screens = []
    for step in episode.steps[:MAX_STEPS]:
        image = draw_action(step.screen.pixels, step.action, ACTION_COLOR)
        image.thumbnail(MAX_THUMBNAIL_SIZE)
        screens.append({"url": data_url(image), "action_text": _shorten(action_text.format(step.action))})
    shown = f"{len(screens)} of {len(episode.steps)} steps"
    caption = f"{_shorten(ref.split)}, {_shorten(ref.subset)}, episode {_shorten(ref.id)}: {shown}"
    return {"goal": _shorten(episode.goal), "caption": caption, "screens": screens}


def _share_table(heads: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Table:
    """A table whose last column is also shown as shares of its sum, in per cent and as bars."""
    rows = list(rows)
    total, largest = sum(row[-1] for row in rows), max(1, *(row[-1] for row in rows))
    shares = [(*row[:-1], row[-1], _percent(row[-1], total), _Bar(100 * row[-1] / largest)) for row in rows]
    return _table((*heads, "share", ""), shares)


class _Bar(float):
    """A number that is drawn, not written."""


def _table(heads: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> Table:
    cells = [tuple(map(_cell, row)) for row in rows[:MAX_ROWS]]
    return Table(heads, cells, max(0, len(rows) - MAX_ROWS))


def _cell(value: Any) -> Cell:
    match value:
        case _Bar() | tuple():
            return value
        case int() | float():
            return f"{round(value, 1):,}"
    return _shorten(value)


def _lines(lines: Sequence[str]) -> tuple[str, ...]:
    more = [f"and {len(lines) - MAX_ROWS:,} more"] * (len(lines) > MAX_ROWS)
    return tuple(map(_shorten, [*lines[:MAX_ROWS], *more]))


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else "-"


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}... ({len(text):,} characters)"

"""What the data looks like: prepared data and its report in, `report.html` beside them out.

One page that needs no other file and runs no script; the same data gives the same bytes. Text of the data is escaped
and cut where it is long; rows, bars and screens are limited, so the page stays below MOST_BYTES.
"""

import os
from cmath import rect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path
from typing import Any

from data_prep.split import SPLITS
from uivlm.actions.language import Language
from uivlm.episode import Episode, Step
from uivlm.page import page, safe
from uivlm.picture import data_url, draw_action
from uivlm.sentences.store import Episodes, Place, Prepared

PAGE = "report.html"
MOST_BYTES = 4 << 20  # of the page; 32 phone screens are far below 1 MB, 32 screens of noise below 3 MB
MOST_EPISODES = 4  # samples
MOST_STEPS = 8  # screens of a sample
SHOWN = (240, 320)  # most pixels (x, y) of a screen
MOST_ROWS = 20  # of a table or a list
MOST_TEXT = 300  # characters of one text
MOST_BARS = 28  # of the histogram; the last holds the tail
ACTION = "#e8175d"

# Units of the pictures; the ways are those of report.py's rose.
CELL = 20  # side of a heat map's cell
PETAL = 90  # radius of the longest petal
WAYS = ("right", "down right", "down", "down left", "left", "up left", "up", "up right")
LEAKS = {"id": "episode id", "parent": "parent episode", "goal": "goal text"}


@dataclass(frozen=True, slots=True)
class Html:
    code: str  # may stand in the page as it is; all else is text


def write_page(folder: Path, report: dict[str, Any]) -> Path:
    """The page of the prepared data in `folder`, whose report this is."""
    parts = (_headline, _fates, _shapes, _leaks, _tokens)
    body = "".join(part(report) for part in parts) + _samples(Prepared.open(folder))
    path, partial = folder / PAGE, folder / f"{PAGE}.partial"
    text = page(f"Prepared data: {report['episodes']:,} episodes", STYLE, body)
    # Lone surrogates are shown as codes.
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, path)
    return path


def _headline(report: dict[str, Any]) -> str:
    numbers = {"episodes": report["episodes"], "steps": report["steps"]}
    numbers |= {f"{split} episodes": count["episodes"] for split, count in report["by_split"].items()}
    tiles = "".join(f"<li><b>{n:,}</b> {_text(name)}</li>" for name, n in numbers.items())
    lost = [f"{each['name']}: {each['error']}" for each in report["damaged"]]
    title = f"⚠ Left out: {len(lost):,} of {report['shards']['read']:,} parts could not be read"
    unused = _box("warn", "The first steps that could not be used", report["unusable_examples"])
    parts = []
    for name in ("split", "subset"):
        rows = [(part, count["episodes"], count["steps"]) for part, count in report[f"by_{name}"].items()]
        parts.append(_shares((name, "episodes", "steps"), rows))
    return f'<h1>Prepared data</h1><ul class="tiles">{tiles}</ul>{_box("bad", title, lost)}{unused}{_pair(*parts)}'


def _fates(report: dict[str, Any]) -> str:
    """What became of every record that was read, and by which rules."""
    steps, whole, shards = report["dropped_steps"], report["dropped_episodes"], report["shards"]
    rows = [("written", report["episodes"], report["steps"])]
    rows += [(f"dropped: {why}", whole.get(why, 0), steps.get(why, 0)) for why in {**steps, **whole}]
    fates = _shares(("fate", "whole episodes", "steps"), rows)
    noted = _table(("noted", "how many"), list(report["notes"].items()) or [("nothing", 0)])
    unseen, num_read = report["split_ids_not_written"], shards["read"] - len(report["damaged"])
    rules = {
        "Read": f"{report['records_read']:,} records from {num_read:,} of {shards['found']:,} parts",
        "Absent by number": ", ".join(f"{n:,} of {subset}" for subset, n in shards["absent_by_name"].items()),
        "Gaps": report["gap_policy"],
        "Split": report["split_rule"],
        "Ids not found": f"{unseen['count']:,}: {', '.join(unseen['examples'])}" * bool(unseen["count"]),
        "Share of train": ", ".join(f"{100 * n:g} % of {subset}" for subset, n in report["shares"].items()),
    }
    told = "".join(f"<dt>{name}</dt><dd>{_text(rule)}</dd>" for name, rule in rules.items() if rule)
    return f"<h2>What was dropped and noted</h2>{_pair(fates, noted)}<dl>{told}</dl>"


def _shapes(report: dict[str, Any]) -> str:
    actions, screens = list(report["actions"].items()), list(report["screens"].items())
    mixes = _shares(("action", "steps"), actions) + _shares(("screen (pixels)", "steps"), screens)
    return (
        f"<h2>What the data looks like</h2>{_pair(_histogram(report['episode_lengths']), mixes)}"
        f"{_pair(_heat(report['taps']), _rose(report['swipes']))}"
    )


def _leaks(report: dict[str, Any]) -> str:
    rows = []
    for what, leak in report["leaks_of_test_into_train"].items():
        n, of = leak["test_episodes"], leak["of"]
        rows.append((LEAKS[what], f"{n:,} of {of:,}", _percent(n, of), _list(leak["examples"])))
    heads = ("in train too", "test episodes", "share", Html("such as"))
    return f"<h2>Leaks of test into train</h2>{_table(heads, rows)}"


def _tokens(report: dict[str, Any]) -> str:
    heads = ("episodes", "tokens a screen", "tokens a step", "median", "95 %", "longest", "longest sentence")
    rows = [(recipe, *(count[head] for head in heads)) for recipe, count in report.get("tokens", {}).items()]
    about = "<p>Median, 95 % and longest are of whole episodes; a sentence is what a model reads at once.</p>"
    table = f'<div style="overflow-x:auto">{_table(("recipe", *heads), rows)}</div>'
    return f"<h2>Tokens by model</h2>{table}{about}" if rows else ""


def _histogram(lengths: Mapping[str, int]) -> str:
    longest = max(map(int, lengths))
    bars = [0] * min(longest, MOST_BARS)
    for length, n in lengths.items():
        bars[min(int(length), len(bars)) - 1] += n
    drawn = [f'<path class="line" d="M2 170.5H{8 + 13 * MOST_BARS}"/>']
    for i, n in enumerate(bars):
        x, high = 4 + 13 * i, 120 * n / max(bars)
        label = f"{i + 1}+" if i + 1 == MOST_BARS < longest else f"{i + 1}"
        drawn.append(
            f'<rect x="{x}" y="{170 - high:.2f}" width="10" height="{high:.2f}"><title>{label} steps: {n:,} episodes'
            f'</title></rect><text transform="translate({x + 8} {166 - high:.2f}) rotate(-90)">{n:,}</text>'
        )
        if not i or (i + 1) % 2 == 0:
            drawn.append(_word(x + 5, 182, label))
    words = "<b>Episode lengths.</b> Above each number of steps: how many episodes have it."
    return _figure("histogram of episode lengths", f"0 0 {10 + 13 * MOST_BARS} 188", drawn, words)


def _heat(taps: Sequence[Sequence[int]]) -> str:
    """A phone: the more of all taps fall into a cell, the stronger it is."""
    total, most = sum(map(sum, taps)), max(map(max, taps))
    width, height = CELL * len(taps[0]), CELL * len(taps)
    drawn = []
    for row, counts in enumerate(taps):
        for column, n in enumerate(counts):
            x, y, strong = CELL * column, CELL * row, 0.06 + 0.84 * n / most if n else 0
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill-opacity="{strong:.3f}"><title>row '
                f"{row + 1}, column {column + 1}: {n:,} taps ({_percent(n, total)})</title></rect>"
            )
            if n and n >= 0.01 * total:
                drawn.append(_word(x + CELL / 2, y + CELL / 2 + 3, f"{100 * n / total:.0f}"))
    drawn.append(
        f'<rect class="line" x="-10" y="-28" width="{width + 20}" height="{height + 56}" rx="22"/>'
        f'<rect class="line" width="{width}" height="{height}"/><path class="line" d="M{width // 2 - 18} -14h36"/>'
        f'<circle class="line" cx="{width // 2}" cy="{height + 14}" r="7"/>'
    )
    words = f"<b>Where taps land.</b> {total:,} taps. The numbers are per cent of them, where a cell has 1 % or more."
    return _figure("heat map of taps", f"-12 -30 {width + 24} {height + 60}", drawn, words)


def _rose(swipes: Sequence[int]) -> str:
    """Petals in the directions of the finger, y downwards as on the screen."""
    total, most = sum(swipes), max(swipes)
    drawn = [f'<circle class="line" r="{PETAL}"/>']
    for i, (way, n) in enumerate(zip(WAYS, swipes, strict=True)):
        angle, radius = 2 * pi * i / len(WAYS), PETAL * sqrt(n / most) if n else 0
        a, b, at = rect(radius, angle - 0.33), rect(radius, angle + 0.33), rect(PETAL + 10, angle)
        anchor = "middle" if way in ("up", "down") else "start" if at.real > 0 else "end"
        drawn.append(
            f'<path d="M0 0L{a.real:.2f} {a.imag:.2f}A{radius:.2f} {radius:.2f} 0 0 1 {b.real:.2f} {b.imag:.2f}Z">'
            f"<title>{way}: {n:,} swipes ({_percent(n, total)})</title></path>"
        )
        drawn.append(_word(at.real, at.imag + 4, f"{n:,}" if " " in way else f"{way} {n:,}", anchor))
    words = (
        f"<b>Where fingers swipe to.</b> {total:,} swipes. Up is a finger that moves up. Areas are counts."
    )
    return _figure("swipes by direction of the finger", "-175 -125 350 250", drawn, words)


def _word(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _figure(label: str, box: str, drawn: Sequence[str], words: str) -> str:
    """At most 1.35 pixels a unit: letters are as large as a caption's."""
    head = f'<svg viewBox="{box}" style="max-width:{1.35 * int(box.split()[2]):.0f}px" role="img" aria-label="{label}">'
    return f"<figure>{head}{''.join(drawn)}</svg><figcaption>{words}</figcaption></figure>"


def _samples(prepared: Prepared) -> str:
    places = _chosen(prepared.places)
    language = Language(int(prepared.meta["bins"]))
    episodes = Episodes(prepared.folder, tuple(places))
    shown = [_sample(place, episode, language) for place, episode in zip(places, episodes, strict=True)]
    about = "<p>First episodes of the splits and subsets in turn. What was done is drawn on each screen.</p>"
    return f"<h2>Samples</h2>{about}{''.join(shown)}"


def _chosen(places: Sequence[Place]) -> list[Place]:
    """Always the first of what was shown least: of the splits, then of the subsets."""
    left: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        found = left.setdefault((place.split, place.subset), [])
        if len(found) < MOST_EPISODES:
            found.append(place)
    order = [(split, subset) for split in SPLITS for subset in sorted({subset for _, subset in left})]
    chosen: list[Place] = []
    for _ in range(min(MOST_EPISODES, len(places))):
        splits, subsets = [place.split for place in chosen], [place.subset for place in chosen]
        least = min(filter(left.get, order), key=lambda key: (splits.count(key[0]), subsets.count(key[1])))
        chosen.append(left[least].pop(0))
    return chosen


def _sample(place: Place, episode: Episode, language: Language) -> str:
    screens = [_screen(t, step, language) for t, step in enumerate(episode.steps[:MOST_STEPS], 1)]
    shown = f"{len(screens)} of {len(episode.steps)} steps"
    about = f"{_text(place.split)}, {_text(place.subset)}, episode {_text(place.id)}: {shown}"
    heading = f"<article><h3>{_text(episode.goal)}</h3><p>{about}</p>"
    return f'{heading}<div class="screens">{"".join(screens)}</div></article>'


def _screen(t: int, step: Step, language: Language) -> str:
    words = _text(language.say(step.action))
    picture = draw_action(step.screen.pixels, step.action, ACTION)
    picture.thumbnail(SHOWN)
    return (
        f'<figure><img src="{data_url(picture)}" alt="screen {t}">'
        f"<figcaption><b>{t}</b> <code>{words}</code></figcaption></figure>"
    )


def _shares(heads: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """A table whose last numbers are also shown as shares of their sum, in per cent and as bars."""
    total, most = sum(row[-1] for row in rows), max(1, *(row[-1] for row in rows))
    bar = '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none"><rect width="{:.2f}" height="8"/></svg>'
    shares = [(*row, _percent(row[-1], total), Html(bar.format(100 * row[-1] / most))) for row in rows]
    return _table((*heads, "share", ""), shares)


def _table(heads: Sequence[str | Html], rows: Sequence[tuple[Any, ...]]) -> str:
    """Numbers with separators, all text escaped; what is too long is said to be cut."""
    head = "".join(_cell(head, "th") for head in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = f'<tr><td colspan="{len(heads)}">and {len(rows) - MOST_ROWS:,} more</td></tr>'
    return f"<table><tr>{head}</tr>{body}{more * (len(rows) > MOST_ROWS)}</table>"


def _cell(value: Any, tag: str = "td") -> str:
    match value:
        case Html(code):
            return f'<{tag} class="wide">{code}</{tag}>'
        case int() | float():
            return f"<{tag}>{round(value, 1):,}</{tag}>"
    return f"<{tag}>{_text(value)}</{tag}>"


def _list(lines: Sequence[str]) -> Html:
    more = [f"and {len(lines) - MOST_ROWS:,} more"] * (len(lines) > MOST_ROWS)
    items = "".join(f"<li>{_text(line)}</li>" for line in [*lines[:MOST_ROWS], *more])
    return Html(f"<ul>{items}</ul>" if items else "none")


def _box(kind: str, title: str, lines: Sequence[str]) -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{_list(lines).code}</section>' if lines else ""


def _pair(left: str, right: str) -> str:
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


def _percent(part: int, of: int) -> str:
    return f"{100 * part / of:.1f} %" if of else "-"


def _text(text: object) -> str:
    """Text for the page, cut where it is long."""
    shown = str(text)
    return safe(shown if len(shown) <= MOST_TEXT else f"{shown[:MOST_TEXT]}... ({len(shown):,} characters)")


STYLE = """
body { max-width: 1080px } h1 { margin: 0 } h2 { margin: 2.2rem 0 .6rem } h3 { font-size: 1rem; margin: 1.4rem 0 0 }
.tiles { display: flex; flex-wrap: wrap; gap: .3rem 2rem; padding: 0; list-style: none } .tiles b { font-size: 1.7rem }
.bad, .warn { border: 2px solid #b3261e; border-left-width: 10px; padding: .2rem 1rem; margin: 1rem 0 }
.bad { background: #fdecea; color: #7a1410 } .warn { border-color: #b26a00 } section h2 { margin: .6rem 0 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 2.5rem }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; width: 100%; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .5rem; text-align: right; vertical-align: top }
th { font-weight: 600; color: #555 } td { white-space: nowrap } th:first-child, td:first-child, .wide { text-align: left }
td:first-child { min-width: 5rem } td:first-child, .wide { white-space: normal }
h3, td, li, dd, code { overflow-wrap: anywhere } @media (max-width: 500px) { td, th { font-size: 13px; padding: .2rem } } ul { margin: .2rem 0; padding-left: 1.1rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dt { color: #555 } dd { margin: 0 }
figure { margin: .6rem 0; break-inside: avoid } figcaption { font-size: 13px; margin-top: .4rem }
svg { display: block; width: 100%; font: 9px system-ui, sans-serif } svg text { fill: currentColor }
rect, path { fill: #d9730d } .line { fill: none; stroke: currentColor; opacity: .5 }
.bar { width: 7rem; max-width: 16vw; height: .7rem; margin-top: .35rem } article p { margin: 0 0 .6rem; color: #555 }
.screens { display: grid; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); gap: .8rem }
img { max-width: 100%; max-height: 320px; border: 1px solid #bbb } .screens figure { margin: 0 }
code { white-space: pre-wrap; unicode-bidi: isolate } tr, .bad, .warn { break-inside: avoid }
"""

"""How often the guard asks for a commit (recall) and for a harmless gesture (false asks).

    python bench/guard.py [--mistakes]

On the labelled gestures of tests/golden/gestures, on simulated episodes, and on the recorded screens in
../shared/real. --mistakes lists those of the development half.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from shared.gestures import LabelledGesture, asked, rates, read_corpus

from uivlm.actions.action import Point, Press, Tap
from uivlm.actions.gesture import Gesture, to_gesture
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.labels import LABEL_WORDINGS
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.episode import Element, Screen
from uivlm.safety.labels import shipped_keywords
from uivlm.safety.sensitive import sensitive_labels
from uivlm.safety.touched import touched

REAL = Path(__file__).parents[2] / "shared" / "real"
NUM_EPISODES = 200  # of the simulated phone, as many as the demo tests on
# What changes something for good on the simulated phone.
SIM_COMMITS = tuple(
    f"^{label}$"
    for label in (
        *(label for key in ("send", "checkout", "buy", "delete") for label in LABEL_WORDINGS[key]),
        *("Install", "Allow", "Update"),
    )
)

# Each makes a table of the corpus, with a row for each of its values.
KEYS: tuple[Callable[[LabelledGesture], str], ...] = (
    lambda gesture: "all",
    lambda gesture: "labels of apps" if ": " in gesture.source else "other labels",
    lambda gesture: gesture.source.split(": ")[0],
    lambda gesture: gesture.disguise,
    lambda gesture: gesture.language,
)


def main() -> None:
    gestures = read_corpus()
    asked_ids = asked(gestures, shipped_keywords())
    console = Console(width=110)
    for key in KEYS:
        console.print(_corpus_table(gestures, asked_ids, key))
    console.print(_simulated_table())
    _print_recorded(console)
    if "--mistakes" in sys.argv:
        for gesture in gestures:
            if not gesture.held_out and (gesture.id in asked_ids) != (gesture.kind == "commit"):
                text = f"{gesture.kind} {gesture.id}: {' | '.join(gesture.texts)} ({gesture.source})"
                console.print(text, markup=False, highlight=False)


def _corpus_table(
    gestures: list[LabelledGesture], asked_ids: frozenset[str], key: Callable[[LabelledGesture], str]
) -> Table:
    table = _table("", "recall, development", "false asks", "recall, held out", "false asks")
    for value in dict.fromkeys(key(gesture) for gesture in gestures):
        cells = []
        for held_out in (False, True):
            half = [g for g in gestures if key(g) == value and g.held_out == held_out]
            found = rates(half, asked_ids)
            cells.append(_share(found.asked_commits, found.commits))
            cells.append(_share(found.asked_harmless, found.harmless))
        table.add_row(value, *cells)
    return table


def _simulated_table() -> Table:
    counts: dict[tuple[str, bool], list[bool]] = {}
    for seed in range(NUM_EPISODES):
        for step in record_demonstration(make_task(seed, "test")).steps:
            if not isinstance(step.action, Tap | Press):
                continue
            gesture = to_gesture(step.action, *step.screen.pixels.shape[:2])
            assert gesture is not None
            labels = _asked_labels(gesture, step.screen, shipped_keywords())
            is_commit = bool(_asked_labels(gesture, step.screen, SIM_COMMITS))
            name = "tap" if isinstance(step.action, Tap) else step.action.key
            counts.setdefault((name, is_commit), []).append(bool(labels))
    table = _table(f"{NUM_EPISODES} simulated episodes", "recall", "false asks")
    for name in ("tap", "enter"):
        commits, harmless = counts.get((name, True), []), counts.get((name, False), [])
        table.add_row(name, _share(sum(commits), len(commits)), _share(sum(harmless), len(harmless)))
    return table


def _print_recorded(console: Console) -> None:
    if not (REAL / "episodes.jsonl").is_file():
        console.print(f"recorded screens: skipped, {REAL} has no episodes.jsonl")
        return
    taps = [row for row in _rows("episodes.jsonl") if _is_tap(row)]
    found = [_asked_at(_annotated(row), *row["results/yx_touch"]) for row in taps]
    console.print(
        f"recorded taps: {sum(map(bool, found))} of {len(taps)} asked for:", [t for t in found if t]
    )
    buttons: dict[str, tuple[str, ...]] = {}
    for row in _rows("view_hierarchies.jsonl"):
        elements = _nodes(row)
        for element in (element for element in elements if element.clickable and element.text):
            buttons[element.text] = _asked_at(elements, *_center(element))
    console.print(
        f"labels of clickable elements on recorded screens: {sum(map(bool, buttons.values()))} of "
        f"{len(buttons)} asked for:",
        [labels for labels in buttons.values() if labels],
    )


def _asked_labels(gesture: Gesture, screen: Screen, keywords: tuple[str, ...]) -> tuple[str, ...]:
    """The labels for which the guard asks."""
    return sensitive_labels(touched(gesture, screen, screen.elements).labels, keywords)


def _asked_at(elements: list[Element], y: float, x: float) -> tuple[str, ...]:
    screen = Screen(np.zeros((2400, 1080, 3), np.uint8), tuple(elements))
    gesture = to_gesture(Tap(Point(y, x)), 2400, 1080)
    assert gesture is not None
    return _asked_labels(gesture, screen, shipped_keywords())


def _rows(name: str) -> Iterable[dict[str, Any]]:
    return (json.loads(line) for line in (REAL / name).read_text("utf-8").splitlines())


def _is_tap(row: dict[str, Any]) -> bool:
    touch, lift = row["results/yx_touch"], row["results/yx_lift"]
    return (
        row["results/action_type"] == 4 and max(abs(a - b) for a, b in zip(touch, lift, strict=True)) < 0.04
    )


def _annotated(row: dict[str, Any]) -> list[Element]:
    return [
        Element(*box, text)
        for box, text in zip(
            row["image/ui_annotations_positions"], row["image/ui_annotations_text"], strict=True
        )
    ]


def _nodes(row: dict[str, Any]) -> list[Element]:
    """The visible nodes of an accessibility tree."""
    width, height = row["width"], row["height"]
    return [
        Element(
            top / height,
            left / width,
            (bottom - top) / height,
            (right - left) / width,
            node["text"] or node["content_description"] or "",
            clickable=node["clickable"] or node["long_clickable"],
        )
        for node in row["nodes"]
        if node["visible"]
        for left, top, right, bottom in [node["bounds_px"]]
    ]


def _center(element: Element) -> tuple[float, float]:
    return element.y + element.height / 2, element.x + element.width / 2


def _table(*heads: str) -> Table:
    table = Table()
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left")
    return table


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / total:.1f} %)" if total else "-"


if __name__ == "__main__":
    main()

"""The report of a preparation: a plan in, the content of `report.json` and a table for the terminal out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from data_prep.formats.aitw import missing_shards
from data_prep.index import DictionaryColumn, RecordIndex
from data_prep.plan import MISSING_STEPS_POLICIES, PlannedEpisode, PrepPlan
from data_prep.settings import PrepSettings
from data_prep.split import MAX_EXAMPLES, SPLITS, find_leaks

HEATMAP_SHAPE = 20, 10  # rows and columns
NUM_SWIPE_DIRECTIONS = 8  # clockwise on the screen, starting to the right


def make_report(
    plan: PrepPlan,
    index: RecordIndex,
    settings: PrepSettings,
    part_infos: Sequence[dict[str, Any]],
    num_parts: int,
    unusable: list[str],
) -> dict[str, Any]:
    """The content of report.json. Every record is either a written step or counted as dropped."""
    episodes, selection = plan.episodes, settings.selection
    records = np.concatenate([episode.records for episode in episodes])
    taps, swipes = (records[_value_mask(index.action_type, records, name)] for name in ("tap", "swipe"))
    lengths = sorted(map(len, episodes))
    written = {episode.id for episode in episodes}
    not_written = [i for i in selection.rule.labels or {} if i not in written]
    dropped_boxes = int(index.dropped_boxes[records].sum())
    damaged = [{"name": part["name"], "error": part["error"]} for part in part_infos if "error" in part]
    return {
        "shards": {
            "read": len(part_infos), "found": num_parts,
            "missing": missing_shards(part["name"] for part in part_infos),
        },
        "damaged": damaged,
        "records_read": plan.num_records,
        "episodes": len(episodes),
        "steps": len(records),
        "by_split": {s: _episode_counts(e for e in episodes if e.split == s) for s in SPLITS},
        "by_subset": {
            s: _episode_counts(e for e in episodes if e.subset == s)
            for s in sorted({e.subset for e in episodes})
        },
        "split_rule": selection.rule.name,
        "split_ids_not_written": {"count": len(not_written), "examples": not_written[:MAX_EXAMPLES]},
        "duplicate_ids": {
            "policy": selection.rule.duplicate_policy, "count": len(selection.rule.duplicate_ids),
            "examples": sorted(selection.rule.duplicate_ids)[:MAX_EXAMPLES],
        },
        "subsample": dict(selection.subsample),
        "missing_steps_policy": f"{settings.missing_steps}: {MISSING_STEPS_POLICIES[settings.missing_steps]}",
        "dropped_steps": dict(plan.dropped_steps),
        "dropped_episodes": dict(plan.dropped_episodes),
        "unusable_examples": unusable,
        "notes": {**plan.notes, **({"boxes left out": dropped_boxes} if dropped_boxes else {})},
        "episode_length": {
            "shortest": lengths[0], "median": lengths[len(lengths) // 2], "longest": lengths[-1],
        },
        "episode_lengths": {str(length): n for length, n in sorted(Counter(lengths).items())},
        "actions": _value_counts(index.action_type, records),
        "screens": {f"{w}x{h}": n for (h, w), n in _size_counts(index.screen_size[records])},
        "tap_heatmap": _tap_heatmap(index.points[taps]),
        "swipe_directions": _swipe_direction_counts(index.points[swipes]),
        "leaks_of_test_into_train": find_leaks((e.id, e.goal, e.split) for e in episodes),
    }  # fmt: skip


def _episode_counts(episodes: Iterable[PlannedEpisode]) -> dict[str, int]:
    lengths = [len(episode) for episode in episodes]
    return {"episodes": len(lengths), "steps": sum(lengths)}


def _value_counts(column: DictionaryColumn, records: NDArray[np.int64]) -> dict[str, int]:
    counts = np.bincount(column.codes[records], minlength=len(column.values)).tolist()
    return dict(sorted(zip(column.values, counts, strict=True), key=lambda item: (-item[1], item[0])))


def _value_mask(column: DictionaryColumn, records: NDArray[np.int64], value: str) -> NDArray[np.bool_]:
    code = list(column.values).index(value) if value in column.values else -2
    return np.asarray(column.codes[records] == code)


def _size_counts(sizes: NDArray[np.int32]) -> list[tuple[tuple[int, int], int]]:
    values, counts = np.unique(sizes, axis=0, return_counts=True)
    pairs = [((int(height), int(width)), int(n)) for (height, width), n in zip(values, counts, strict=True)]
    return sorted(pairs, key=lambda item: (-item[1], item[0]))


def _tap_heatmap(points: NDArray[np.float32]) -> list[list[int]]:
    """The number of taps in each cell of the screen, row by row from the top."""
    rows, columns = HEATMAP_SHAPE
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], (rows, columns), ((0, 1), (0, 1)))
    return [[int(n) for n in row] for row in counts]


def _swipe_direction_counts(points: NDArray[np.float32]) -> list[int]:
    """The number of swipes per direction, by the vector from touch to lift."""
    angle = np.arctan2(points[:, 2] - points[:, 0], points[:, 3] - points[:, 1])
    counts = np.bincount(
        np.rint(angle / (2 * np.pi / NUM_SWIPE_DIRECTIONS)).astype(int) % NUM_SWIPE_DIRECTIONS,
        minlength=NUM_SWIPE_DIRECTIONS,
    )
    return [int(n) for n in counts]


def nothing_left_message(source: str, plan: PrepPlan, unusable: list[str]) -> str:
    """Why no episode of `source` is left: the reasons of its steps, of its episodes, and an example."""
    counts = [
        f"Dropped {name}: {', '.join(f'{count:,} {reason}' for reason, count in dropped.most_common())}"
        for name, dropped in (("steps", plan.dropped_steps), ("episodes", plan.dropped_episodes))
        if dropped
    ]
    example = [f"For example, {unusable[0]}"] if unusable else []
    return ". ".join(
        [f"no episode of {source} is left to write", *(counts or ["It has no records"]), *example]
    )


def print_report(report: dict[str, Any], console: Console) -> None:
    """The report as one table."""
    table = Table("item", "name", "count", title="Prepared data")
    shards = report["shards"]
    table.add_row("parts read", f"of {shards['found']} found", f"{shards['read'] - len(report['damaged'])}")
    for subset, count in shards["missing"].items():
        table.add_row("missing shards", f"{subset}, by number", f"{count}")
    table.add_row("records read", "", f"{report['records_read']:,}")
    for name, parts in (("split", report["by_split"]), ("subset", report["by_subset"])):
        for part, count in parts.items():
            table.add_row(name, part, f"{count['episodes']:,} episodes, {count['steps']:,} steps")
    for name, key in (("dropped", "dropped_steps"), ("dropped", "dropped_episodes"), ("noted", "notes")):
        unit = {"dropped_steps": " steps", "dropped_episodes": " episodes"}.get(key, "")
        for reason, count in report[key].items():
            table.add_row(name, reason, f"{count:,}{unit}")
    length = report["episode_length"]
    table.add_row(
        "steps per episode", "shortest, median, longest", ", ".join(str(n) for n in length.values())
    )
    for name, key in (("action", "actions"), ("screen", "screens")):
        for value, count in report[key].items():
            table.add_row(name, value, f"{count:,}")
    for name, leak in report["leaks_of_test_into_train"].items():
        overlap = f"{leak['test_episodes']:,} of {leak['of']:,}"
        table.add_row("leak", f"test episodes whose {name} is in train", overlap)
    console.print(table)
    console.print(
        f"Split: {report['split_rule']}. Missing steps: {report['missing_steps_policy']}.", markup=False
    )
    if not_written := report["split_ids_not_written"]["count"]:
        console.print(f"{not_written:,} ids of the split file are missing or were dropped.", markup=False)
    if duplicates := report["duplicate_ids"]["count"]:
        policy = report["duplicate_ids"]["policy"]
        console.print(f"{duplicates:,} ids are under two labels of the split files: {policy}.", markup=False)
    for message in report["unusable_examples"]:
        console.print(f"unusable: {message}", markup=False)
    for one in report["damaged"]:
        console.print(f"left out: {one['name']}: {one['error']}", style="red", markup=False)

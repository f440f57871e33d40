"""What happened to the data: a plan in, numbers for `report.json` and tables for people out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from data_prep.episodes import POLICIES, Plan, Planned
from data_prep.formats.aitw import absent
from data_prep.index import Index, Named
from data_prep.settings import Settings
from data_prep.split import EXAMPLES, SPLITS, leaks

GRID = 20, 10  # rows and columns of the tap heat map
ROSE = 8  # directions of the swipe rose, the first to the right, then downwards


def make_report(
    plan: Plan,
    index: Index,
    settings: Settings,
    told: Sequence[dict[str, Any]],
    num_parts: int,
    unusable: list[str],
) -> dict[str, Any]:
    """Every record read is either a step written or counted among the drops."""
    episodes, choice = plan.episodes, settings.choice
    records = np.concatenate([episode.records for episode in episodes])
    lengths = sorted(map(len, episodes))
    written = {episode.id for episode in episodes}
    unseen = [i for i in choice.rule.labels or {} if i not in written]
    damaged = [{"name": each["name"], "error": each["error"]} for each in told if "error" in each]
    return {
        "shards": {
            "read": len(told), "found": num_parts, "absent_by_name": absent(each["name"] for each in told),
        },
        "damaged": damaged,
        "records_read": plan.num_records,
        "episodes": len(episodes),
        "steps": len(records),
        "by_split": {s: _count(e for e in episodes if e.split == s) for s in SPLITS},
        "by_subset": {s: _count(e for e in episodes if e.subset == s) for s in sorted({e.subset for e in episodes})},
        "split_rule": choice.rule.name,
        "split_ids_not_written": {"count": len(unseen), "examples": unseen[:EXAMPLES]},
        "shares": dict(choice.shares),
        "gap_policy": f"{settings.gaps}: {POLICIES[settings.gaps]}",
        "dropped_steps": dict(plan.dropped_steps),
        "dropped_episodes": dict(plan.dropped_episodes),
        "unusable_examples": unusable,
        "notes": dict(plan.notes),
        "episode_length": {
            "shortest": lengths[0], "median": lengths[len(lengths) // 2], "longest": lengths[-1],
        },
        "episode_lengths": {str(length): n for length, n in sorted(Counter(lengths).items())},
        "actions": _counted(index.kind, records),
        "screens": {f"{w}x{h}": n for (h, w), n in _sizes(index.size[records])},
        "taps": _heat(index.points[records[_are(index.kind, records, "tap")]]),
        "swipes": _rose(index.points[records[_are(index.kind, records, "swipe")]]),
        "leaks_of_test_into_train": leaks((e.id, e.goal, e.split) for e in episodes),
    }  # fmt: skip


def _count(episodes: Iterable[Planned]) -> dict[str, int]:
    lengths = [len(episode) for episode in episodes]
    return {"episodes": len(lengths), "steps": sum(lengths)}


def _counted(column: Named, records: NDArray[np.int64]) -> dict[str, int]:
    counts = np.bincount(column.codes[records], minlength=len(column.values)).tolist()
    return dict(sorted(zip(column.values, counts, strict=True), key=lambda each: (-each[1], each[0])))


def _are(column: Named, records: NDArray[np.int64], value: str) -> NDArray[np.bool_]:
    code = list(column.values).index(value) if value in column.values else -2
    return np.asarray(column.codes[records] == code)


def _sizes(sizes: NDArray[np.int32]) -> list[tuple[tuple[int, int], int]]:
    found, counts = np.unique(sizes, axis=0, return_counts=True)
    named = [((int(height), int(width)), int(n)) for (height, width), n in zip(found, counts, strict=True)]
    return sorted(named, key=lambda each: (-each[1], each[0]))


def _heat(points: NDArray[np.float32]) -> list[list[int]]:
    """How many taps fall into each cell of the screen, row by row from the top."""
    rows, columns = GRID
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], (rows, columns), ((0, 1), (0, 1)))
    return [[int(n) for n in row] for row in counts]


def _rose(points: NDArray[np.float32]) -> list[int]:
    """How many swipes go each way, by the vector from touch to lift."""
    way = np.arctan2(points[:, 2] - points[:, 0], points[:, 3] - points[:, 1])
    counts = np.bincount(np.rint(way / (2 * np.pi / ROSE)).astype(int) % ROSE, minlength=ROSE)
    return [int(n) for n in counts]


def print_report(report: dict[str, Any], console: Console) -> None:
    """The report as one table."""
    table = Table("what", "which", "how many", title="Prepared data")
    shards = report["shards"]
    table.add_row("parts read", f"of {shards['found']} found", f"{shards['read'] - len(report['damaged'])}")
    for subset, count in shards["absent_by_name"].items():
        table.add_row("shards absent", f"of {subset}, by their numbers", f"{count}")
    table.add_row("records read", "", f"{report['records_read']:,}")
    for name, parts in (("split", report["by_split"]), ("subset", report["by_subset"])):
        for part, count in parts.items():
            table.add_row(name, part, f"{count['episodes']:,} episodes, {count['steps']:,} steps")
    for name, key in (("dropped", "dropped_steps"), ("dropped", "dropped_episodes"), ("seen", "notes")):
        unit = {"dropped_steps": " steps", "dropped_episodes": " episodes"}.get(key, "")
        for why, count in report[key].items():
            table.add_row(name, why, f"{count:,}{unit}")
    length = report["episode_length"]
    table.add_row("steps an episode", "shortest, median, longest", ", ".join(str(n) for n in length.values()))
    for name, key in (("action", "actions"), ("screen", "screens")):
        for which, count in report[key].items():
            table.add_row(name, which, f"{count:,}")
    for what, leak in report["leaks_of_test_into_train"].items():
        table.add_row(
            "leak", f"test episodes whose {what} is in train", f"{leak['test_episodes']:,} of {leak['of']:,}"
        )
    console.print(table)
    console.print(f"Split: {report['split_rule']}. Gaps: {report['gap_policy']}.", markup=False)
    if unseen := report["split_ids_not_written"]["count"]:
        console.print(
            f"{unseen:,} ids of the split file were not in the data, or were dropped.", markup=False
        )
    for sentence in report["unusable_examples"]:
        console.print(f"unusable: {sentence}", markup=False)
    for one in report["damaged"]:
        console.print(f"left out: {one['name']}: {one['error']}", style="red", markup=False)

"""What happened to the data: a plan in, numbers for `report.json` and tables for people out."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from data_prep.episodes import POLICIES, Gaps, Plan
from data_prep.split import EXAMPLES, SPLITS, SplitRule, leaks


def make_report(
    plan: Plan, rule: SplitRule, gaps: Gaps, num_shards: tuple[int, int], absent: dict[str, int]
) -> dict[str, Any]:
    """Every record read is either a step written or counted among the drops."""
    episodes = plan.episodes
    steps = [entry for episode in episodes for entry in episode.steps]
    lengths = sorted(len(episode.steps) for episode in episodes)
    written = {episode.id for episode in episodes}
    listed = rule.labels or {}
    unseen = [i for i in listed if i not in written]
    return {
        "shards": {"read": num_shards[0], "found": num_shards[1], "absent_by_name": absent},
        "records_read": plan.num_records,
        "episodes": len(episodes),
        "steps": len(steps),
        "by_split": {s: _count([e for e in episodes if e.split == s]) for s in SPLITS},
        "by_subset": {s: _count([e for e in episodes if e.subset == s]) for s in sorted({e.subset for e in episodes})},
        "split_rule": rule.name,
        "split_ids_not_written": {"count": len(unseen), "examples": unseen[:EXAMPLES]},
        "gap_policy": f"{gaps}: {POLICIES[gaps]}",
        "dropped_steps": dict(plan.dropped_steps),
        "dropped_episodes": dict(plan.dropped_episodes),
        "notes": dict(plan.notes),
        "episode_length": {
            "shortest": lengths[0], "median": lengths[len(lengths) // 2], "longest": lengths[-1],
        },
        "actions": dict(Counter(entry.kind for entry in steps).most_common()),
        "screens": {f"{w}x{h}": n for (h, w), n in Counter(entry.size for entry in steps).most_common()},
        "leaks_of_test_into_train": leaks((e.id, e.goal, e.split) for e in episodes),
    }  # fmt: skip


def _count(episodes: list[Any]) -> dict[str, int]:
    return {"episodes": len(episodes), "steps": sum(len(episode.steps) for episode in episodes)}


def print_report(report: dict[str, Any], console: Console) -> None:
    """The report as one table."""
    table = Table("what", "which", "how many", title="Prepared data")
    shards = report["shards"]
    table.add_row("shards read", f"of {shards['found']} found", f"{shards['read']}")
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

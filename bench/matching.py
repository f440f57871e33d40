"""AITW's matching: microseconds per pair, one by one and in a batch, on the golden pairs of the released
code.

    python bench/matching.py

The golden file is that of the tests (UIVLM_GOLDEN names another folder). Both functions must give its
verdicts.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm.actions.matching import fields_match, fields_match_batch

GOLDEN = Path(os.environ.get("UIVLM_GOLDEN", Path(__file__).parents[1] / "tests" / "golden"))
NUM_RUNS, NUM_REPEATS = 5, 20  # the fastest run counts; the batch repeats the file


def main() -> None:
    lines = (GOLDEN / "aitw_matching.jsonl").read_text("utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["match"] is not None]
    fields = [
        [row[a][name] for row in rows] for a in ("a1", "a2") for name in ("touch_yx", "lift_yx", "type")
    ]
    boxes = [row["boxes"] for row in rows]
    pairs = list(zip(*fields, boxes, strict=True))
    golden = [row["match"] for row in rows]
    assert [fields_match(*pair) for pair in pairs] == golden, "not the reference's verdicts"
    assert fields_match_batch(*fields, boxes).tolist() == golden, "not the reference's verdicts"
    single = _fastest(lambda: [fields_match(*pair) for pair in pairs]) / len(rows)
    columns = [column * NUM_REPEATS for column in fields]
    batched = _fastest(lambda: fields_match_batch(*columns, boxes * NUM_REPEATS)) / len(rows) / NUM_REPEATS
    table = Table(title=f"{len(rows)} golden pairs, {sum(map(len, boxes)) / len(rows):.1f} boxes per pair")
    for head in ("", "microseconds per pair", "ratio"):
        table.add_column(head, justify="right" if head else "left")
    table.add_row("one by one", f"{1e6 * single:.1f}", "1.0")
    table.add_row(
        f"batch ({len(rows) * NUM_REPEATS:,} pairs)", f"{1e6 * batched:.2f}", f"{single / batched:.1f}"
    )
    Console().print(table)


def _fastest(fn: Callable[[], object]) -> float:
    seconds = []
    for _ in range(NUM_RUNS):
        started = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


if __name__ == "__main__":
    main()

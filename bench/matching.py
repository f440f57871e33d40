"""AITW's matching: microseconds a pair, one by one and all at once, on the golden pairs of the released code.

    python bench/matching.py

The golden file is the one of the tests (UIVLM_GOLDEN names another folder). Both ways must give its verdicts.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from uivlm.evaluation.match import fields_match, fields_match_all

GOLDEN = Path(os.environ.get("UIVLM_GOLDEN", Path(__file__).parents[1] / "tests" / "golden"))
RUNS, TIMES = 5, 20  # the fastest run counts; the file so many times over, for all at once


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
    assert fields_match_all(*fields, boxes).tolist() == golden, "not the reference's verdicts"
    one = _fastest(lambda: [fields_match(*pair) for pair in pairs]) / len(rows)
    many = [column * TIMES for column in fields]
    at_once = _fastest(lambda: fields_match_all(*many, boxes * TIMES)) / len(rows) / TIMES
    table = Table(title=f"{len(rows)} golden pairs, {sum(map(len, boxes)) / len(rows):.1f} boxes a pair")
    for head in ("", "microseconds a pair", "ratio"):
        table.add_column(head, justify="right" if head else "left")
    table.add_row("one by one", f"{1e6 * one:.1f}", "1.0")
    table.add_row(
        f"all at once ({len(rows) * TIMES:,} pairs)", f"{1e6 * at_once:.2f}", f"{one / at_once:.1f}"
    )
    Console().print(table)


def _fastest(work: Callable[[], object]) -> float:
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


if __name__ == "__main__":
    main()

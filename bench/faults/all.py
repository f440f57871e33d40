"""Faults and attacks, one table: what was tried, what was promised, what was measured. Loopback only.

    python bench/faults/all.py

The rows are the same each time, and so are the seeds. The status is 1 if a promise does not hold, or if an
attack was left out because ten minutes were over.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # of `shared`

import console_attacks
import kills
import server_attacks
import shell_texts
from rich.console import Console
from rich.table import Table
from row import Attack, Row

MAX_SECONDS = 600  # after them no attack begins


def main() -> int:
    start, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="faults-"))
    console, rows = Console(width=160), list[Row]()
    try:
        for attack in attacks(folder):
            began = time.monotonic()
            if began - start > MAX_SECONDS:
                rows.append(Row(attack.name, attack.promise, "not measured: ten minutes are over", False))
            else:
                rows.append(attack.run())
            mark = "held" if rows[-1].holds else "BROKEN"
            console.print(f"{mark}: {attack.name} ({time.monotonic() - began:.0f} s)", highlight=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(table(rows))
    broken = sum(not row.holds for row in rows)
    console.print(f"{len(rows)} attacks, {broken} broken promises, {time.monotonic() - start:.0f} s")
    return 1 if broken else 0


def attacks(folder: Path) -> Iterator[Attack]:
    """In the order of the table. Servers live while their attacks are measured."""
    yield from server_attacks.attacks(folder)
    yield from kills.attacks(folder)
    yield from shell_texts.attacks(folder)
    yield from console_attacks.attacks(folder)


def table(rows: list[Row]) -> Table:
    result = Table(title="attacks and faults")
    for heading in ("attack", "promise", "measured", "holds"):
        result.add_column(heading, overflow="fold")
    for row in rows:
        result.add_row(row.attack, row.promise, row.measured, "yes" if row.holds else "NO")
    return result


if __name__ == "__main__":
    sys.exit(main())

"""`uivlm train` in two processes of which one is at fault. The first argument says how:

late: two machines; process 0 is slow to look at the output folder, and process 1 to read the best weights.
fails: process 1 cannot read its second batch, and process 0 does not notice, because it sleeps.

tests/training/test_distributed.py runs this program; the further arguments are those of `uivlm`.
"""

import os
import sys
import time
from typing import Any

from uivlm.cli.main import main
from uivlm.training import train
from uivlm.training.collator import Collator

SLEEP_SECONDS = 120


def look_late() -> None:
    look = train.check_new_dir

    def late(out: Any) -> None:
        time.sleep(4)
        look(out)

    os.environ["LOCAL_RANK"] = "0"
    read = train.adapters.load_extra

    def read_late(*args: Any) -> None:
        time.sleep(2)
        read(*args)

    if os.environ["RANK"] == "0":
        train.check_new_dir = late
    else:
        train.adapters.load_extra = read_late


def fail_in_second_batch() -> None:
    collate, batches = Collator.__call__, []

    def collate_until(self: Collator, rows: Any) -> Any:
        batches.append(rows)
        if len(batches) > 2:
            if os.environ["RANK"] == "1":
                raise ValueError("this row is broken")
            time.sleep(SLEEP_SECONDS)
        return collate(self, rows)

    Collator.__call__ = collate_until  # type: ignore[method-assign]


if __name__ == "__main__":
    {"late": look_late, "fails": fail_in_second_batch}[sys.argv[1]]()
    sys.argv = ["uivlm", *sys.argv[2:]]
    main()

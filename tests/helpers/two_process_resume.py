"""A run in each of several processes: a whole one, one that stops in its second epoch, or one that resumes.

tests/training/test_resume.py runs this program. Arguments: the folder of a base and of data, the checkpoint,
and `whole`, `stopped` or `resumed`.
"""

import sys
from pathlib import Path

STOPPED_AT = 5  # of 9 steps; the last checkpoint is that of step 4


def main(root: str, out: str, part: str) -> None:
    # here, since each data loader worker imports this file too, and needs none of it
    import pytest

    from tests.helpers.training_runs import StoppedError, dropping, stop_at
    from uivlm.training.callbacks import ProgressLogger
    from uivlm.training.train import exit_distributed, train

    if part == "stopped":
        ProgressLogger.on_step_end = stop_at(STOPPED_AT)  # type: ignore[method-assign]
        with pytest.raises(StoppedError):
            train(dropping(Path(root)), out)
    else:
        train(dropping(Path(root)), out, resume=part == "resumed")
    exit_distributed()


if __name__ == "__main__":
    main(*sys.argv[1:])

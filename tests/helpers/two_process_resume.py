"""A whole run, and one that stops within its second epoch and resumes, in each of two processes.

tests/training/test_resume.py runs this program. Arguments: the folder of a base and of data, and the folder
for the checkpoints `whole` and `resumed`.
"""

import sys
from pathlib import Path

STOPPED_AT = 5  # of 9 steps; the last checkpoint is that of step 4


def main(root: str, out: str) -> None:
    # here, since each data loader worker imports this file too, and needs none of it
    import pytest

    from tests.helpers.training_runs import StoppedError, dropping, stop_at
    from uivlm.training.callbacks import ProgressLogger
    from uivlm.training.train import exit_distributed, train

    recipe, folder = dropping(Path(root)), Path(out)
    train(recipe, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressLogger, "on_step_end", stop_at(STOPPED_AT), raising=False)
        with pytest.raises(StoppedError):
            train(recipe, folder / "resumed")
    train(recipe, folder / "resumed", resume=True)
    exit_distributed()


if __name__ == "__main__":
    main(*sys.argv[1:])

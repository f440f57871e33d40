"""The losses of the recipe `tiny` are those of the golden file.

    python -m pytest tests/training/test_golden_losses.py --write-golden      renews it

A changed file changes what every user trains: the commit must explain the difference.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import episode, prepare, with_settings
from uivlm.recipe import DataArgs, load
from uivlm.training.train import train

pytestmark = pytest.mark.slow

LOSSES = ROOT / "tests" / "golden" / "losses" / "tiny.txt"
NUM_STEPS = 10


def test_losses_of_the_tiny_recipe(tmp_path: Path, write_golden: bool) -> None:
    data = prepare(tmp_path / "data", [episode(seed, 1 + seed % 4) for seed in range(16)])
    recipe = replace(load("tiny"), data=DataArgs(str(data)))
    out = train(with_settings(recipe, epochs=5.0, num_workers=0), tmp_path / "out")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines[:NUM_STEPS]}
    assert len(losses) == NUM_STEPS
    if write_golden:
        LOSSES.write_text("".join(f"{step} {loss:.6f}\n" for step, loss in losses.items()))
    golden = [line.split() for line in LOSSES.read_text().splitlines()]
    assert losses == pytest.approx({int(step): float(loss) for step, loss in golden}, rel=1e-3)

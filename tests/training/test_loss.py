"""The loss and the metrics of a step."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.training_runs import EPISODES, history, small, windows
from uivlm.actions.text import action_type
from uivlm.episodes.encode import IGNORE, encode
from uivlm.models.build import build, prompt_format
from uivlm.training.metrics import Meter, StepCounts


@pytest.mark.slow
def test_every_layout_of_a_step_gives_the_same_loss_and_gradient(root: Path, tmp_path: Path) -> None:
    """Batch 8, 4 x 2 and 1 x 8: rows of very different numbers of trained tokens."""
    runs = [
        history(
            root, tmp_path / f"{b}x{a}", per_device_batch_size=b, gradient_accumulation_steps=a, epochs=1.0
        )
        for b, a in ((8, 1), (4, 2), (1, 8))
    ]
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in run] for run in runs])
        assert values.shape == (3, 2), "ten rows: one whole step and a short one"
        assert np.allclose(values, values[0], rtol=1e-4), (name, values)


def test_the_logged_loss_is_the_mean_over_trained_tokens(root: Path, tmp_path: Path) -> None:
    """By hand: the base's own log-probabilities of every trained token of all rows."""
    line = history(root, tmp_path / "out", per_device_batch_size=16, epochs=1.0)[0]
    built = build(small(root))
    nats: dict[str, list[float]] = defaultdict(list)  # of each kind of action
    spoken = prompt_format(small(root))
    tokens = 0
    for one in EPISODES:
        for window in spoken.windows(one):
            example = encode(spoken.sentence(window), built.processor)
            tokens += len(example.input_ids)
            with torch.inference_mode():
                logits = built.model(
                    torch.tensor(example.input_ids)[None], torch.tensor(np.stack(example.pixels))
                ).logits[0]
            actions = [
                action_type(step.action).replace(" ", "_") for step in window.steps[window.first_trained :]
            ]
            for i in np.flatnonzero(example.labels != IGNORE):
                nats[actions[0]].append(-float(logits[i - 1].log_softmax(-1)[example.labels[i]]))
                if example.labels[i] == built.processor.eos_id:
                    del actions[0]
    assert line["loss"] == pytest.approx(np.mean(np.concatenate(list(nats.values()))), rel=1e-4)
    means = {f"loss_{name}": float(np.mean(values)) for name, values in nats.items()}
    assert len(means) > 3
    assert {name for name in line if name.startswith("loss_")} == {*means, "loss_macro"}
    for name, mean in means.items():
        assert line[name] == pytest.approx(mean, rel=1e-4), name
    assert line["loss_macro"] == pytest.approx(np.mean(list(means.values())), rel=1e-4)


def test_the_log_tells_how_fast_it_went(root: Path, tmp_path: Path) -> None:
    """Counts by hand, of one epoch in two steps; a rate times its time is a count."""
    lines = history(root, tmp_path / "out", per_device_batch_size=8, epochs=1.0)
    assert len(lines) == 2
    for line in lines:
        assert 0 <= line["data_loading_fraction"] <= 1
        assert line["peak_memory_gb"] > 0.01
        assert 0 < line["mfu"] < 1
        assert line["tokens_per_second"] > line["screens_per_second"] > line["episodes_per_second"] >= 0
    rows = windows()
    one = Meter(lambda sums: sums, 50e12)
    one.started -= 2.0
    for i in range(len(rows)):
        row = rows[i]
        one.add(
            torch.ones(len(row.action_types)),
            torch.from_numpy(row.action_types),
            StepCounts(len(row.input_ids), len(row.num_visual_tokens), int(row.first_window), 5e12),
        )
    told = one.flush()
    assert told["tflops"] == pytest.approx(5 * len(rows) / 2, rel=0.05)
    assert told["mfu"] == pytest.approx(told["tflops"] / 50)
    assert told["episodes_per_second"] == pytest.approx(len(EPISODES) / 2, rel=0.05)
    assert told["screens_per_second"] == pytest.approx(rows.index.num_screens.sum() / 2, rel=0.05)
    assert {value for name, value in told.items() if name.startswith("loss_")} == {1.0}
    one.started -= 1.0
    assert one.flush()["screens_per_second"] == 0, "each step is counted alone"

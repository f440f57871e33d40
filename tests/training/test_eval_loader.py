"""Validation in batches, by workers and shared by processes: the figures of one row at a time."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.tiny_models import episode
from tests.helpers.training_runs import dataset, small
from uivlm.actions.text import ACTION_TYPES
from uivlm.models.build import build, prompt_format
from uivlm.training.dataset import WindowDataset
from uivlm.training.validation import make_eval_loader, validate

pytestmark = pytest.mark.slow

NUM_STEPS = (6, 1, 3, 5, 2, 6, 4)  # ten windows of very different lengths


class KnowsSome(nn.Module):
    """A model that is right in the sentences with an even number of trained tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        outputs = self.model(**inputs)
        ids, positions = inputs["input_ids"], inputs["trained_positions"]
        sentences = positions // ids.shape[1]
        known = torch.bincount(sentences)[sentences] % 2 == 0
        answers = nn.functional.one_hot(ids.flatten()[positions + 1], outputs.logits.shape[-1])
        outputs.logits = outputs.logits + 100 * answers * known[:, None]
        return outputs


@pytest.fixture(scope="module")
def model(root: Path) -> nn.Module:
    return KnowsSome(build(small(root)).model)


@pytest.fixture(scope="module")
def rows(root: Path) -> WindowDataset:
    episodes = [episode(seed, n) for seed, n in enumerate(NUM_STEPS)]
    return dataset(episodes, prompt_format(small(root)), build(small(root)).processor)


def totals(
    model: nn.Module, rows: WindowDataset, batch_size: int, num_processes: int, num_workers: int = 0
) -> Tensor:
    """Right steps by type, steps by type, nats and tokens, summed over processes."""
    parts: list[Tensor] = []
    for rank in range(num_processes):
        loader = make_eval_loader(rows, batch_size, num_workers, rank, num_processes)
        validate(model, loader, lambda part: (parts.append(part), part)[1])
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize(
    ("batch_size", "num_processes", "num_workers"),
    [(4, 1, 0), (1, 2, 0), (4, 2, 0), (3, 3, 0), (4, 16, 0), (4, 2, 1)],
)
def test_batches_processes_and_workers_change_no_figure(
    model: nn.Module, rows: WindowDataset, batch_size: int, num_processes: int, num_workers: int
) -> None:
    expected = totals(model, rows, 1, 1)
    found = totals(model, rows, batch_size, num_processes, num_workers)
    right, steps, (nats, tokens, *thoughts) = found.split([len(ACTION_TYPES), len(ACTION_TYPES), 4])
    assert 0 < right.sum() < steps.sum() == sum(NUM_STEPS), "both verdicts occur, each step once"
    assert tokens > steps.sum()
    assert not any(thoughts)
    assert torch.equal(found[:-4], expected[:-4])
    assert torch.equal(tokens, expected[-3])
    assert float(nats) == pytest.approx(float(expected[-4]), rel=1e-5)


def test_processes_run_equally_many_forwards(rows: WindowDataset) -> None:
    loaders = [make_eval_loader(rows, 4, 0, rank, 2) for rank in range(2)]
    assert len(rows) == 10
    assert [len(loader) for loader in loaders] == [2, 2]
    batches = [inputs["input_ids"].shape[0] for loader in loaders for inputs, *_ in loader]
    assert batches == [4, 2, 4, 1], "the last has no sentence"


def test_the_default_generator_is_left_alone(model: nn.Module, rows: WindowDataset) -> None:
    """Dropout draws from it: a validation would change the steps after it."""
    before = torch.get_rng_state()
    totals(model, rows, 4, 1, num_workers=1)
    assert torch.equal(torch.get_rng_state(), before)

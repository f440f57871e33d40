"""Which rows share a forward pass: each once an epoch, as many batches on every process, little room left."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from uivlm.training.batches import Batch, BatchLayout, BatchSampler, even_out
from uivlm.training.mixture import MixtureSampler

NUM_ROWS = 5000
BUDGETS = (8192, 16384)


def lengths(num_rows: int = NUM_ROWS) -> NDArray[np.int32]:
    """Tokens of windows of at most eight screens; episodes have eight steps on average. Mean: 1,600."""
    random = np.random.default_rng(0)
    screens = np.minimum(random.geometric(1 / 8, num_rows), 8)
    tokens = screens * 260 + random.integers(20, 200, num_rows)
    return (tokens * 1600 / tokens.mean()).astype(np.int32)


def sampler(
    budget: int | None,
    num_processes: int = 1,
    weight: float = 1.0,
    num_rows: int = NUM_ROWS,
    size: int = 1,
    accumulation: int = 3,
) -> BatchSampler:
    mixture = MixtureSampler((num_rows,), (weight,))
    layout = BatchLayout(size, budget, accumulation, num_processes)
    return BatchSampler(lengths(num_rows), mixture, layout, seed=0, num_epochs=3)


def batches(of: BatchSampler, epoch: int) -> list[Batch]:
    of.set_epoch(epoch)
    return list(of)


@pytest.mark.parametrize("budget", BUDGETS)
def test_packed_batches_are_full(budget: int) -> None:
    given, planned = lengths(), sampler(budget)
    assert given.mean() == pytest.approx(1600, rel=0.01)
    for epoch in range(3):
        tokens = [given[list(batch)].sum() for batch in batches(planned, epoch)]
        assert max(tokens) <= budget
        fill = sum(tokens) / (budget * len(planned))
        assert fill >= 0.95, fill


@pytest.mark.parametrize("num_processes", [1, 2, 7])
@pytest.mark.parametrize("weight", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("budget", "size"), [(8192, 1), (None, 4)])
def test_each_row_once_and_the_same_number_of_batches_on_every_process(
    budget: int | None, size: int, weight: float, num_processes: int
) -> None:
    """In each epoch, also where an epoch has other rows than the last."""
    planned = sampler(budget, num_processes, weight, size=size)
    assert len(planned) % num_processes == 0
    for epoch in range(3):
        taken = batches(planned, epoch)
        assert len(taken) == len(planned)
        empty = taken.count(())  # costs a forward pass
        assert taken[len(taken) - empty :] == [()] * empty
        assert empty < (num_processes if budget is None else 1)
        wanted = MixtureSampler((NUM_ROWS,), (weight,)).sample_epoch(0, epoch)
        assert Counter(row for batch in taken for row in batch) == Counter(wanted)
        if budget is None:
            assert max(map(len, taken)) == size


@pytest.mark.parametrize("budget", [8192, None])
def test_a_plan_is_a_function_of_seed_and_epoch(budget: int | None) -> None:
    one, two = sampler(budget), sampler(budget)
    plans = [batches(one, epoch) for epoch in (0, 1, 2)]
    assert [batches(two, epoch) for epoch in (2, 1, 0)] == plans[::-1]
    assert plans[0] != plans[1]
    together = [{frozenset(batch) for batch in plan if len(batch) > 1} for plan in plans]
    assert len(together[0] & together[1]) < 0.02 * NUM_ROWS, "other rows share a batch in each epoch"


@pytest.mark.parametrize(
    ("layout", "steps"), [((4, 1, 1), 8), ((2, 2, 1), 8), ((1, 2, 2), 8), ((2, 1, 2), 8)]
)
def test_padded_steps_do_not_depend_on_the_layout(layout: tuple[int, int, int], steps: int) -> None:
    """The same rows make an optimizer step, however many processes and forward passes it has."""
    size, accumulation, num_processes = layout
    planned = sampler(None, num_processes, num_rows=30, size=size, accumulation=accumulation)
    taken, count = batches(planned, 1), accumulation * num_processes
    rows = [{row for batch in taken[i : i + count] for row in batch} for i in range(0, len(taken), count)]
    reference = batches(sampler(None, num_rows=30, size=4, accumulation=1), 1)
    assert rows == [set(batch) for batch in reference]
    assert len(rows) == steps


def test_fewer_rows_than_processes() -> None:
    planned = sampler(8192, num_processes=8, num_rows=3)
    assert sorted(map(len, batches(planned, 0))) == [0] * 5 + [1] * 3


def test_batches_are_evened_out_by_halving_the_largest() -> None:
    assert even_out([(1, 2, 3, 4, 5), (6,), (7, 8)], 3) == [(1, 2, 3, 4, 5), (6,), (7, 8)]
    assert even_out([(1, 2, 3, 4, 5), (6,), (7, 8)], 5) == [(1, 2), (6,), (7, 8), (4, 5), (3,)]
    assert even_out([(1,), (2,)], 4) == [(1,), (2,), (), ()]
    assert even_out([], 2) == [(), ()]

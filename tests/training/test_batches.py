"""Rows, batches and their order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.tiny_models import (
    END,
    PAD,
    config,
)
from tests.helpers.training_runs import COLLATE, EPISODES, FIRST, small, windows
from uivlm.episodes.encode import IGNORE, Example
from uivlm.training.batches import length_grouped_order
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import loader_options, resolve_num_workers
from uivlm.training.train import train


def test_rows_are_all_windows_of_all_episodes() -> None:
    rows = windows()
    assert len(rows) == 8 + 2  # two episodes are longer than the four screens of a window
    assert rows.index.num_screens.tolist() == [1, 4, 4, 2, 3, 4, 3, 1, 2, 4]
    assert [len(rows[i].num_visual_tokens) for i in range(len(rows))] == rows.index.num_screens.tolist()
    ends = sum(int((rows[i].labels == FIRST + END).sum()) for i in range(len(rows)))
    assert ends == sum(len(e.steps) for e in EPISODES)


def test_a_batch_is_its_rows_and_padding() -> None:
    rows = [windows()[i] for i in (0, 4, 1)]
    batch = COLLATE(rows)
    longest, trained = max(len(row.input_ids) for row in rows), list[int]()
    assert batch["input_ids"].shape == (3, longest)
    for i, row in enumerate(rows):
        n = len(row.input_ids)
        assert batch["input_ids"][i].tolist() == row.input_ids.tolist() + [FIRST + PAD] * (longest - n)
        trained += [i * longest + t - 1 for t in np.flatnonzero(row.labels != IGNORE)]
    assert batch["trained_positions"].tolist() == trained
    assert batch["labels"].tolist() == batch["input_ids"].flatten()[batch["trained_positions"] + 1].tolist()
    assert batch["sentence_lengths"] == tuple(len(row.input_ids) for row in rows)
    assert np.array_equal(
        batch["pixels"].numpy(), np.stack([screen for row in rows for screen in row.pixels])
    )


def test_what_is_trained_does_not_come_from_ids() -> None:
    """A model may pad with a token that its sentences hold too."""
    row = windows()[0]
    batch = Collator(int(row.input_ids[-2]), config().image_token_id)([row])
    assert batch["labels"].tolist() == row.labels[row.labels != IGNORE].tolist()


def test_packed_rows_carry_their_bounds() -> None:
    rows = [windows()[i] for i in (0, 4, 1)]
    batch = replace(COLLATE, packing=True)(rows)
    ends = np.cumsum([len(row.input_ids) for row in rows]).tolist()
    assert batch["cu_seq_lens"].tolist() == [0, *ends]
    assert batch["cu_seq_lens"].dtype == torch.int32
    assert batch["max_length"] == max(len(row.input_ids) for row in rows)
    assert batch["position_ids"][0].tolist() == [t for row in rows for t in range(len(row.input_ids))]
    assert batch["labels"].tolist() == COLLATE(rows)["labels"].tolist()


def test_a_screen_in_two_pieces_is_refused() -> None:
    """As many placeholders as visual tokens, but words inside a screen."""
    row = windows()[3]
    first = int(np.flatnonzero(row.input_ids == config().image_token_id)[1])
    ids = row.input_ids.copy()
    ids[[first, 0]] = ids[[0, first]]
    with pytest.raises(ValueError, match=r"end after \[\d+, .* visual tokens; its screens have \[4, 4\]"):
        COLLATE([replace(row, input_ids=ids)])


@pytest.mark.parametrize(
    ("take", "numbers"),
    [(1, "8 placeholders .* 2 screens; got 1 "), (0, "8 placeholders .* 2 screens; got 0 ")],
)
def test_a_row_without_its_screens_is_refused(take: int, numbers: str) -> None:
    row = windows()[3]
    with pytest.raises(ValueError, match=numbers):
        COLLATE([replace(row, pixels=row.pixels[:take])])


def test_a_row_may_have_no_screen() -> None:
    ids = np.array([1, 2, 3])
    batch = COLLATE([Example(ids, ids, np.zeros(2, np.int64), ())])
    assert set(batch) == {"input_ids", "trained_positions", "num_visual_tokens", *LOSS_KEYS}


def test_a_sentence_beyond_the_context_is_refused() -> None:
    rows = windows(context=60)
    with pytest.raises(
        ValueError, match=r"'e1' has \d+ tokens, the model reads 60: lower prompt.max_screens"
    ):
        rows[1]


def test_order_is_a_permutation_of_seed_and_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 203).astype(np.int32)
    orders = [
        length_grouped_order(range(len(lengths)), lengths, 8, seed, epoch)
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    ]
    assert all(sorted(o) == list(range(203)) for o in orders)
    assert len({tuple(o) for o in orders}) == 6
    assert orders[0] == length_grouped_order(range(len(lengths)), lengths, 8, 0, 0)
    steps = [[lengths[i] for i in orders[0][a : a + 8]] for a in range(0, 200, 8)]
    assert np.mean([max(s) - min(s) for s in steps]) < 1.5, "rows of a step have like lengths"
    assert sorted(max(s) for s in steps) != [max(s) for s in steps], "the steps themselves are shuffled"


@pytest.mark.slow
def test_readers_beside_the_run_change_nothing(root: Path, tmp_path: Path) -> None:
    outs = [train(small(root, num_workers=number, epochs=2.0), tmp_path / str(number)) for number in (0, 2)]
    assert (outs[0] / "adapter_model.safetensors").read_bytes() == (
        outs[1] / "adapter_model.safetensors"
    ).read_bytes()


def test_readers_are_no_forks_of_the_run() -> None:
    """A fork among a training process's threads may hang."""
    assert loader_options(1)["multiprocessing_context"] == "forkserver"
    assert loader_options(0) == {"num_workers": 0}
    assert resolve_num_workers(0) == 0
    assert 1 <= resolve_num_workers(None) <= 8

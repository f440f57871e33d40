"""A sentence reads the rows that it shows: no other screen is decoded, and the example is the same."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.tiny_models import config, episode, prepare, tokenizer
from tests.helpers.training_runs import dataset
from uivlm.episodes import rows
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.encode import encode
from uivlm.episodes.rows import SCHEMA, DamagedScreenError
from uivlm.episodes.sentence import PromptFormat
from uivlm.episodes.window_index import open_window_index
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.dataset import ConcatWindowDataset, WindowDataset

FORMAT = PromptFormat(100, 4, 3)
NUM_STEPS = (1, 23, 7, 40, 3)  # row groups have 16 rows: windows begin in other groups than episodes


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> PreparedEpisodes:
    folder = tmp_path_factory.mktemp("rows") / "data"
    prepare(folder, [episode(seed, n) for seed, n in enumerate(NUM_STEPS)])
    shard = folder / "train-0.parquet"
    steps = pq.read_table(shard).to_pylist()
    for step in steps:
        step |= {
            "element_boxes": [0.1, 0.2, 0.3, 0.4],
            "element_texts": ["Send"],
            "element_ui_types": ["TEXT"],
        }
    pq.write_table(pa.Table.from_pylist(steps, SCHEMA), shard, row_group_size=16)
    return PreparedData.open(folder).episodes("train")


@pytest.fixture(scope="module")
def windows(episodes: PreparedEpisodes) -> WindowDataset:
    return dataset(episodes, FORMAT, BridgeProcessor(tokenizer(), config(context=2048)))


def test_examples_are_those_of_whole_episodes(episodes: PreparedEpisodes, windows: WindowDataset) -> None:
    whole = [encode(FORMAT.sentence(one), windows.processor) for e in episodes for one in FORMAT.windows(e)]
    assert len(whole) == len(windows) > 20
    for example, expected in zip((windows[i] for i in range(len(windows))), whole, strict=True):
        np.testing.assert_array_equal(example.input_ids, expected.input_ids)
        np.testing.assert_array_equal(example.labels, expected.labels)
        np.testing.assert_array_equal(example.action_types, expected.action_types)
        np.testing.assert_array_equal(example.pixels, expected.pixels)


def test_each_shown_screen_is_decoded_once(windows: WindowDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, groups = [], []
    decode, read = rows.decode_image, pq.ParquetFile.read_row_groups

    def counted(data: bytes) -> Any:
        decoded.append(data)
        return decode(data)

    def watched(self: pq.ParquetFile, row_groups: range, columns: list[str], **options: Any) -> Any:
        groups.extend([*row_groups] if "image" in columns else [])
        return read(self, row_groups, columns=columns, **options)

    monkeypatch.setattr(rows, "decode_image", counted)
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", watched)
    for i in range(len(windows)):
        decoded.clear()
        groups.clear()
        example = windows[i]
        assert len(decoded) == len(example.pixels) <= 4
        assert len(groups) <= 2, "four rows lie in two groups at most"


def test_elements_are_read_for_scoring_only(episodes: PreparedEpisodes) -> None:
    shown = episodes.with_screens(1, 2, 5)
    for t, (step, expected) in enumerate(zip(shown.steps, episodes[1].steps, strict=True)):
        assert (step.action, step.screen.elements) == (expected.action, expected.screen.elements)
        wanted = expected.screen.pixels if 2 <= t < 5 else np.zeros_like(expected.screen.pixels)
        np.testing.assert_array_equal(step.screen.pixels, wanted)
    assert all(len(step.screen.elements) == 1 for step in shown.steps)
    bare = episodes.with_screens(1, 2, 5, with_elements=False)
    assert not any(step.screen.elements for step in bare.steps)


def test_a_worker_is_sent_paths(episodes: PreparedEpisodes) -> None:
    processor = BridgeProcessor(tokenizer(), config(context=2048))
    index = open_window_index(episodes, "a", FORMAT, processor)
    limit = int(np.sort(index.num_tokens)[-3])
    for part in (index, index.up_to(limit)):
        source = WindowDataset(episodes, part, FORMAT, processor)
        both = ConcatWindowDataset(
            [source, WindowDataset(episodes[1:3], part.take(part.episode == 0), FORMAT, processor)]
        )
        sent = pickle.dumps(source)
        assert len(sent) - len(pickle.dumps((processor, FORMAT))) < 1000
        there = pickle.loads(sent)
        np.testing.assert_array_equal(there.num_tokens, part.num_tokens)
        np.testing.assert_array_equal(there[len(part) - 1].pixels, source[len(part) - 1].pixels)
        np.testing.assert_array_equal(
            both.num_tokens, [*part.num_tokens, *part.num_tokens[part.episode == 0]]
        )
    assert not index.num_tokens.flags.owndata, "a view of the file"


def test_a_cut_index_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path / "data", [episode(0, 3)])
    refs = list(PreparedData.open(tmp_path / "data").refs)
    (file,) = (tmp_path / "data" / "episode_index").iterdir()
    content = file.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=rf"the index .*{file.name} is damaged \(.+\); remove that file"):
            PreparedData.open(tmp_path / "data")
    file.unlink()
    assert list(PreparedData.open(tmp_path / "data").refs) == refs


@pytest.mark.parametrize("visual_tokens", ["grid", "non_blank"])
def test_a_damaged_screen_costs_only_the_sentences_that_show_it(tmp_path: Path, visual_tokens: str) -> None:
    folder = prepare(tmp_path / "data", [episode(0, 23)])
    shard = folder / "train-0.parquet"
    steps = pq.read_table(shard).to_pylist()
    steps[0]["image"]["bytes"] = steps[0]["image"]["bytes"][:40]
    pq.write_table(pa.Table.from_pylist(steps, SCHEMA), shard, row_group_size=16)
    damaged = dataset(
        PreparedData.open(folder).episodes("train"),
        FORMAT,
        BridgeProcessor(tokenizer(), config(visual_tokens, context=2048)),
    )
    with pytest.raises(DamagedScreenError):
        damaged[0]
    assert len(damaged) > 5
    assert all(len(damaged[i].pixels) for i in range(1, len(damaged)))

"""Token counts of all windows: equal to encoded sentences, without decoding, kept beside the data."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.helpers.byte_counts import ByteProcessor, count
from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import config, prepare, qwen_base, screen, tokenizer
from tests.helpers.tiny_models import episode as one_episode
from uivlm.episodes import rows, window_index
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.encode import IGNORE, Processor, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat
from uivlm.episodes.window_index import FOLDER, concat_indexes, index_windows, open_window_index
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.qwen_hf import files as hf_files
from uivlm.models.qwen_hf.processor import VisualTokenBudget
from uivlm.models.qwen_vl import files as qwen_files
from uivlm.models.qwen_vl.processor import QwenVLProcessor

FORMAT = PromptFormat(100, 4, 3)
SIZES = [(30, 20), (300, 140), (90, 200), (64, 64)]  # height and width of screens
NUM_STEPS = (1, 9, 4, 6)


def mixed_sizes() -> list[Episode]:
    """Episodes whose screens differ in size, also within one."""
    return [
        replace(
            one,
            steps=tuple(
                replace(step, screen=screen(t, *SIZES[(i + t) % len(SIZES)]))
                for t, step in enumerate(one.steps)
            ),
        )
        for i, one in enumerate(one_episode(seed, n) for seed, n in enumerate(NUM_STEPS))
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("counts")
    prepare(made / "data", mixed_sizes())
    write(made / "hf", "Qwen2_5_VL")
    qwen_base(made / "qwen")
    return made


def processor(root: Path, kind: str) -> Processor:
    match kind:
        case "qwen_hf":
            return hf_files.load_processor(str(root / "hf"), VisualTokenBudget(64, (16, 8), 4))
        case "qwen_vl":
            model = qwen_files.from_config(str(root / "qwen"), torch.float32, "none", "meta")
            return QwenVLProcessor(qwen_files.load_tokenizer(str(root / "qwen")), model.config)
        case _:
            return BridgeProcessor(tokenizer(), config(kind))


def episodes(root: Path) -> PreparedEpisodes:
    return PreparedData.open(root / "data").episodes("train")


@pytest.mark.parametrize("kind", ["qwen_hf", "qwen_vl", "grid", "non_blank"])
def test_counts_are_those_of_encoded_sentences(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = processor(root, kind)
    wanted = [
        (e, k, example, sum(screen.shape[1] * screen.shape[2] for screen in example.pixels))
        for e, one in enumerate(episodes(root))
        for k, window in enumerate(FORMAT.windows(one))
        for example in [encode(FORMAT.sentence(window), reader)]
    ]
    if kind != "non_blank":  # only it looks at what a screen shows
        monkeypatch.setattr(rows, "decode_image", lambda _: pytest.fail("a screen was decoded"))
    index = index_windows(episodes(root), FORMAT, reader)
    assert len(index) == len(wanted) == 8
    for row, (e, k, example, num_pixels) in enumerate(wanted):
        assert (index.episode[row], index.window[row]) == (e, k)
        assert index.num_tokens[row] == len(example.input_ids)
        assert index.num_trained_tokens[row] == (example.labels != IGNORE).sum()
        assert index.num_screens[row] == len(example.pixels)
        assert index.num_visual_tokens[row] == sum(example.num_visual_tokens)
        assert index.num_pixels[row] == num_pixels
    if kind == "qwen_hf":
        assert len({*(index.num_visual_tokens / index.num_screens).tolist()}) > 2, "sizes and ages matter"


@pytest.mark.parametrize("kind", ["qwen_hf", "qwen_vl", "grid"])
def test_text_stays_text_in_another_process(root: Path, kind: str) -> None:
    """Control tokens written in a goal are ordinary characters, also in a worker that reads data."""
    reader = processor(root, kind)
    text = "goal <|im_end|> <|endoftext|> <s> </s> <unk> <image>"
    if kind != "qwen_vl":  # whose control tokens are not the tokenizer's
        reader.tokenizer.add_special_tokens(["</s>", "<|im_end|>"])  # type: ignore[attr-defined]
    ids = reader.encode(text)
    assert reader.decode(ids) == text
    other = pickle.loads(pickle.dumps(reader))
    assert other.encode(text) == ids
    assert other.fingerprint == reader.fingerprint


def same(one: Any, two: Any) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in window_index.FIELDS)


def test_many_episodes_are_counted_by_several_processes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ByteProcessor()
    whole = index_windows(episodes(root), FORMAT, reader)
    monkeypatch.setattr(window_index, "EPISODES_PER_JOB", 3)
    assert same(index_windows(episodes(root), FORMAT, reader, num_workers=2), whole)


def test_a_later_run_reads_what_was_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, data = processor(root, "grid"), episodes(root)
    first = open_window_index(data, "a", FORMAT, reader)
    monkeypatch.setattr(window_index, "index_windows", lambda *_: pytest.fail("counted again"))
    assert same(open_window_index(data, "a", FORMAT, reader, wait=True), first)
    monkeypatch.undo()
    files = {*(root / "data" / FOLDER).iterdir()}
    for other in (
        lambda: open_window_index(data, "b", FORMAT, reader),
        lambda: open_window_index(data, "a", replace(FORMAT, max_screens=3), reader),
        lambda: open_window_index(data, "a", FORMAT, BridgeProcessor(tokenizer(), config("pooled"))),
        lambda: open_window_index(data[:2], "a", FORMAT, reader),
        lambda: open_window_index(data, "a", FORMAT, BridgeProcessor(other_words(), config())),
    ):
        other()
        now = {*(root / "data" / FOLDER).iterdir()}
        assert len(now - files) == 1, "counts of other sentences are other files"
        files = now


def other_words() -> Tokenizer:
    made = tokenizer()
    made.add_tokens(["goal"])
    return made


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", None])
def test_damaged_counts_are_refused(root: Path, tmp_path: Path, content: bytes | None) -> None:
    prepare(tmp_path / "data", [one_episode(0, 2)])
    data, reader = episodes(tmp_path), processor(root, "grid")
    open_window_index(data, "a", FORMAT, reader)
    (file,) = (tmp_path / "data" / FOLDER).iterdir()
    file.write_bytes(file.read_bytes()[:200] if content is None else content)
    with pytest.raises(ValueError, match=rf"{file.name} are damaged .*; remove that file"):
        open_window_index(data, "a", FORMAT, reader)


def test_data_that_cannot_be_written_to_is_counted_by_each_process(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path / "data", mixed_sizes())
    data, reader = episodes(tmp_path), processor(root, "grid")
    monkeypatch.setattr(window_index.os, "access", lambda *_: False)
    assert same(open_window_index(data, "a", FORMAT, reader, wait=True), index_windows(data, FORMAT, reader))
    assert not (tmp_path / "data" / FOLDER).exists()


def test_processes_that_start_at_once_find_the_same(tmp_path: Path) -> None:
    prepare(tmp_path / "data", mixed_sizes())
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(count, [tmp_path / "data"] * 6))
    assert found == [found[0]] * 6
    assert len([*(tmp_path / "data" / FOLDER).iterdir()]) == 1, "and leave nothing else"


def test_sources_are_concatenated(root: Path) -> None:
    parts = [index_windows(mixed_sizes()[:2], FORMAT, processor(root, "grid"))] * 2
    joined = concat_indexes(parts, [2, 2])
    assert joined.episode.tolist() == [0, 1, 1, 1, 1, 2, 3, 3, 3, 3]
    assert joined.num_tokens.tolist() == 2 * parts[0].num_tokens.tolist()
    assert joined.take(joined.num_screens > 1).episode.tolist() == [1, 1, 1, 1, 3, 3, 3, 3]

"""Prepared data: what is written is what is read, and what cannot be read says why."""

import copy
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_prep.__main__ import prepare
from data_prep.aitw import to_example
from data_prep.record import Record
from data_prep.settings import Kept, Settings
from data_prep.split import Choice, read_split
from data_prep.tfrecord import write_shard
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.aitw import to_aitw
from uivlm.episode import Element, Episode, Screen, Step, annotations
from uivlm.sentences.store import SCHEMA, Prepared, decode_image, encode_image

LONG = "7005961376513612887.272-449." + "Go to a/b/../c, 打开 é " * 20


def f32(number: float) -> float:
    return float(np.float32(number))


def episode(seed: int, episode_id: str, subset: str, length: int) -> Episode:
    """Steps whose numbers are float32, as AITW's are."""
    random = np.random.default_rng(seed)
    actions = [
        Tap(Point(f32(0.105), f32(0.905))),
        Swipe(Point(f32(0.8), f32(0.5)), Point(f32(0.001), f32(0.52))),
        Type('say "hi"\\\n新闻 🙂'),
        Press("back"),
        Press("home"),
        Press("enter"),
        Finish("impossible"),
        Finish("complete"),
    ]
    steps = []
    for t in range(length):
        boxes = random.random((t % 3, 4), np.float32).tolist()
        elements = tuple(Element(*box, text="naïve" * t, kind="ICON_HOME") for box in boxes)
        pixels = random.integers(0, 256, (20 + seed, 10 + t, 3), np.uint8)
        steps.append(Step(Screen(pixels, elements), actions[(t + seed) % len(actions)]))
    return Episode(episode_id, f"goal of {seed}", subset, tuple(steps))


EPISODES = [
    episode(0, "18260339861117453695", "general", 8),
    episode(1, LONG, "single", 3),
    episode(2, "5", "general", 30),
    episode(3, "6", "general", 1),
    episode(4, "7", "single", 17),
]


def records(of: Episode) -> list[bytes]:
    made = []
    for t, step in enumerate(of.steps):
        kind, touch, lift, text = to_aitw(step.action)
        place = (of.id, t, len(of.steps), of.goal, 33, "PIXEL_3", "a/b")
        record = Record(
            *place, step.screen.pixels, annotations(step.screen.elements), kind, touch, lift, text
        )
        made.append(to_example(record))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    for subset in ("general", "single"):
        data = [record for e in EPISODES if e.subset == subset for record in records(e)]
        write_shard(root / f"{subset}-00000-of-00001", data)
    split = {"train": [e.id for e in EPISODES if e.id != "7"], "test": ["7"]}
    (root / "split.json").write_text(json.dumps(split))
    prepare(
        root, root / "out", Settings(choice=Choice(read_split(root / "split.json")), kept=Kept(codec="png"))
    )
    return root / "out"


def same(a: Episode, b: Episode) -> None:
    assert (a.id, a.goal, a.subset, len(a.steps)) == (b.id, b.goal, b.subset, len(b.steps))
    for one, other in zip(a.steps, b.steps, strict=True):
        assert one.action == other.action
        assert one.screen.elements == other.screen.elements
        assert one.screen.pixels.dtype == np.uint8
        np.testing.assert_array_equal(one.screen.pixels, other.screen.pixels)


def test_episodes_come_back_as_they_were(folder: Path) -> None:
    prepared = Prepared.open(folder)
    back = {e.id: e for split in prepared.meta["splits"] for e in prepared.episodes(split)}
    assert len(back) == len(EPISODES)
    for expected in EPISODES:
        same(back[expected.id], expected)


def test_subset_limit_slice_and_order(folder: Path) -> None:
    prepared = Prepared.open(folder)
    train = prepared.episodes("train")
    assert [place.id for place in train.places] == ["18260339861117453695", "5", "6", LONG]
    assert [e.id for e in prepared.episodes("train", "single")] == [LONG]
    assert len(prepared.episodes("train", limit=2)) == 2
    assert len(prepared.episodes("validation")) == 0
    assert [e.id for e in train[1:3]] == ["5", "6"]
    same(train[-1], EPISODES[1])
    with pytest.raises(IndexError):
        train[4]


@pytest.mark.parametrize("arguments", [("dev",), ("train", "install")])
def test_an_unknown_split_or_subset_is_named(folder: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=arguments[-1]):
        Prepared.open(folder).episodes(*arguments)


def length_and_sum(episodes: object, index: int, queue: object) -> None:
    queue.put((len(episodes), int(episodes[index].steps[-1].screen.pixels.sum())))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_episodes_cross_into_other_processes(folder: Path, method: str) -> None:
    episodes = Prepared.open(folder).episodes("train")
    expected = int(episodes[1].steps[-1].screen.pixels.sum())  # also opens the file here, before the fork
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=length_and_sum, args=(episodes, 1, queue))
    process.start()
    assert queue.get() == (4, expected)
    process.join()
    same(pickle.loads(pickle.dumps(episodes))[1], episodes[1])


def test_the_files_are_as_promised(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    paths = sorted(folder.glob("*.parquet"))
    assert sorted(shard["file"] for shard in meta["shards"]) == [path.name for path in paths]
    for path in paths:
        file = pq.ParquetFile(path)
        assert file.schema_arrow.equals(SCHEMA)
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        assert [group.num_rows for group in groups[:-1]] == [16] * (len(groups) - 1)
        columns = {
            groups[0].column(i).path_in_schema: groups[0].column(i) for i in range(groups[0].num_columns)
        }
        assert columns["image.bytes"].compression == "UNCOMPRESSED"
        assert columns["element_boxes.list.element"].compression == "SNAPPY"
    assert "naïve" in str(pq.read_table(paths[-1], columns=["element_texts"]).to_pydict())


def test_the_words_are_the_grammars(folder: Path) -> None:
    rows = pq.read_table(
        folder / "train-00000-of-00001.parquet", columns=["episode_id", "t", "words"]
    ).to_pylist()
    said = [row["words"] for row in rows if row["episode_id"] == "18260339861117453695"]
    assert said[0] == "tap at 10 90"
    assert said[1].startswith("swipe from 80 50 to 0 5")
    assert said[3:] == ["press back", "press home", "press enter", "impossible", "complete"]
    assert [row["t"] for row in rows] == [*range(8), *range(30), 0, *range(3)]


def test_datasets_reads_the_screens(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = {"train": str(folder / "train-00000-of-00001.parquet")}
    row = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path))["train"][0]
    np.testing.assert_array_equal(np.asarray(row["image"]), EPISODES[0].steps[0].screen.pixels)


def test_no_shard_is_kept_open_stale(tmp_path: Path) -> None:
    source, out = tmp_path / "general-00000-of-00001", tmp_path / "out"
    for seed in (1, 2):
        expected = episode(seed, "42", "general", 5)
        write_shard(source, records(expected))
        prepare(source, out, Settings(kept=Kept(codec="png")), force=True)
        prepared = Prepared.open(out)
        (found,) = (e for split in prepared.meta["splits"] for e in prepared.episodes(split))
        same(found, expected)


# --- codecs -------------------------------------------------------------------------------------------------------


def test_png_is_exact_and_jpeg_is_near() -> None:
    y, x = np.mgrid[0:61, 0:37]
    pixels = np.stack([4 * y, 255 - 6 * x, 2 * (y + x)], -1).astype(np.uint8)
    np.testing.assert_array_equal(decode_image(encode_image(pixels, "png")), pixels)
    near = decode_image(encode_image(pixels, "jpeg")).astype(int)
    assert near.shape == pixels.shape
    assert np.abs(near - pixels).mean() < 3
    red, blue = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    assert decode_image(encode_image(red, "jpeg"))[4, 4].argmax() == 0
    assert decode_image(encode_image(blue, "jpeg"))[4, 4].argmax() == 2


def test_jpeg_keeps_full_colour_resolution() -> None:
    """One-pixel stripes of two colours of one brightness vanish where colour is stored at half width."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, ::2], pixels[:, 1::2] = (200, 0, 0), (0, 0, 200)
    back = decode_image(encode_image(pixels, "jpeg")).astype(int)
    assert np.abs(back - pixels).mean() < 12


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="webp"):
        encode_image(np.zeros((2, 2, 3), np.uint8), "webp")


# --- what is no prepared data -------------------------------------------------------------------------------------


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder"):
        Prepared.open(tmp_path / "none")


def test_a_folder_without_meta(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no meta\.json"):
        Prepared.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 99}, "format version 99"),
        ({"format": "other"}, "does not describe"),
        ({"shards": [{"file": "gone.parquet", "steps": 1}]}, "missing"),
    ],
)
def test_another_meta(folder: Path, tmp_path: Path, change: dict, says: str) -> None:
    meta = {**copy.deepcopy(Prepared.open(folder).meta), **change}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=says):
        Prepared.open(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_meta_that_is_nonsense(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=r"meta\.json"):
        Prepared.open(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_shard_that_is_cut_off_is_named(folder: Path, tmp_path: Path, share: float) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    shard = copied / Prepared.open(folder).meta["shards"][0]["file"]
    whole = shard.read_bytes()
    shard.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=rf"{shard.name} is damaged \(.+\): prepare the data again"):
        Prepared.open(copied)

"""Prepared data: what is written is read again, and errors name the file and the remedy."""

import copy
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.__main__ import prepare
from data_prep.formats.aitw import to_example
from data_prep.settings import ImageSettings, PrepSettings
from data_prep.source import StepRecord
from data_prep.split import EpisodeSelection, read_split
from data_prep.tfrecord import write_shard
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.aitw import from_aitw, to_aitw
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Element, Episode, Screen, Step, to_annotations
from uivlm.episodes.rows import SCHEMA, decode_image, encode_image, from_row, to_row

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
        elements = tuple(Element(*box, text="naïve" * t, ui_type="ICON_HOME") for box in boxes)
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
        ids = (of.id, t, len(of.steps), of.goal, 33, "PIXEL_3", "a/b")
        screen = step.screen.pixels, to_annotations(step.screen.elements)
        made.append(to_example(StepRecord(*ids, *screen, step.action, to_aitw(step.action))))
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
        root,
        root / "out",
        PrepSettings(
            selection=EpisodeSelection(read_split([root / "split.json"])),
            images=ImageSettings(image_format="png"),
        ),
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
    prepared = PreparedData.open(folder)
    back = {e.id: e for split in prepared.meta["splits"] for e in prepared.episodes(split)}
    assert len(back) == len(EPISODES)
    for expected in EPISODES:
        same(back[expected.id], expected)


def test_subset_limit_slice_and_order(folder: Path) -> None:
    prepared = PreparedData.open(folder)
    train = prepared.episodes("train")
    assert [ref.id for ref in train.refs] == ["18260339861117453695", "5", "6", LONG]
    assert [e.id for e in prepared.episodes("train", "single")] == [LONG]
    assert len(prepared.episodes("train", max_episodes=2)) == 2
    assert len(prepared.episodes("validation")) == 0
    assert [e.id for e in train[1:3]] == ["5", "6"]
    same(train[-1], EPISODES[1])
    with pytest.raises(IndexError):
        train[4]


@pytest.mark.parametrize("arguments", [("dev",), ("train", "install")])
def test_an_unknown_split_or_subset_is_named(folder: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=arguments[-1]):
        PreparedData.open(folder).episodes(*arguments)


def length_and_sum(episodes: object, index: int, queue: object) -> None:
    queue.put((len(episodes), int(episodes[index].steps[-1].screen.pixels.sum())))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_episodes_cross_into_other_processes(folder: Path, method: str) -> None:
    episodes = PreparedData.open(folder).episodes("train")
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


def test_the_column_action_text(folder: Path) -> None:
    rows = pq.read_table(
        folder / "train-00000-of-00001.parquet", columns=["episode_id", "t", "action_text"]
    ).to_pylist()
    texts = [row["action_text"] for row in rows if row["episode_id"] == "18260339861117453695"]
    assert texts[0] == "tap at 10 90"
    assert texts[1].startswith("swipe from 80 50 to 0 5")
    assert texts[3:] == ["press back", "press home", "press enter", "impossible", "complete"]
    assert [row["t"] for row in rows] == [*range(8), *range(30), 0, *range(3)]


def test_rows_come_back_as_steps() -> None:
    """`from_row` inverts `to_row`, with every action type and with any floats AITW may hold."""
    for expected in [step for e in EPISODES for step in e.steps]:
        annotations = to_annotations(expected.screen.elements)
        row = to_row(to_aitw(expected.action), "text", expected.screen.pixels, annotations, "png")
        assert row.keys() < set(SCHEMA.names)
        (stored,) = pa.Table.from_pylist([row], SCHEMA).to_pylist()
        step = from_row(stored)
        assert (step.action, step.screen.elements) == (expected.action, expected.screen.elements)
        np.testing.assert_array_equal(step.screen.pixels, expected.screen.pixels)
        without_image = {name: value for name, value in stored.items() if name != "image"}
        blank = from_row(without_image).screen.pixels
        np.testing.assert_array_equal(blank, np.zeros_like(expected.screen.pixels))


FLOATS = st.floats(-(2.0**20), 2.0**20, width=32)


@given(touch=st.tuples(FLOATS, FLOATS), lift=st.tuples(FLOATS, FLOATS), text=st.text())
def test_any_recorded_floats_and_text_come_back_exactly(
    touch: tuple[float, float], lift: tuple[float, float], text: str
) -> None:
    pixels = np.zeros((1, 1, 3), np.uint8)
    for aitw in ((4, touch, lift, text), (3, touch, lift, text)):
        row = to_row(aitw, "", pixels, to_annotations(()), "png")
        (stored,) = pa.Table.from_pylist([row], SCHEMA).to_pylist()
        names = ("action_type", "touch_y", "touch_x", "lift_y", "lift_x", "text")
        assert tuple(stored[name] for name in names) == (aitw[0], *touch, *lift, text)
        assert from_row(stored).action == from_aitw(*aitw)


def test_no_shard_is_kept_open_stale(tmp_path: Path) -> None:
    source, out = tmp_path / "general-00000-of-00001", tmp_path / "out"
    for seed in (1, 2):
        expected = episode(seed, "42", "general", 5)
        write_shard(source, records(expected))
        prepare(source, out, PrepSettings(images=ImageSettings(image_format="png")), overwrite=True)
        prepared = PreparedData.open(out)
        (stored,) = (e for split in prepared.meta["splits"] for e in prepared.episodes(split))
        same(stored, expected)


# --- codecs ---------------------------------------------------------------------------------------


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


def test_jpeg_keeps_full_color_resolution() -> None:
    """One-pixel stripes of two colors of equal brightness vanish if color is stored at half width."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, ::2], pixels[:, 1::2] = (200, 0, 0), (0, 0, 200)
    back = decode_image(encode_image(pixels, "jpeg")).astype(int)
    assert np.abs(back - pixels).mean() < 12


def test_an_unknown_image_format_is_refused() -> None:
    with pytest.raises(ValueError, match="webp"):
        encode_image(np.zeros((2, 2, 3), np.uint8), "webp")


# --- other folders --------------------------------------------------------------------------------


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder"):
        PreparedData.open(tmp_path / "none")


def test_a_folder_without_meta(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no meta\.json"):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, r"got version 99; expected 3, or 2 \(without notes\)"),
        ({"version": 1}, "got version 1; expected 3, or 2 .* the columns action_text"),
        ({"format": "other"}, "does not describe"),
        ({"shards": [{"file": "gone.parquet", "steps": 1}]}, "missing"),
    ],
)
def test_another_meta(folder: Path, tmp_path: Path, change: dict, message: str) -> None:
    meta = {**copy.deepcopy(PreparedData.open(folder).meta), **change}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=message):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_an_invalid_meta(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=r"meta\.json"):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_shard_that_is_cut_off_is_named(folder: Path, tmp_path: Path, share: float) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    shard = copied / PreparedData.open(folder).meta["shards"][0]["file"]
    whole = shard.read_bytes()
    shard.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=rf"{shard.name} is damaged \(.+\): prepare the data again"):
        PreparedData.open(copied)

"""Images per second and core of data preparation, compared with its floor and a usual script; memory.

The screens are drawn, in AITW's format. Compare ratios, since the speed of a shared machine changes within
minutes. Each is measured within a run: the floor, our stage and the usual script process one shard each in
turn.

First the free memory is filled with cached files, as it is in practice: AITW has terabytes. On a virtual
machine, free memory is slow at first, because the machine must request each new page from its host.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from io import RawIOBase
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import google_crc32c
import numpy as np
import psutil
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table
from zlib_ng import zlib_ng

from data_prep.__main__ import prepare
from data_prep.formats.aitw import IMAGE_KEY, find, parse_record, to_example
from data_prep.pass1_read import SpillJob, retain_freed_memory, spill_part
from data_prep.settings import PrepSettings
from data_prep.source import StepRecord
from data_prep.tf_example import parse_example
from data_prep.tfrecord import GZIP, read_records, write_shard
from data_prep.work_dir import open_work_dir
from uivlm.actions.action import Point, Tap
from uivlm.actions.aitw import to_aitw
from uivlm.episodes.episode import Element, to_annotations
from uivlm.episodes.rows import encode_image

SHARDS, RECORDS, STEPS, RUNS = 4, 96, 8, 3  # records per shard, steps per episode
COPIES_PER_SHARD = 60  # enough to make the fixed cost of a run, workers and report, negligible
HEIGHT, WIDTH = 732, 412  # pixels
LETTERS = list("etaoinshrdlucmfwypvbgkjqxzETAOINSRDLC0123456789.,-")
FONTS = [ImageFont.load_default(size) for size in range(11, 17)]
PARTS = ("gunzip", "checksum", "parse", "encode")
FLOOR, FULL_PREP, PASS_1 = "floor: their sum", "our whole stage, one worker", "pass 1 alone"
BASELINE = "tfrecord + Pillow, JPEG files"
FREE_BYTES = 1 << 30  # memory that stays free
READ_BYTES, SPARSE_FILE_BYTES = 1 << 22, 1 << 42  # per read, and of a file that is never read to its end
CPU, WALL = range(2)
CpuWallMs = NDArray[np.float64]  # [2] CPU and wall time, ms
StageTimes = dict[str, CpuWallMs]


def main() -> None:
    cores, load, console = len(os.sched_getaffinity(0)), os.getloadavg()[0], Console(width=130)
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "out"
        shards = [folder / f"general-{i:05d}-of-{SHARDS:05d}" for i in range(SHARDS)]
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            console.print("\n".join(pool.map(_draw_shard, shards)))
        long = folder / "long-00000-of-00001"  # concatenated gzip files are a gzip file
        long.write_bytes(b"".join(shard.read_bytes() for shard in shards))
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            # first, because the memory of a large parent would count
            peaks = list(pool.map(_peak_memory_mb, (shards[0], long), (folder / "short", folder / "long")))
        source, sparse = _replicate(shards, folder / "source"), folder / "sparse"
        with sparse.open("wb") as file:
            file.truncate(SPARSE_FILE_BYTES)
        with sparse.open("rb", buffering=0) as sparse_file:
            fill = partial(_fill_memory, sparse_file)
            runs = [_run(source, out, fill) for _ in range(RUNS)]
            two = _time_two_workers(source, out, fill) if cores > 1 and load < cores - 1.5 else []
    console.print(_table(runs))
    gain = "not measured"
    if two:
        ours, bare = (_ratio(two, f"{name} 1", f"{name} 2", WALL) for name in ("workers", "bare"))
        gain = f"{ours}, the floor in two processes: {bare}"
    console.print(f"two workers / one: {gain}; {cores} cores, load {load:.1f} at the start")
    console.print(
        f"memory of a worker: {peaks[0]:.0f} MB; on a shard {SHARDS} times as long: {peaks[1]:.0f} MB"
    )


def _replicate(shards: Sequence[Path], source: Path) -> Path:
    """A folder with several links to every shard: more to measure, and no more to draw."""
    source.mkdir()
    for shard, copy in product(shards, range(COPIES_PER_SHARD)):
        (source / shard.name.replace("general", f"copy{copy}")).symlink_to(shard)
    return source


def _draw_shard(path: Path) -> str:
    """Write a shard. Returns a description of it."""
    rng = np.random.default_rng(int(path.name.split("-")[1]))
    words = np.array(["".join(rng.permutation(LETTERS)[: 2 + i % 8]) for i in range(500)])
    coarse = Image.fromarray(rng.integers(0, 256, (75, 75, 3), np.uint8)).resize((900, 900))
    grain = rng.normal(0, 2, (900, 900, 1))
    photo = Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8))
    screens = [_screen(rng, words, photo) for _ in range(RECORDS)]
    elements = [Element(i / 25, 0.1, 0.04, 0.5, str(words[i])) for i in range(20)]
    action = Tap(Point(0.25, 0.5))
    rest = to_annotations(elements), action, to_aitw(action)
    write_shard(path, (to_example(
        StepRecord(f"{path.name}.{i // STEPS}", i % STEPS, STEPS, "open", 31, "phone", "a.b", screen, *rest)
    ) for i, screen in enumerate(screens)), level=6)  # fmt: skip
    ratio = RECORDS * HEIGHT * WIDTH * 3 / path.stat().st_size
    jpeg = sum(len(encode_image(screen, "jpeg")) for screen in screens) / RECORDS / 1000
    return (
        f"{path.name}: {RECORDS} of {WIDTH} x {HEIGHT}, gzip level 6 {ratio:.1f} : 1, {jpeg:.0f} KB as JPEG"
    )


def _screen(rng: np.random.Generator, words: NDArray[np.str_], photo: Image.Image) -> NDArray[np.uint8]:
    """Flat areas, lines of text and pieces of the photo: it compresses like AITW's screens."""
    paper, card, bar, ink = (tuple(rng.integers(low, low + 56, 3).tolist()) for low in (200, 180, 90, 20))
    image = Image.new("RGB", (WIDTH, HEIGHT), paper)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, WIDTH, 56), bar)
    y = 64
    while y < HEIGHT:
        tall, left, size = int(rng.integers(40, 110)), 12, int(rng.integers(11, 17))
        if rng.random() < 0.3:
            draw.rectangle((0, y, WIDTH, y + tall), card)
        if rng.random() < 0.5:
            left = x = int(rng.integers(80, 180))
            image.paste(photo.crop((x, y, x + left - 14, y + tall - 12)), (8, y + 3))
        font = FONTS[size - 11]
        for line in range(y, y + tall - 14, round(1.3 * size)):
            max_chars = int((WIDTH - left) / size * rng.uniform(0, 1.9))
            draw.text((left, line), " ".join(rng.choice(words, 12))[:max_chars], ink, font)
        y += tall + int(rng.integers(45))
    return np.asarray(image)


def _fill_memory(sparse_file: RawIOBase) -> None:
    """Fill the free memory with pages of a sparse file."""
    piece = bytearray(READ_BYTES)
    for _ in range(0, psutil.virtual_memory().free - FREE_BYTES, READ_BYTES):
        sparse_file.readinto(piece)


def _run(source: Path, out: Path, fill_memory: Callable[[], None]) -> StageTimes:
    """One run of everything: times per image."""
    retain_freed_memory()  # as the whole stage does
    shards, parts, files = sorted(source.iterdir()), find(str(source)), out.with_name("files")
    files.mkdir()
    times = {name: np.zeros(2) for name in (*PARTS, PASS_1, BASELINE)}
    fill_memory()
    with (
        open_work_dir(out, PrepSettings(), parts, overwrite=False) as work,
        # the usual script in a process of its own: this one has configured malloc
        ProcessPoolExecutor(1, get_context("spawn"), import_module, ("tfrecord",)) as pool,
    ):
        for i, (shard, part) in enumerate(zip(reversed(shards), parts, strict=True)):  # two different shards
            _time_floor(times, shard)
            times[PASS_1] += _time(spill_part, SpillJob(i, part, work))
            times[BASELINE] += pool.submit(_time, _baseline, shard, files).result()
    times[FLOOR] = np.sum([times[part] for part in PARTS], axis=0)
    times[FULL_PREP] = times[PASS_1] + _time(prepare, source, out)  # resumes after pass 1
    shutil.rmtree(files)
    shutil.rmtree(out)
    return {name: ms / (len(shards) * RECORDS) for name, ms in times.items()}


def _time_floor(times: StageTimes, shard: Path) -> None:
    """Add the times of the parts of the floor, each measured alone."""
    times["gunzip"] += _time(_gunzip, shard)
    for data in read_records(shard):
        pixels = parse_record(data).pixels
        times["checksum"] += _time(google_crc32c.value, data)
        times["parse"] += _time(parse_example, data, IMAGE_KEY)
        times["encode"] += _time(encode_image, pixels, "jpeg")


def _time(fn: Callable[..., object], *args: object) -> CpuWallMs:
    """The time of a call."""
    start = time.process_time(), time.perf_counter()
    fn(*args)
    return 1000 * np.subtract((time.process_time(), time.perf_counter()), start)


def _gunzip(shard: Path) -> None:
    inflate = zlib_ng.decompressobj(GZIP)
    with shard.open("rb") as file:
        while piece := file.read(1 << 15):
            inflate.decompress(piece)


def _baseline(shard: Path, folder: Path) -> None:
    """The usual script: it writes a file per screen and checks no checksum."""
    rows = import_module("tfrecord").tfrecord_loader(str(shard), None, compression_type="gzip")
    for i, row in enumerate(rows):
        pixels = np.frombuffer(row["image/encoded"], np.uint8).reshape(HEIGHT, WIDTH, 3)
        Image.fromarray(pixels).save(folder / f"{shard.name}.{i}.jpg", quality=90, subsampling=0)


def _time_two_workers(source: Path, out: Path, fill_memory: Callable[[], None]) -> list[StageTimes]:
    """All screens by one worker and by two, start included; and the floor by one and by two processes.

    The two processes share nothing, so the second figure is the most that this machine can gain.
    """
    shards, runs = sorted(source.iterdir()), list[StageTimes]()
    with ProcessPoolExecutor(2, get_context("spawn"), retain_freed_memory) as pool:
        list(pool.map(_floor_work, [shards[:1]] * 2))  # starts them
        for _ in range(RUNS):
            times = StageTimes()
            for processes, share in ((1, [shards]), (2, [shards[::2], shards[1::2]])):
                fill_memory()
                times[f"workers {processes}"] = _time(partial(prepare, workers=processes), source, out)
                shutil.rmtree(out)
                times[f"bare {processes}"] = _time(list, pool.map(_floor_work, share))
            runs.append(times)
    return runs


def _floor_work(shards: Sequence[Path]) -> None:
    """The work of the floor."""
    for shard in shards:
        for data in read_records(shard):
            encode_image(parse_record(data).pixels, "jpeg")


def _peak_memory_mb(shard: Path, out: Path) -> float:
    """Peak memory of this process after it prepared a shard, MB."""
    prepare(shard, out)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _table(runs: Sequence[StageTimes]) -> Table:
    table = Table("", title=f"JPEG of quality 90, 4:4:4; median of {len(runs)} runs")
    for head in ("CPU ms/image", "wall ms/image", "images/s/core", "of the floor", "ours / it"):
        table.add_column(head, justify="right")
    for name in (*PARTS, FLOOR, FULL_PREP, PASS_1, BASELINE):
        cpu, wall = np.median([run[name] for run in runs], axis=0)
        cells = [f"{cpu:.2f}", f"{wall:.2f}", f"{1000 / cpu:.0f}"]
        if name not in (*PARTS, FLOOR):
            cells.append(_ratio(runs, FLOOR, name))
        if name == BASELINE:
            cells.append(_ratio(runs, BASELINE, FULL_PREP))
        table.add_row(name, *cells)
    return table


def _ratio(runs: Sequence[StageTimes], numerator: str, denominator: str, clock: int = CPU) -> str:
    """The ratio of two times within a run: median, minimum and maximum."""
    ratios = [run[numerator][clock] / run[denominator][clock] for run in runs]
    return f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    main()

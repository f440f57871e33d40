"""Images a second and core of data preparation: against the sum of its parts and what users have; memory of a worker.

Drawn screens in AITW's format. The ratios are what counts, and each is taken within a run, in which the floor, our stage and
theirs do a shard each in turns: a shared machine changes its speed within minutes.

The machine's memory is full of cached files, as it is wherever more was read and written than it holds, and AITW is terabytes:
free memory is not free on a virtual machine that must ask its host for each new page.
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
from data_prep.aitw import SCREEN, parse_record, to_example
from data_prep.example import parse_example
from data_prep.formats.aitw import find
from data_prep.memory import hold_freed
from data_prep.record import Record
from data_prep.settings import Settings
from data_prep.spill import Job, spill_part
from data_prep.tfrecord import GZIP, read_records, write_shard
from data_prep.work import opened
from uivlm.episode import Element, annotations
from uivlm.sentences.store import encode_image

SHARDS, RECORDS, STEPS, RUNS = 4, 96, 8, 3  # records a shard, steps an episode
COPIES = 60  # of the shards: what a run costs once, its workers' start and its page, is little beside them
HEIGHT, WIDTH = 732, 412  # pixels
LETTERS = list("etaoinshrdlucmfwypvbgkjqxzETAOINSRDLC0123456789.,-")
FONTS = [ImageFont.load_default(size) for size in range(11, 17)]
PARTS = ("gunzip", "checksum", "parse", "encode")
FLOOR, WHOLE, PASS_1 = "the floor: their sum", "our whole stage, one worker", "its pass 1 alone"
THEIRS = "tfrecord + Pillow, JPEG files"
SPARE = 1 << 30  # bytes of memory that stay free
PIECE, HOLE = 1 << 22, 1 << 42  # bytes that are read at once, and of a file that is never read to its end
CPU, WALL = range(2)
Times = NDArray[np.float64]  # [2] CPU and wall time, ms
Run = dict[str, Times]


def main() -> None:
    cores, load, console = len(os.sched_getaffinity(0)), os.getloadavg()[0], Console(width=130)
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "out"
        shards = [folder / f"general-{i:05d}-of-{SHARDS:05d}" for i in range(SHARDS)]
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            console.print("\n".join(pool.map(_draw, shards)))
        long = folder / "long-00000-of-00001"  # gzip files after each other are a gzip file
        long.write_bytes(b"".join(shard.read_bytes() for shard in shards))
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            peaks = list(
                pool.map(_peak, (shards[0], long), (folder / "short", folder / "long"))
            )  # first: a big parent would count
        source, hole = _more(shards, folder / "source"), folder / "hole"
        with hole.open("wb") as file:
            file.truncate(HOLE)
        with hole.open("rb", buffering=0) as nothing:
            fill = partial(_fill_memory, nothing)
            runs = [_run(source, out, fill) for _ in range(RUNS)]
            two = _in_two(source, out, fill) if cores > 1 and load < cores - 1.5 else []
    console.print(_table(runs))
    gain = "not measured"
    if two:
        ours, bare = (_ratio(two, f"{what} 1", f"{what} 2", WALL) for what in ("workers", "bare"))
        gain = f"{ours}, the floor's parts in two processes: {bare}"
    console.print(f"two workers / one: {gain}; {cores} cores, load {load:.1f} at the start")
    console.print(f"a worker's memory: {peaks[0]:.0f} MB, on a shard {SHARDS} times as long {peaks[1]:.0f}")


def _more(shards: Sequence[Path], source: Path) -> Path:
    """A folder that holds every shard several times: more to measure, nothing more to draw."""
    source.mkdir()
    for shard, copy in product(shards, range(COPIES)):
        (source / shard.name.replace("general", f"copy{copy}")).symlink_to(shard)
    return source


def _draw(path: Path) -> str:
    """Make a shard; what it is like."""
    rng = np.random.default_rng(int(path.name.split("-")[1]))
    words = np.array(["".join(rng.permutation(LETTERS)[: 2 + i % 8]) for i in range(500)])
    coarse = Image.fromarray(rng.integers(0, 256, (75, 75, 3), np.uint8)).resize((900, 900))
    grain = rng.normal(0, 2, (900, 900, 1))
    photo = Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8))
    screens = [_screen(rng, words, photo) for _ in range(RECORDS)]
    drawn = [Element(i / 25, 0.1, 0.04, 0.5, str(words[i])) for i in range(20)]
    at = (0.25, 0.5)
    rest = annotations(drawn), 4, at, at, ""
    write_shard(path, (to_example(
        Record(f"{path.name}.{i // STEPS}", i % STEPS, STEPS, "open it", 31, "phone", "a.b", screen, *rest)
    ) for i, screen in enumerate(screens)), level=6)  # fmt: skip
    ratio = RECORDS * HEIGHT * WIDTH * 3 / path.stat().st_size
    jpeg = sum(len(encode_image(screen, "jpeg")) for screen in screens) / RECORDS / 1000
    return (
        f"{path.name}: {RECORDS} of {WIDTH} x {HEIGHT}, gzip level 6 {ratio:.1f} : 1, {jpeg:.0f} KB as JPEG"
    )


def _screen(rng: np.random.Generator, words: NDArray[np.str_], photo: Image.Image) -> NDArray[np.uint8]:
    """Flat areas, lines of text and pieces of the photo: compresses like AITW's screens."""
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
            most = int((WIDTH - left) / size * rng.uniform(0, 1.9))
            draw.text((left, line), " ".join(rng.choice(words, 12))[:most], ink, font)
        y += tall + int(rng.integers(45))
    return np.asarray(image)


def _fill_memory(nothing: RawIOBase) -> None:
    """With pages of a file that has none on the disk."""
    piece = bytearray(PIECE)
    for _ in range(0, psutil.virtual_memory().free - SPARE, PIECE):
        nothing.readinto(piece)


def _run(source: Path, out: Path, fill: Callable[[], None]) -> Run:
    """Everything once; times an image."""
    hold_freed()  # as the whole does
    shards, parts, files = sorted(source.iterdir()), find(str(source)), out.with_name("files")
    files.mkdir()
    took = {what: np.zeros(2) for what in (*PARTS, PASS_1, THEIRS)}
    fill()
    with (
        opened(out, Settings(), parts, force=False) as work,
        # theirs in a process of its own: ours has told malloc what to keep
        ProcessPoolExecutor(1, get_context("spawn"), import_module, ("tfrecord",)) as pool,
    ):
        for i, (shard, part) in enumerate(zip(reversed(shards), parts, strict=True)):  # never two of the same
            _add_parts(took, shard)
            took[PASS_1] += _timed(spill_part, Job(i, part, work))
            took[THEIRS] += pool.submit(_timed, _theirs, shard, files).result()
    took[FLOOR] = np.sum([took[part] for part in PARTS], axis=0)
    took[WHOLE] = took[PASS_1] + _timed(prepare, source, out)  # which goes on where pass 1 has ended
    shutil.rmtree(files)
    shutil.rmtree(out)
    return {what: ms / (len(shards) * RECORDS) for what, ms in took.items()}


def _add_parts(took: Run, shard: Path) -> None:
    """The floor's, each timed alone."""
    took["gunzip"] += _timed(_gunzip, shard)
    for data in read_records(shard):
        pixels = parse_record(data).pixels
        took["checksum"] += _timed(google_crc32c.value, data)
        took["parse"] += _timed(parse_example, data, SCREEN)
        took["encode"] += _timed(encode_image, pixels, "jpeg")


def _timed(work: Callable[..., object], *args: object) -> Times:
    """The ms that a call takes."""
    began = time.process_time(), time.perf_counter()
    work(*args)
    return 1000 * np.subtract((time.process_time(), time.perf_counter()), began)


def _gunzip(shard: Path) -> None:
    inflate = zlib_ng.decompressobj(GZIP)
    with shard.open("rb") as file:
        while piece := file.read(1 << 15):
            inflate.decompress(piece)


def _theirs(shard: Path, folder: Path) -> None:
    """The usual script: every screen becomes a file, and no checksum is checked."""
    rows = import_module("tfrecord").tfrecord_loader(str(shard), None, compression_type="gzip")
    for i, row in enumerate(rows):
        pixels = np.frombuffer(row["image/encoded"], np.uint8).reshape(HEIGHT, WIDTH, 3)
        Image.fromarray(pixels).save(folder / f"{shard.name}.{i}.jpg", quality=90, subsampling=0)


def _in_two(source: Path, out: Path, fill: Callable[[], None]) -> list[Run]:
    """All screens by one worker and by two, their start included; and the floor's parts of them by one process and by two
    that share nothing, a half each: what this machine has to give."""
    shards, runs = sorted(source.iterdir()), list[Run]()
    with ProcessPoolExecutor(2, get_context("spawn"), hold_freed) as pool:
        list(pool.map(_parts, [shards[:1]] * 2))  # starts them
        for _ in range(RUNS):
            took = Run()
            for processes, share in ((1, [shards]), (2, [shards[::2], shards[1::2]])):
                fill()
                took[f"workers {processes}"] = _timed(partial(prepare, workers=processes), source, out)
                shutil.rmtree(out)
                took[f"bare {processes}"] = _timed(list, pool.map(_parts, share))
            runs.append(took)
    return runs


def _parts(shards: Sequence[Path]) -> None:
    """What the floor counts."""
    for shard in shards:
        for data in read_records(shard):
            encode_image(parse_record(data).pixels, "jpeg")


def _peak(shard: Path, out: Path) -> float:
    """The most memory of this process, MB, when it has prepared a shard."""
    prepare(shard, out)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _table(runs: Sequence[Run]) -> Table:
    table = Table("", title=f"JPEG of quality 90, 4:4:4; median of {len(runs)} runs")
    for head in ("CPU ms an image", "wall ms an image", "images/s/core", "of the floor", "ours / it"):
        table.add_column(head, justify="right")
    for what in (*PARTS, FLOOR, WHOLE, PASS_1, THEIRS):
        cpu, wall = np.median([run[what] for run in runs], axis=0)
        cells = [f"{cpu:.2f}", f"{wall:.2f}", f"{1000 / cpu:.0f}"]
        if what not in (*PARTS, FLOOR):
            cells.append(_ratio(runs, FLOOR, what))
        if what == THEIRS:
            cells.append(_ratio(runs, THEIRS, WHOLE))
        table.add_row(what, *cells)
    return table


def _ratio(runs: Sequence[Run], above: str, below: str, clock: int = CPU) -> str:
    """Of times within a run: the median, the least and the most."""
    ratios = [run[above][clock] / run[below][clock] for run in runs]
    return f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    main()

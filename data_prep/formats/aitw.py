"""AITW as published: shards of GZIP TFRecords, one Example per step. The subset stands in a shard's name."""

from collections import Counter
from collections.abc import Iterable, Iterator

from data_prep.aitw import find_step
from data_prep.files import SHARD, list_files, list_shards
from data_prep.formats import autoui
from data_prep.record import Found, Part
from data_prep.tfrecord import read_records

SUBSETS = ("google_apps", "install", "web_shopping", "general", "single")

_COPY = "android-in-the-wild_"  # some copies carry <this><folder>_ before the name


def find(source: str) -> list[Part]:
    """Every shard in a folder and its folders, in order of name; or the one file named. ValueError if none."""
    shards = list_shards(source)
    if not shards and any(file.name.endswith(".obj") for file in list_files(source)):
        autoui.find(source)
    if not shards:
        raise ValueError(
            f"no shards in {source}: their names end in -00000-of-00321 or the like, without extension"
        )
    return [Part(file.name, file.where, str(file.size)) for file in shards]


def read(part: Part) -> Iterator[Found]:
    """The steps of a shard. Raises DamagedShard where the file stops making sense."""
    subset = subset_of(_last(part.name))
    for number, data in enumerate(read_records(part.where)):
        yield find_step(data, subset, part.where, number)


def subset_of(name: str) -> str:
    """The subset in a shard's name: `general-00000-of-00321`, `android-in-the-wild_general_general-00000-...`."""
    match = SHARD.fullmatch(name)
    prefix = match[1] if match else name.split("-")[0]
    for subset in SUBSETS:
        if prefix == subset or prefix.endswith(f"_{subset}"):
            return subset
    return prefix.removeprefix(_COPY)


def absent(names: Iterable[str]) -> dict[str, int]:
    """How many of a subset's numbered shards are not there, by subset; a part of the data is no fault."""
    found = [(subset_of(last), match) for last in map(_last, names) if (match := SHARD.fullmatch(last))]
    stated: dict[str, int] = {}
    for subset, match in found:
        stated[subset] = max(stated.get(subset, 0), int(match[3]))
    present = Counter(subset for subset, _ in {(subset, match[2]) for subset, match in found})
    return {subset: count - present[subset] for subset, count in stated.items() if count > present[subset]}


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]

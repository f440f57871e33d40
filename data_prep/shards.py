"""The shards of a source: a file or folder in, the AITW shards in it out, each with its subset."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SUBSETS = ("google_apps", "install", "web_shopping", "general", "single")
PATTERN = "*-?????-of-?????"  # AITW's shards have no extension

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})")
_COPY = "android-in-the-wild_"  # some copies carry <this><folder>_ before the name


@dataclass(frozen=True, slots=True)
class Shard:
    path: Path
    name: str  # relative to the source, with "/"
    subset: str


def find_shards(source: Path) -> list[Shard]:
    """Every shard in a folder and its folders, in order of name; or the one file named. ValueError if none."""
    if source.is_file():
        return [Shard(source, source.name, subset_of(source.name))]
    if not source.is_dir():
        raise ValueError(f"there is no folder or file {source} to prepare")
    paths = sorted(path for path in source.rglob(PATTERN) if _NAME.fullmatch(path.name) and path.is_file())
    if not paths:
        raise ValueError(
            f"no shards in {source}: their names end in -00000-of-00321 or the like, without extension"
        )
    return [Shard(path, path.relative_to(source).as_posix(), subset_of(path.name)) for path in paths]


def subset_of(name: str) -> str:
    """The subset in a shard's name: `general-00000-of-00321`, `android-in-the-wild_general_general-00000-...`."""
    match = _NAME.fullmatch(name)
    prefix = match[1] if match else name.split("-")[0]
    for subset in SUBSETS:
        if prefix == subset or prefix.endswith(f"_{subset}"):
            return subset
    return prefix.removeprefix(_COPY)


def absent_shards(shards: list[Shard]) -> dict[str, int]:
    """How many of a subset's numbered shards are not there, by subset; a part of the data is no fault."""
    stated: dict[str, int] = {}
    numbers = {(shard.subset, m[2]) for shard in shards if (m := _NAME.fullmatch(shard.path.name))}
    for shard in shards:
        if match := _NAME.fullmatch(shard.path.name):
            stated[shard.subset] = max(stated.get(shard.subset, 0), int(match[3]))
    present = Counter(subset for subset, _ in numbers)
    return {subset: count - present[subset] for subset, count in stated.items() if count > present[subset]}

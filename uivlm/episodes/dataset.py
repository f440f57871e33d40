"""Prepared data as a sequence of episodes: a folder in, episodes out, each read when it is indexed.

The folder holds `meta.json` and Parquet shards with one row per step (`uivlm.episodes.rows`). All rows of
an episode are adjacent in one shard, in order.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, with_config

from uivlm.actions.schema import STRICT, from_json
from uivlm.episodes.episode import Episode
from uivlm.episodes.episode_index import EpisodeIndex, EpisodeRef, open_index
from uivlm.episodes.rows import (
    DECODED_COLUMNS,
    ELEMENT_COLUMNS,
    FORMAT,
    READABLE_VERSIONS,
    VERSION,
    DamagedScreenError,
    from_row,
)
from uivlm.episodes.shard import find_episodes, has_text, read_rows
from uivlm.episodes.subsample import subsample

META = "meta.json"
PREPARE = "prepare the data with `python -m data_prep SOURCE OUT`"  # the remedy in errors
_Count = Annotated[int, Field(ge=0)]
_OPEN = STRICT | {"extra": "ignore"}  # meta.json has more fields, which are for people


@with_config(_OPEN)
@dataclass(frozen=True, slots=True)
class _ShardEntry:
    file: Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]  # in the folder of meta.json
    steps: _Count


@with_config(_OPEN)
@dataclass(frozen=True, slots=True)
class _Meta:
    """The fields of meta.json that reading needs."""

    num_bins: Annotated[int, Field(ge=1)]  # of `action_text`
    splits: dict[str, _Count]  # numbers of episodes
    subsets: dict[str, _Count]
    shards: tuple[_ShardEntry, ...]
    fingerprint: str


_META = TypeAdapter(_Meta)


@dataclass(frozen=True, slots=True)
class PreparedEpisodes(Sequence[Episode]):
    """Episodes of prepared data, read on access. Holds no open shard, so it is safe to pickle and to fork."""

    folder: Path
    refs: EpisodeIndex = field(repr=False)

    def __len__(self) -> int:
        return len(self.refs)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> "PreparedEpisodes": ...
    def __getitem__(self, index: int | slice) -> "Episode | PreparedEpisodes":
        if isinstance(index, slice):
            return PreparedEpisodes(self.folder, self.refs[index])
        ref = self.refs[index]
        return self._read(ref, 0, ref.num_rows)

    def subsample(self, max_per_subset: int) -> "PreparedEpisodes":
        """At most `max_per_subset` episodes of each subset, chosen by a hash of their ids."""
        indices = subsample(((ref.subset, ref.id) for ref in self.refs), max_per_subset)
        return PreparedEpisodes(self.folder, self.refs.take(indices))

    @property
    def num_steps(self) -> NDArray[np.int32]:
        """The number of steps of each episode."""
        return self.refs.num_rows

    def with_screens(self, index: int, start: int, end: int, with_elements: bool = True) -> Episode:
        """The episode with the screens of the steps `start` to `end` (exclusive). The others are black.

        Only row groups that hold shown screens are read for them. Black screens have the recorded sizes.
        """
        return self._read(self.refs[index], start, end, with_elements)

    def without_screens(self, index: int, with_elements: bool = True) -> Episode:
        """The episode with black screens of the recorded sizes, in a fraction of the time."""
        return self._read(self.refs[index], 0, 0, with_elements)

    def _read(self, ref: EpisodeRef, start: int, end: int, with_elements: bool = True) -> Episode:
        """Raises DamagedScreenError, which names the file and the episode."""
        path = self.folder / ref.shard
        omitted = () if with_elements else ELEMENT_COLUMNS
        columns = ["goal", *(name for name in DECODED_COLUMNS if name not in ("image", *omitted))]
        rows = read_rows(self.folder, ref, 0, ref.num_rows, columns)
        images = read_rows(self.folder, ref, start, min(end, ref.num_rows), ["image"])
        for row, image in zip(rows[start:end], images, strict=True):
            row["image"] = image["image"]
        try:
            return Episode(ref.id, rows[0]["goal"], ref.subset, tuple(map(from_row, rows)))
        except DamagedScreenError as error:
            message = f"{path}: a screen of episode {ref.id!r} is damaged ({error})"
            raise DamagedScreenError(message) from error
        except (
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
        ) as error:  # nulls, no action
            raise ValueError(
                f"{path}: a row of episode {ref.id!r} is damaged ({error}): prepare the data again"
            ) from error

    def encoded_screens(self, index: int) -> list[bytes]:
        """The screens of an episode as stored, JPEG or PNG."""
        ref = self.refs[index]
        rows = read_rows(self.folder, ref, 0, ref.num_rows, ["image"])
        return [row["image"]["bytes"] for row in rows]


@dataclass(frozen=True, slots=True)
class PreparedData:
    """A folder of prepared data: its `meta.json` and the locations of its episodes."""

    folder: Path
    meta: dict[str, Any]
    refs: EpisodeIndex = field(repr=False)

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "PreparedData":
        """Read `meta.json` and find the episodes, without reading screens. Raises ValueError."""
        root = Path(folder)
        meta = read_meta(root)
        shards = [(str(shard["file"]), shard["steps"], _shard_size(root, shard)) for shard in meta["shards"]]
        depends_on = {"data": meta.get("fingerprint"), "shards": shards}
        refs = (ref for file, steps, _ in shards for ref in find_episodes(root / file, steps))
        return PreparedData(root, meta, open_index(root, depends_on, refs))

    def episodes(
        self, split: str, subset: str | None = None, max_episodes: int | None = None
    ) -> PreparedEpisodes:
        """The episodes of a split (and subset), at most `max_episodes`, in the order of the data."""
        if split not in self.meta["splits"]:
            known = ", ".join(self.meta["splits"])
            raise ValueError(f"the prepared data in {self.folder} has no split {split!r}: it has {known}")
        if subset is not None and subset not in self.meta["subsets"]:
            known = ", ".join(self.meta["subsets"])
            raise ValueError(f"the prepared data in {self.folder} has no subset {subset!r}: it has {known}")
        refs = self.refs.where(split=split) if subset is None else self.refs.where(split=split, subset=subset)
        return PreparedEpisodes(self.folder, refs[:max_episodes])

    def has_notes(self, column: str) -> bool:
        """Does any step have text in a column of `StepNotes`?"""
        return any(has_text(self.folder / str(shard["file"]), column) for shard in self.meta["shards"])


def read_meta(folder: Path) -> dict[str, Any]:
    """The `meta.json` of a folder of prepared data. Raises ValueError for another format or version."""
    if url := re.match(r"([a-z0-9]+):/+(.+)", folder.as_posix()):  # a Path has one slash of a URL's two
        raise ValueError(_remote_error(*url.groups()))
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} of prepared data: {PREPARE}")
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{folder} is not prepared data, it has no {META}: {PREPARE}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / META} is not JSON ({error}): prepare the data again") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{folder / META} does not describe {FORMAT}: {PREPARE}")
    if meta.get("version") not in READABLE_VERSIONS:
        raise ValueError(
            f"{folder / META}: got version {meta.get('version')}; expected {VERSION}, or 2 (without notes), "
            "with the columns action_text and element_ui_types. Prepare the data again"
        )
    from_json(_META, meta, str(folder / META))
    return meta


def _remote_error(scheme: str, path: str) -> str:
    """Rows are read in random order, at hundreds of places a second: a bucket is no substitute for a disk."""
    url = f"{scheme}://{path}"
    match scheme, path.split("/"):
        case "gs", _:
            command = f" with `gcloud storage cp -r {url} FOLDER`"
        case "s3", _:
            command = f" with `aws s3 cp --recursive {url} FOLDER`"
        case "hf", ["datasets", user, name]:
            command = f" with `hf download {user}/{name} --repo-type dataset --local-dir FOLDER`"
        case _:
            command = ""
    return f"{url} is remote, but prepared data is read from a disk: copy it to a disk first{command}"


def _shard_size(folder: Path, shard: dict[str, Any]) -> int:
    path = folder / str(shard["file"])
    if not path.is_file():
        raise ValueError(f"{path} is named in {META} but missing: prepare the data again")
    return path.stat().st_size  # bytes

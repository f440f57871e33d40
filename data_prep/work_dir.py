"""The work folder `OUT.part`, next to OUT. An interrupted run leaves it, and the next run resumes in it.

    settings.json   all that decides the bytes of the data: a run with other settings is refused
    spill/          pass 1: NNNNN.arrow, the rows of a part; NNNNN.SPLIT, their screens; then NNNNN.json
    data/           pass 2: the future OUT; screens files that no later shard needs are removed
    complete        written when data/ is complete: from then on files are only renamed and removed

Every file has a temporary name in spill/ until it is complete, so that a killed run leaves nothing else in
data/. At the end data/ is renamed to OUT, and the rest is removed.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from data_prep.settings import PrepSettings, settings_from_json, settings_to_json
from data_prep.source import SourcePart
from data_prep.split import Split
from uivlm.episodes.dataset import META
from uivlm.episodes.rows import FORMAT

LAYOUT_VERSION = 7  # of the spill files, of the digests of rows, and of the output


@dataclass(frozen=True, slots=True)
class WorkDir:
    path: Path

    @property
    def data_dir(self) -> Path:
        return self.path / "data"

    @property
    def settings_path(self) -> Path:
        return self.path / "settings.json"

    @property
    def complete_marker(self) -> Path:
        return self.path / "complete"

    def spill_path(self, part_index: int) -> Path:
        """The rows of a part."""
        return self.path / "spill" / f"{part_index:05d}.arrow"

    def screens_path(self, part_index: int, split: Split) -> Path:
        """The encoded screens of a part's rows of a split, back to back."""
        return self.path / "spill" / f"{part_index:05d}.{split}"

    def temp_path(self) -> Path:
        """A new name for an incomplete file. It is unique even if a process outlives its run."""
        return self.path / "spill" / f"{uuid4().hex}.tmp"

    def done_marker(self, part_index: int) -> Path:
        """The summary of a part, or its error; it exists once the part is done."""
        return self.path / "spill" / f"{part_index:05d}.json"


@contextmanager
def open_work_dir(
    out: Path, settings: PrepSettings, parts: Sequence[SourcePart], overwrite: bool
) -> Iterator[WorkDir]:
    """The work folder of OUT, new or left by an earlier run, for one process at a time. Raises ValueError."""
    _check_can_write(out, overwrite)
    work = WorkDir(out.with_name(f"{out.name}.part"))
    (work.path / "spill").mkdir(parents=True, exist_ok=True)
    with (work.path / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is writing {out}: wait until it ends, or choose another folder"
            ) from None
        if not work.complete_marker.exists():  # else data/ may be OUT already: do not create it again
            check_settings(work, settings, parts)
            work.data_dir.mkdir(exist_ok=True)
        yield work


def is_complete(out: Path) -> bool:
    """Whether an earlier run wrote all of OUT's data and was interrupted while it moved them."""
    return WorkDir(out.with_name(f"{out.name}.part")).complete_marker.exists()


def move_to_out(out: Path, work_dir: WorkDir) -> None:
    """Rename data/ to OUT. After an interruption at any point, it can be called again."""
    work_dir.complete_marker.touch()
    old = work_dir.path / "old"
    if work_dir.data_dir.exists():
        if out.exists():
            out.rename(old)
        work_dir.data_dir.rename(out)
    discard(work_dir)


def discard(work_dir: WorkDir) -> None:
    """Remove the work folder; the marker last, so that an interrupted removal is finished by the next run."""
    for folder in (work_dir.path / "spill", work_dir.data_dir, work_dir.path / "old"):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (work_dir.settings_path, work_dir.path / "lock", work_dir.complete_marker):
        file.unlink(missing_ok=True)
    shutil.rmtree(work_dir.path)


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def write_json(work_dir: WorkDir, path: Path, content: dict[str, Any]) -> None:
    write_text(work_dir, path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(work_dir: WorkDir, path: Path, content: str) -> None:
    """Write a file of data/ or spill/. Lone surrogates of foreign text are escaped."""
    temp_path = work_dir.temp_path()
    temp_path.write_text(content, "utf-8", errors="backslashreplace")
    temp_path.replace(path)


@lru_cache(maxsize=1)
def _cached_settings(path: Path, mtime_ns: int) -> PrepSettings:
    return settings_from_json(read_json(path)["settings"])


def read_settings(work_dir: WorkDir) -> PrepSettings:
    """The settings of a run. Workers read them here: a list of a million ids is not sent with every job."""
    return _cached_settings(work_dir.settings_path, work_dir.settings_path.stat().st_mtime_ns)


def check_settings(work_dir: WorkDir, settings: PrepSettings, parts: Sequence[SourcePart] = ()) -> None:
    """Write the settings for the workers, or check that an earlier run had the same."""
    content, stamps = settings_to_json(settings), [[part.name, part.stamp] for part in parts]
    if not work_dir.settings_path.exists():
        document = {"layout": LAYOUT_VERSION, "settings": content, "parts": stamps}
        write_json(work_dir, work_dir.settings_path, document)
        return
    earlier = read_json(work_dir.settings_path)
    changed = [name for name, value in content.items() if earlier["settings"].get(name) != value]
    changed += ["the parts of the source"] * (earlier["parts"] != stamps)
    changed += ["the version of uivlm"] * (earlier.get("layout") != LAYOUT_VERSION)
    if changed:
        raise ValueError(
            f"{work_dir.path} has an interrupted run with other settings ({', '.join(changed)}): rerun the "
            "earlier command to resume it, or remove that folder"
        )


def _check_can_write(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless OUT is new, empty, prepared data to overwrite, or about to be moved."""
    if is_complete(out) or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        is_prepared = json.loads((out / META).read_text("utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        is_prepared = False
    if not is_prepared:
        raise ValueError(f"{out} exists and is not prepared data: choose another folder, or remove it")
    if not overwrite:
        raise ValueError(
            f"{out} already has prepared data: replace it with --overwrite, or choose another folder"
        )

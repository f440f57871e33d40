"""The folder in which data is made: `OUT.part` beside OUT, kept when a run ends early, so that the next goes on there.

    settings.json   what decides the bytes of the data: a run with other settings may not go on here
    spill/          pass 1: NNNNN.arrow, the rows of a part; NNNNN.SPLIT, their screens; NNNNN.json, written last, what was read
    data/           pass 2: what OUT will be; screens that no file to come needs are removed
    whole           written when data/ is: from then on only names change

Every file has a temporary name until it is whole. At the end data/ is renamed to OUT, and the rest removed.
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

from data_prep.record import Part
from data_prep.settings import Settings, as_json, from_json
from data_prep.split import Split
from uivlm.sentences.store import FORMAT, META

LAYOUT = 4  # of the files that wait, of their rows' digests, and of what is written


@dataclass(frozen=True, slots=True)
class Work:
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    def spill(self, number: int) -> Path:
        """The rows of a part."""
        return self.folder / "spill" / f"{number:05d}.arrow"

    def screens(self, number: int, split: Split) -> Path:
        """The encoded screens of a part's rows of a split, one after the other."""
        return self.folder / "spill" / f"{number:05d}.{split}"

    def hidden(self) -> Path:
        """A name for a file until it is whole; of no other process, even one that outlived its run."""
        return self.folder / "spill" / f"{uuid4().hex}.tmp"

    def told(self, number: int) -> Path:
        """What was read of a part, or why it was not; it is there when the part is done."""
        return self.folder / "spill" / f"{number:05d}.json"


@contextmanager
def opened(out: Path, settings: Settings, parts: Sequence[Part], force: bool) -> Iterator[Work]:
    """The work folder of OUT, new or as an earlier run left it, for one process at a time. ValueError if it may not be."""
    _may_write(out, force)
    work = Work(out.with_name(f"{out.name}.part"))
    (work.folder / "spill").mkdir(parents=True, exist_ok=True)
    with (work.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is making {out} now: wait for its end, or name another folder"
            ) from None
        if not work.whole.exists():  # else data/ may be OUT already, and must not be there again, empty
            keep_settings(work, settings, parts)
            work.data.mkdir(exist_ok=True)
        yield work


def is_whole(out: Path) -> bool:
    """Did an earlier run make all of OUT's data, and stop among the last renamings?"""
    return Work(out.with_name(f"{out.name}.part")).whole.exists()


def publish(out: Path, work: Work) -> None:
    """data/ becomes OUT. Stopped anywhere, it can be called again."""
    work.whole.touch()
    old = work.folder / "old"
    if work.data.exists():
        if out.exists():
            out.rename(old)
        work.data.rename(out)
    discard(work)


def discard(work: Work) -> None:
    """Remove the folder; `whole` last, so that a run stopped in here is finished and not begun again."""
    for each in (work.folder / "spill", work.data, work.folder / "old"):
        shutil.rmtree(each, ignore_errors=True)
    for file in (work.settings, work.folder / "lock", work.whole):
        file.unlink(missing_ok=True)
    shutil.rmtree(work.folder)


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def write_json(work: Work, path: Path, content: dict[str, Any]) -> None:
    hidden = work.hidden()
    hidden.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    hidden.replace(path)


@lru_cache(maxsize=1)
def _settings(path: Path, changed: int) -> Settings:
    return from_json(read_json(path)["settings"])


def read_settings(work: Work) -> Settings:
    """They lie with the work: a list of a million ids is not sent with every job."""
    return _settings(work.settings, work.settings.stat().st_mtime_ns)


def keep_settings(work: Work, settings: Settings, parts: Sequence[Part] = ()) -> None:
    """Write them for the workers, or make sure that an earlier run had the same."""
    wanted, stamps = as_json(settings), [[part.name, part.stamp] for part in parts]
    if not work.settings.exists():
        write_json(work, work.settings, {"layout": LAYOUT, "settings": wanted, "parts": stamps})
        return
    before = read_json(work.settings)
    other = [name for name, value in wanted.items() if before["settings"].get(name) != value]
    other += ["the parts of the source"] * (before["parts"] != stamps)
    other += ["the version of uivlm"] * (before.get("layout") != LAYOUT)
    if other:
        raise ValueError(
            f"{work.folder} holds an unfinished run with other settings ({', '.join(other)}): give the earlier "
            "command again to finish it, or remove that folder"
        )


def _may_write(out: Path, force: bool) -> None:
    """ValueError unless OUT is new or empty, or is prepared data and `force` is set, or only names are left to change."""
    if is_whole(out) or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        ours = json.loads((out / META).read_text("utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ValueError(f"{out} exists and is no prepared data: name another folder, or remove it yourself")
    if not force:
        raise ValueError(
            f"{out} holds prepared data already: replace it with --force, or name another folder"
        )

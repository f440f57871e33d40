"""An interrupted run resumes, and ends with the bytes of an uninterrupted one."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from data_prep import __main__ as stage
from data_prep import pass2_write
from data_prep.__main__ import prepare
from data_prep.formats.aitw import to_example
from data_prep.settings import ImageSettings, PrepSettings
from data_prep.split import SPLITS
from data_prep.tfrecord import write_shard
from data_prep.work_dir import LAYOUT_VERSION
from tests.helpers.paths import ROOT
from tests.helpers.prepared_data import command, content, refused, step


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes with steps in two shards each, so that pass 2 has to gather them."""
    folder = tmp_path_factory.mktemp("source")
    for shard in range(12):
        steps = [(shard // 2, t) for t in range(shard % 2, 40, 2)]
        examples = [to_example(step(f"{episode}", t, 40)) for episode, t in steps]
        write_shard(folder / f"general-{shard:05d}-of-00012", examples)
    return folder


def killed_after(seconds: float, arguments: list[str]) -> None:
    """Start the command and kill it with all its workers."""
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    "num_kills", [pytest.param(8, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.exhaustive)]
)
def test_killed_many_times_it_ends_with_the_same_bytes(source: Path, num_kills: int, tmp_path: Path) -> None:
    start = time.perf_counter()
    subprocess.run(
        command(source, tmp_path / "whole", "--workers", "2"), cwd=ROOT, check=True, capture_output=True
    )
    usual = time.perf_counter() - start
    moments, out = random.Random(4), tmp_path / "out"
    kills = kept = runs = 0
    while kills < num_kills or kept < num_kills // 2:
        runs += 1
        assert runs < 10 * num_kills, "no kills come while there is something to lose"
        killed_after(moments.uniform(0.3, 1.1) * usual, command(source, out, "--workers", "2"))
        if out.exists() and not out.with_name("out.part").exists():  # too late: the machine has become faster
            assert content(out) == content(tmp_path / "whole")
            shutil.rmtree(out)
            usual *= 0.8
            continue
        kills += 1
        if list(tmp_path.glob("out.part/spill/*.json")):
            kept += 1
        else:  # so early that there was nothing to lose
            usual *= 1.1
    subprocess.run(command(source, out), cwd=ROOT, capture_output=True, check=True)
    assert content(out) == content(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path)) == ["out", "whole"]


@pytest.mark.parametrize("at", range(1, 40, 3))
def test_interrupted_at_any_rename(
    at: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file and folder gets its name by a rename: interrupt one, then resume."""
    out, first, two = tmp_path / "out", tmp_path / "first", tmp_path / "two"
    first.mkdir()
    for name in sorted(os.listdir(source))[:4]:
        os.link(source / name, first / name)
    prepare(first, two)
    prepare(
        first, out, settings=PrepSettings(images=ImageSettings(num_bins=50))
    )  # older data, to be replaced
    calls = 0

    def stops(self: Path, target: Path, real: object = Path.replace) -> Path:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return real(self, target)  # type: ignore[operator, no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stops)
        patch.setattr(Path, "rename", lambda self, target: stops(self, target, os.rename))
        try:
            prepare(first, out, overwrite=True)
        except KeyboardInterrupt:
            assert calls == at
    if (tmp_path / "out.part").exists():
        prepare(first, out, overwrite=True)
    assert content(out) == content(two)
    assert sorted(os.listdir(tmp_path)) == ["first", "out", "two"]


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("at", range(1, 9))
def test_interrupted_while_it_removes_the_work_folder(
    at: int, force: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUT is complete already: nothing of it may be lost, and the next run only finishes."""
    one, out, calls = tmp_path / sorted(os.listdir(source))[0], tmp_path / "out", 0
    os.link(source / one.name, one)
    prepare(one, tmp_path / "whole", PrepSettings(missing_steps="keep"))
    if force:
        prepare(one, out, settings=PrepSettings(missing_steps="keep", images=ImageSettings(num_bins=50)))

    def stops(real: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if out.exists() and not (tmp_path / "out.part" / "data").exists():
                calls += 1
                if calls == at:
                    raise KeyboardInterrupt
            return real(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stops(shutil.rmtree))
        patch.setattr(Path, "unlink", stops(Path.unlink))
        with contextlib.suppress(KeyboardInterrupt):
            prepare(one, out, PrepSettings(missing_steps="keep"), overwrite=force)
    assert content(out) == content(tmp_path / "whole")
    if (tmp_path / "out.part" / "complete").exists():
        prepare(one, out, PrepSettings(missing_steps="keep"), overwrite=force)
    assert content(out) == content(tmp_path / "whole")


def test_what_was_read_is_not_read_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(source, tmp_path / "out", "write_file", monkeypatch)
    for path in source.iterdir():  # the same names and sizes, nothing to read
        (tmp_path / path.name).write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(stage, "spill_part", interrupted)
    assert prepare(source, tmp_path / "out")["steps"] == 240


def test_spilled_screens_are_removed_as_soon_as_possible(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the disk holds them twice. A resumed run does not need the removed files."""
    monkeypatch.setattr(pass2_write, "STEPS_PER_FILE", 40)  # an episode a file, of two shards
    assert prepare(source, tmp_path / "whole")["steps"] == 240
    waiting: list[int] = []
    spill = tmp_path / "out.part" / "spill"

    def stops(file: pass2_write.ShardPlan) -> object:
        waiting.append(
            sum(screens.stat().st_size for split in SPLITS for screens in spill.glob(f"*.{split}"))
        )
        if len(waiting) == 4:
            raise KeyboardInterrupt
        return pass2_write.write_file(file)

    monkeypatch.setattr(stage, "write_file", stops)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "out")
    prepare(source, tmp_path / "out")
    each = waiting[0] // 6  # episodes have the same pixels
    assert [round(size / each) for size in waiting] == [6, 5, 4, 3, 3, 3, 3, 3, 2, 1]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def interrupt(source: Path, out: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is interrupted before its first call of a function."""
    with monkeypatch.context() as patch:
        patch.setattr(stage, at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, out)


def interrupted(job: object) -> None:
    raise KeyboardInterrupt


def test_other_settings_or_sources_do_not_resume(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(source, tmp_path / "out", "spill_part", monkeypatch)
    sentence = refused(tmp_path, str(source), str(tmp_path / "out"), "--num-bins", "50")
    assert "out.part has an interrupted run with other settings (images)" in sentence
    one = next(source.iterdir())
    assert "(the parts of the source)" in refused(tmp_path, str(one), str(tmp_path / "out"))
    kept = tmp_path / "out.part" / "settings.json"
    kept.write_text((now := kept.read_text()).replace(f'"layout": {LAYOUT_VERSION}', '"layout": 1'))
    assert "(the version of uivlm)" in refused(tmp_path, str(source), str(tmp_path / "out"))
    kept.write_text(now)
    assert prepare(source, tmp_path / "out")["steps"] == 240


def test_two_runs_do_not_make_the_same_folder(source: Path, tmp_path: Path) -> None:
    with stage.open_work_dir(tmp_path / "out", PrepSettings(), (), False):
        assert "another run is writing" in refused(tmp_path, str(source), str(tmp_path / "out"))


@pytest.mark.slow
def test_a_full_disk_keeps_what_is_done(source: Path, tmp_path: Path) -> None:
    """A limit on the size of files simulates the disk."""
    arguments = command(source, tmp_path / "out", "--workers", "1")
    before = content(source)
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=_no_large_files
    )
    assert done.returncode == 2
    (sentence,) = done.stderr.strip().splitlines()
    assert "no space left" in sentence
    assert "to resume in" in sentence
    assert not (tmp_path / "out").exists()
    assert content(source) == before
    subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True)
    assert sorted(os.listdir(tmp_path)) == ["out"]


def _no_large_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def test_an_output_that_cannot_be(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    sentence = refused(tmp_path, str(source), str(tmp_path / "file" / "out"))
    assert "Not a directory" in sentence

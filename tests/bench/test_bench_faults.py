"""bench/faults: its table has every row, and its status is 1 if a promise breaks."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.helpers.paths import ROOT

pytestmark = pytest.mark.slow

FOLDERS = (str(ROOT / "bench" / "faults"), str(ROOT / "bench"))


@pytest.fixture
def faults() -> Iterator[dict[str, ModuleType]]:
    """The programs of the folder by name; other tests do not see their short names."""
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = FOLDERS
    try:
        yield {name: importlib.import_module(name) for name in ("row", "all", "kills", "shell_texts")}
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(FOLDERS):
                del sys.modules[name]


@pytest.mark.parametrize(("holds", "status"), [(True, 0), (False, 1)])
def test_a_broken_promise_is_the_status(
    holds: bool,
    status: int,
    faults: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    attacks = [faults["row"].Attack(f"attack {i}", "p", lambda: ("figures", holds)) for i in range(2)]
    monkeypatch.setattr(faults["all"], "attacks", lambda _: iter(attacks))
    assert faults["all"].main() == status
    printed = capsys.readouterr().out
    assert all(f"{'held' if holds else 'BROKEN'}: attack {i}" in printed for i in range(2))
    assert printed.count("figures") == 2


def test_an_attack_that_fails_is_a_broken_promise(faults: dict[str, ModuleType]) -> None:
    row = faults["row"].Attack("attack", "promise", lambda: 1 // 0).run()
    assert (row.holds, row.measured.partition(":")[0]) == (False, "ZeroDivisionError")


def test_hostile_texts_are_the_same_each_time_and_try_to_run(faults: dict[str, ModuleType]) -> None:
    texts = faults["shell_texts"].texts()
    assert texts == faults["shell_texts"].texts()
    assert len(texts) == faults["shell_texts"].NUM_TEXTS
    assert sum("touch hit" in text for text in texts) > 100

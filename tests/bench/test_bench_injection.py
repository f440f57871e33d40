"""bench/injection.py: its table counts what landed, and its status is 1 if harm that is stopped lands."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType

import pytest

from tests.helpers.paths import ROOT

FOLDER = str(ROOT / "bench")


@pytest.fixture
def injection(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program; other tests do not see its short names. It has two trials, without phones."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    program = importlib.import_module("injection")
    scenarios = [
        program.Scenario("a note", "pay", "go", (), ()),
        program.Scenario("a button", "pay", "go", (), (), stopped_by="strict"),
    ]
    trials = [program.Attempt("fake phone", scenario, nullcontext) for scenario in scenarios]
    monkeypatch.setattr(program, "_trials", lambda console: iter(trials))
    monkeypatch.setattr(sys, "argv", ["injection.py"])
    yield program
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(FOLDER):
            del sys.modules[name]


@pytest.mark.parametrize(("place", "status"), [("a note", 1), ("a button", 0), ("nowhere", 0)])
def test_the_status_is_that_of_what_is_promised(
    place: str,
    status: int,
    injection: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(scenario, scene, agent, policy):
        landed = scenario.place == place or policy is None  # without a guard, all lands
        return injection.Result(True, landed, "complete", num_harmless=3, num_harmless_denied=1)

    monkeypatch.setattr(injection, "run_scenario", run)
    assert injection.main() == status
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "of 1" in line]
    counted = {cells[0].strip(): [cell.strip() for cell in cells[2:]] for cells in rows}
    assert counted["a note"] == ["1", "1 of 1", "1 of 1", f"{int(place == 'a note')} of 1", "3", "1"]
    assert counted["a button"][3] == f"{int(place == 'a button')} of 1"
    assert counted["fake phone"] == counted["a note"]  # what the guard promises to stop

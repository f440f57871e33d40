"""Prepared data of the fixture, its report, and the page of that report."""

import copy
from pathlib import Path
from typing import Any

import pytest

from data_prep.report_html import render_report
from tests.helpers.prepared_data import FIXTURE, STYLES, made


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The fixture that TensorFlow wrote, by its own split: three splits, two subsets."""
    out = tmp_path_factory.mktemp("page") / "out"
    return out, made(FIXTURE, out, FIXTURE / STYLES[0])


@pytest.fixture
def report(prepared: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """A copy that a test may change."""
    return copy.deepcopy(prepared[1])


@pytest.fixture
def page(prepared: tuple[Path, dict[str, Any]], report: dict[str, Any]) -> Any:
    """The page of a report about the fixture."""
    return lambda: render_report(prepared[0], report)

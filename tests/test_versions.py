"""The versions that pyproject.toml requires, against those that are installed and those that README names."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version

import pytest
from packaging.requirements import Requirement

from tests.helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS = [Requirement(text) for texts in (PROJECT["dependencies"], *EXTRAS.values()) for text in texts]
STACK = {each.name: each for name in ("model", "gpu") for each in map(Requirement, EXTRAS[name])}


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_the_installed_version_is_allowed(requirement: Requirement) -> None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        pytest.skip(f"{requirement.name} is not installed")
    assert requirement.specifier.contains(installed, prereleases=True)


def versions_in_readme() -> dict[str, str]:
    """By name, as README's section "Versions" has them."""
    section = (ROOT / "README.md").read_text("utf-8").partition("\n## Versions\n")[2].partition("\n## ")[0]
    sentence = section.partition(", on CPUs.")[0]
    return dict(re.findall(r"(\w+) (\d+\.\d+)", sentence))


def test_the_lowest_allowed_version_is_the_tested_one() -> None:
    tested = versions_in_readme()
    assert {"Python", "torch", "transformers", "peft", "accelerate", "deepspeed"} <= tested.keys()
    for name in tested.keys() - {"Python"}:
        lowest = [each.version for each in STACK[name].specifier if each.operator == ">="]
        assert lowest == [tested[name]], name

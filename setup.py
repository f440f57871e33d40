"""The packages of the wheel: `recipes/` is installed inside `uivlm`. All else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["uivlm*", "data_prep*"]), "uivlm.recipes"],
    package_dir={"uivlm.recipes": "recipes"},
)

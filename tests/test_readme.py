"""Every command that README.md names exists: make targets, `uivlm` verbs and their options, `python -m` modules, files."""

import re
from pathlib import Path

import pytest
import typer

from uivlm.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def code() -> str:
    """The README's code: fenced blocks and `spans`, continued lines joined."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```\w*\n.*?^```", "", README, flags=re.M | re.S))
    return "\n".join(blocks + spans).replace("\\\n", " ")


def makefile() -> str:
    return (ROOT / "Makefile").read_text("utf-8")


def test_make_targets(code: str) -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", code))
    assert named, "the README names no make target"
    assert named <= set(re.findall(r"^([a-z]+):", makefile(), re.M))


def test_make_variables(code: str) -> None:
    named = {name for line in re.findall(r"\bmake .*", code) for name in re.findall(r"\b([A-Z]+)=", line)}
    assert named <= set(re.findall(r"^([A-Z]+) \?=", makefile(), re.M))


def test_verbs_and_options(code: str) -> None:
    command = typer.main.get_command(app)
    for line in re.findall(r"(?<![\w./-])uivlm ([a-z].*)", code):
        verb, *words = line.split()
        assert verb in command.commands, f"README.md names `uivlm {verb}`"
        known = {option for parameter in command.commands[verb].params for option in parameter.opts}
        named = {
            re.split(r"[=\]]", word.strip("[")[0:])[0] for word in words if word.strip("[").startswith("--")
        }
        assert named <= {*known, "--help"}, f"README.md, uivlm {verb}"


def test_modules_and_files(code: str) -> None:
    for module in re.findall(r"\bpython -m ([\w.]+)", code):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for path in re.findall(r"\b((?:uivlm|data_prep|recipes|tests|docs|bench)/[\w./-]*\w)", code):
        assert (ROOT / path).exists(), f"README.md names {path}"


def test_tests_that_the_docs_name() -> None:
    known = set()
    for path in (ROOT / "tests").glob("test_*.py"):
        known |= set(re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M))
    for page in (ROOT / "docs").glob("*.md"):
        named = set(re.findall(r"`(test_\w+)`", page.read_text("utf-8")))
        assert named <= known, page.name

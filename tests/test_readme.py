"""README.md and docs/*.md: commands, options, variables, settings, paths, links and imports exist."""

import ast
import importlib
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from data_prep.__main__ import app as data_prep_app
from tests.helpers.paths import ROOT
from uivlm.cli.main import app
from uivlm.devices.sim.goals import GOAL_TEMPLATES, GoalTemplate
from uivlm.recipe import ExtraDataset, LoraArgs, ModelArgs, Recipe, load

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
FILE_SUFFIXES = ("py", "md", "json", "jsonl", "safetensors", "html", "txt", "gz")
TORCHRUN_OPTIONS = ("--rdzv-endpoint",)  # named alone in docs/training.md
PARTS = ("model", "prompt", "data", "train", "optim", "distributed")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def fences(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text("utf-8")) if language in languages]


def commands(page: Path) -> list[str]:
    """Lines of shell fences, lines after `$ ` of console fences, and `code spans`, without comments."""
    shell = "\n".join(fences(page, "", "sh", "bash")).replace("\\\n", " ").splitlines()
    console = re.findall(r"^\$ (.*)", "\n".join(fences(page, "console")), re.M)
    spans = re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text("utf-8")))
    return [re.sub(r"\s+#.*", "", " ".join(line.split())) for line in (*shell, *console, *spans)]


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def setting_names() -> set[str]:
    """`part.field` of every recipe part, the variants of `model` included."""
    parts: dict[str, tuple[Any, ...]] = {part: (type(getattr(load("tiny"), part)),) for part in PARTS}
    parts |= {"model": get_args(ModelArgs), "model.lora": (LoraArgs,), "data.extra": (ExtraDataset,)}
    return {f"{part}.{field.name}" for part, types in parts.items() for cls in types for field in fields(cls)}


def test_there_is_something_to_check() -> None:
    text = "\n".join(commands(PAGES[0]))
    assert len(PAGES) > 10
    assert "make demo" in text
    assert "uivlm train" in text
    assert {part for part in PARTS if hasattr(Recipe, part)} == set(PARTS)


@each_page
def test_make_targets_and_variables(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
    variables = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.M))
    for line in commands(page):
        for call in re.findall(r"(?:^|[;&] ?)(?:\w+=\S+ )*make ([a-z][a-z-]*.*)", line):
            assert call.split()[0] in targets, f"make {call}"
            assert set(re.findall(r"\b([A-Z_]+)=", call)) <= variables, f"make {call}"
        if match := re.match(r"^([A-Z_]+)=\S*$", line):  # a variable alone, such as `SUITE=miniwob`
            assert match[1] in variables or match[1] in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS"), line


@each_page
def test_verbs_and_options(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    known: set[str] = {"--help"}
    for line in commands(page):
        for call in re.findall(r"(?<![\w./-])uivlm ([a-z][a-z-]*(?: .*)?)$", line):
            verb = call.split()[0]
            assert verb in group.commands, f"uivlm {call}"
            options = {"--help", *options_of(group.commands[verb])}
            assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", call)) <= options, f"uivlm {call}"
        for call in re.findall(r"python -m data_prep (.*)", line):
            options = {"--help", *options_of(typer.main.get_command(data_prep_app))}
            assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", call)) <= options, line
    for command in group.commands.values():
        known |= options_of(command)
    known |= options_of(typer.main.get_command(data_prep_app))
    alone = {line.split()[0].partition("=")[0] for line in commands(page) if line.startswith("--")}
    assert alone <= {*known, *TORCHRUN_OPTIONS}, "options named alone"


@each_page
def test_goals_are_wordings_that_the_agent_was_trained_on(page: Path) -> None:
    """So that they succeed on the simulated phone: `Open the Clock app` does on seeds 0 to 5."""
    for line in commands(page):
        for goal in re.findall(r'(?:uivlm run |GOAL=)"([^"]+)"', line):
            assert any(is_goal(goal, template) for template in GOAL_TEMPLATES.values()), goal


def is_goal(goal: str, template: GoalTemplate) -> bool:
    patterns = (re.sub(r"\\{\d\\}", "(.+)", re.escape(wording)) for wording in template.wordings)
    values = {value for choices in template.parameter_choices for value in choices}
    matches = [match for pattern in patterns if (match := re.fullmatch(pattern, goal))]
    return any(set(match.groups()) <= values for match in matches)


@each_page
def test_settings(page: Path) -> None:
    known = setting_names()
    for line in commands(page):
        for part, field in re.findall(rf"(?<![\w./-])({'|'.join(PARTS)})((?:\.[a-z]\w*)+)", line):
            name = part + field
            if not name.endswith(FILE_SUFFIXES) and (field != ".path" or part == "data"):
                assert name in known, line


@each_page
def test_modules_files_and_links(page: Path) -> None:
    text = page.read_text("utf-8")
    for line in commands(page):
        for module in re.findall(r"\bpython -m ((?:uivlm|data_prep)[\w.]*)", line):
            path = ROOT.joinpath(*module.split("."))
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), line
        pattern = r"(?<![\w/.-])((?:uivlm|data_prep|recipes|tests|docs|bench)/[\w./-]*\w)"
        for path in re.findall(pattern, line):
            assert (ROOT / path).exists(), line
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    environment = set(re.findall(r"\bUIVLM_[A-Z_]+\b", text))
    sources = "".join(
        p.read_text("utf-8") for room in ("uivlm", "tests") for p in (ROOT / room).rglob("*.py")
    )
    assert all(name in sources for name in environment), environment


@each_page
def test_python_snippets(page: Path) -> None:
    """They compile, and what they import exists."""
    for snippet in fences(page, "python"):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)


@each_page
def test_tests_that_the_docs_name(page: Path) -> None:
    known = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        known |= {path.stem, *re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M)}
    assert set(re.findall(r"`(test_\w+)`", page.read_text("utf-8"))) <= known


def test_every_docs_page_is_linked_from_the_readme() -> None:
    text = PAGES[0].read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in text] == []


def test_the_picture_is_small() -> None:
    assert 0 < (ROOT / "docs" / "agent.gif").stat().st_size <= 500_000


def test_the_first_screen_of_the_readme() -> None:
    """What it is, a picture, two commands, a table of results, in this order."""
    text = PAGES[0].read_text("utf-8")
    order = [text.index(mark) for mark in ("*sentence*", "docs/agent.gif", "make demo ", "| --- |", "\n## ")]
    assert all(first < second for first, second in pairwise(order))

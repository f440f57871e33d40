"""docs/threat_model.md: each promise names tests, and they exist. So do the headings of links."""

import ast
import re

import pytest

from tests.helpers.paths import ROOT

PROMISES = (ROOT / "docs" / "threat_model.md").read_text("utf-8").split("\n## ")[2]
ROWS = re.findall(r"^\| ([A-Z].*?) \| (.*) \|$", PROMISES, re.M)


def test_there_is_something_to_check() -> None:
    assert PROMISES.startswith("Promises\n")
    assert len(ROWS) == len(re.findall(r"^\| (?!promise )", PROMISES, re.M)) > 20


@pytest.mark.parametrize(("promise", "tests"), ROWS, ids=[promise[:50] for promise, _ in ROWS])
def test_each_promise_has_its_tests(promise: str, tests: str) -> None:
    names = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
    assert names, promise
    assert len(names) == tests.count("`") / 2, promise
    for path, name in names:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (path, name)
        assert name.startswith("test_")


@pytest.mark.parametrize("name", ["docs/threat_model.md", "SECURITY.md"])
def test_links_lead_to_headings(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text("utf-8"))
    assert links
    for target, anchor in links:
        text = (page.parent / target if target else page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)", text, re.M)
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, anchor

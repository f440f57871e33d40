"""What opens files of others, read from the source: no code of a model runs, images open in one place."""

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.paths import ROOT

FILES = sorted(file for folder in ("uivlm", "data_prep", "recipes") for file in (ROOT / folder).rglob("*.py"))
AUTO_CLASSES = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoImageProcessor", "AutoModelForCausalLM")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    """The last part of the name: `open` of `Image.open`."""
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def without_trust_setting(source: str) -> list[int]:
    """Lines with a `from_pretrained` that does not say `trust_remote_code=False`."""
    found = []
    for call in calls(ast.parse(source)):
        if called(call) == "from_pretrained":
            settings = {keyword.arg: keyword.value for keyword in call.keywords}
            value = settings.get("trust_remote_code")
            if not (isinstance(value, ast.Constant) and value.value is False):
                found.append(call.lineno)
    return found


def opens_an_image(source: str) -> list[int]:
    return [
        call.lineno
        for call in calls(ast.parse(source))
        if ast.unparse(call.func) in ("Image.open", "PIL.Image.open")
    ]


def test_no_model_brings_code() -> None:
    found = {str(f.relative_to(ROOT)): without_trust_setting(f.read_text("utf-8")) for f in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert sum("from_pretrained(" in f.read_text("utf-8") for f in FILES) >= 4


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("A.from_pretrained(root)", True),
        ("A.from_pretrained(root, trust_remote_code=True)", True),
        ("A.from_pretrained(root, trust_remote_code=trust)", True),
        ("A.from_pretrained(root, **rest)", True),
        ("from_pretrained(root, trust_remote_code=False)", False),
    ],
)
def test_the_rule_itself(source: str, is_found: bool) -> None:
    assert bool(without_trust_setting(source)) is is_found


def test_images_are_opened_in_one_place() -> None:
    found = [str(f.relative_to(ROOT)) for f in FILES if opens_an_image(f.read_text("utf-8"))]
    assert found == ["uivlm/episodes/images.py"]


def test_no_configuration_class_is_chosen_by_a_file() -> None:
    """The class of a configuration is ours: `AutoConfig` would look for the code of an unknown type."""
    loaded = [
        (str(f.relative_to(ROOT)), call.lineno)
        for f in FILES
        for call in calls(ast.parse(f.read_text("utf-8")))
        if called(call) == "from_pretrained" and ast.unparse(call.func).partition(".")[0] in AUTO_CLASSES
    ]
    assert loaded == []


def test_consoles_print_printable_text() -> None:
    """What prints texts of others is a Terminal. A bar of progress prints counts."""
    for file in FILES:
        for call in calls(ast.parse(file.read_text("utf-8"))):
            if called(call) == "Console":
                line = file.read_text("utf-8").splitlines()[call.lineno - 1]
                assert "Progress" in line or "track(" in line or "pool.map" in line, f"{file}:{call.lineno}"

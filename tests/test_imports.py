"""Who imports whom (read from the source), and what can be imported where torch is not installed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

# The rooms from bottom to top, and what each imports of ours. Every room may import from itself.
DATA = ("actions", "episodes")
ALLOWED = {
    "actions": (),
    "atomic": (),
    "parallel": (),
    "terminal": (),
    "recipe": ("actions",),
    "episodes": ("actions", "atomic", "parallel"),
    "reports": DATA,
    "devices": (*DATA, "terminal"),
    "models": (*DATA, "recipe", "atomic"),
    "training": (*DATA, "recipe", "atomic", "terminal", "reports", "models", "devices.sim"),
    "inference": (*DATA, "recipe", "models"),
    "agents": (*DATA, "inference"),
    "rollout": (*DATA, "atomic", "reports", "devices.device", "agents.agent"),
    "safety": (*DATA, "atomic", "terminal", "devices.device", "agents.agent", "rollout"),
    "serving": (*DATA, "agents.agent"),
    "evaluation": (*DATA, "atomic", "parallel", "reports", "devices", "agents.agent", "rollout"),
    "console": (*DATA, "reports", "devices.device", "agents.agent", "rollout", "safety", "serving.listen"),
    "recipes": ("recipe",),
    "data_prep": (
        *DATA, "recipe", "atomic", "parallel", "terminal", "reports", "devices", "models", "rollout",
        "evaluation",
    ),
    "cli": ("",),
    "__main__": ("cli",),
}  # fmt: skip
RECIPE_FILES_IMPORT = "uivlm.recipe"
CLOSED = ("cli", "data_prep", "recipes")  # nobody imports these, except as in OPEN_TO
OPEN_TO = {"cli": "__main__", "data_prep": "cli"}  # room -> the one that may import it: composition

# What a phone's host imports: it installs no `model` extra.
TORCH_FREE = (
    "uivlm.actions",
    "uivlm.agents.agent",
    "uivlm.console",
    "uivlm.devices",
    "uivlm.episodes",
    "uivlm.evaluation.android_world",
    "uivlm.evaluation.miniwob",
    "uivlm.evaluation.online",
    "uivlm.recipe",
    "uivlm.reports",
    "uivlm.rollout",
    "uivlm.safety",
    "uivlm.serving",
    "uivlm.terminal",
    "uivlm.training.tiny_base.exercises",
    "uivlm.training.tiny_base.lesson",
    "uivlm.training.tiny_base.phrases",
    "uivlm.training.tiny_base.random_screens",
    "uivlm.training.tiny_base.screen_index",
    "uivlm.training.tiny_base.vocabulary",
    "uivlm.cli.agents",
    "uivlm.cli.data_commands",
    "uivlm.cli.device_commands",
    "uivlm.cli.devices",
    "uivlm.cli.eval_commands",
    "uivlm.cli.main",
    "uivlm.cli.options",
    "uivlm.cli.recipes",
    "uivlm.cli.scoring",
    "data_prep",
)
# Imports every named module without the packages of the `model` extra; prints the error of each that fails.
WITHOUT_TORCH = """
import importlib, json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        absent = ("torch", "transformers", "peft", "tokenizers", "safetensors", "datasets")
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)
sys.meta_path.insert(0, Absent())
failed = {}
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        failed[module] = str(error)
print(json.dumps(failed))
"""


def sources() -> dict[str, Path]:
    """Module name -> file, of everything of ours."""
    files = [file for folder in ("uivlm", "data_prep", "recipes") for file in (ROOT / folder).rglob("*.py")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


SOURCES = sources()


def is_below(name: str, room: str) -> bool:
    return not room or name == room or name.startswith(f"{room}.")


def inside(module: str) -> str:
    """A module's name without the package `uivlm`."""
    return module.removeprefix("uivlm").lstrip(".")


def room_of(module: str) -> str:
    return inside(module).partition(".")[0]


def imports(module: str) -> set[str]:
    """The modules of ours that a file names in imports, at the top and inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: write the whole name"
            name = node.module or ""
            names |= {f"{name}.{a.name}" if f"{name}.{a.name}" in SOURCES else name for a in node.names}
    return {name for name in names if name.partition(".")[0] in ("uivlm", "data_prep", "recipes")}


def may_import(module: str, other: str) -> bool:
    room = room_of(module)
    if room_of(other) == room:
        return True
    if room_of(other) in CLOSED:
        return OPEN_TO.get(room_of(other)) == room
    return any(is_below(inside(other), name) for name in ALLOWED[room])


def test_the_table_covers_every_room() -> None:
    assert SOURCES, "no source file was found"
    assert {room_of(module) for module in SOURCES} - {""} == set(ALLOWED)


def test_the_table_runs_one_way() -> None:
    """Each room imports only rooms above it in the table, which therefore has no circle."""
    for i, (room, allowed) in enumerate(ALLOWED.items()):
        assert {name.partition(".")[0] for name in allowed if name} <= set(list(ALLOWED)[:i]), room


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_follow_the_table(room: str) -> None:
    modules = [module for module in SOURCES if room_of(module) == room]
    wrong = [
        (module, other) for module in modules for other in imports(module) if not may_import(module, other)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "other", "allowed"),
    [
        ("uivlm.actions.text", "uivlm.actions.action", True),
        ("uivlm.actions.action", "uivlm.episodes.episode", False),
        ("uivlm.devices.adb.device", "uivlm.agents.agent", False),
        ("uivlm.serving.server", "uivlm.agents.vlm", False),
        ("uivlm.models.bridge.model", "uivlm.training.train", False),
        ("uivlm.training.train", "data_prep.pass2_write", False),
        ("uivlm.rollout.loop", "uivlm.devices.adb.device", False),
        ("data_prep.simulate", "uivlm.devices.sim.tasks", True),
        ("data_prep.pass2_write", "data_prep.tfrecord", True),
        ("uivlm.evaluation.offline", "uivlm.models.build", False),
        ("uivlm.__main__", "uivlm.cli.main", True),
        ("uivlm.console.server", "uivlm.cli.main", False),
        ("uivlm.cli.main", "uivlm.training.train", True),
        ("uivlm.cli.main", "data_prep.pass2_write", True),
        ("uivlm.cli.main", "recipes.tiny", False),
    ],
)
def test_the_rule_itself(module: str, other: str, allowed: bool) -> None:
    assert {module, other} <= set(SOURCES)
    assert may_import(module, other) is allowed


def test_packages_are_one_docstring() -> None:
    """A package's __init__.py exports nothing, but for the one that users' recipe files import."""
    for module, file in SOURCES.items():
        if file.name == "__init__.py":
            body = ast.parse(file.read_text("utf-8")).body
            if module == RECIPE_FILES_IMPORT:
                assert {type(part) for part in body[1:]} == {ast.ImportFrom, ast.Assign}  # the last: __all__
                continue
            assert len(body) == 1, f"{module} holds more than a docstring"
            assert isinstance(body[0], ast.Expr), f"{module} holds more than a docstring"


def import_without_torch(modules: list[str]) -> dict[str, str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *modules]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    errors: dict[str, str] = json.loads(result.stdout.splitlines()[-1])
    return errors


def test_what_a_phones_host_imports_needs_no_torch() -> None:
    missing = [room for room in TORCH_FREE if not any(is_below(name, room) for name in SOURCES)]
    assert missing == []
    modules = [name for name in SOURCES if any(is_below(name, room) for room in TORCH_FREE)]
    assert import_without_torch(sorted(name for name in modules if not name.endswith("__main__"))) == {}


def test_without_torch_means_without_torch() -> None:
    """The block works: torch and a module that needs it cannot be imported through it."""
    errors = import_without_torch(["torch", "uivlm.models.build"])
    assert errors == dict.fromkeys(["torch", "uivlm.models.build"], "torch is not installed here")

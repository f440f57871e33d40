"""Who imports whom (read from the source), and what can be imported where torch is not installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Module or package -> what of ours it may import (a name allows what lies below it). The longest name that fits a file
# counts; everything may import from its own room.
ALLOWED = {
    "uivlm.actions": (),
    "uivlm.trees": (),
    "uivlm.recipe": ("trees",),
    "uivlm.episode": ("actions",),
    "uivlm.page": (),
    "uivlm.engine": (),
    "uivlm.listening": (),
    "uivlm.picture": ("actions", "episode"),
    "uivlm.plot": ("page",),
    "uivlm.sentences": ("actions", "episode"),
    "uivlm.models": ("sentences", "episode", "recipe"),
    "uivlm.models.cost": ("models", "sentences", "actions", "episode", "recipe"),
    "uivlm.plan": ("models", "sentences", "recipe"),
    "uivlm.training": ("models", "sentences", "actions", "episode", "recipe"),
    # judges a model in training by the benchmark's own rule
    "uivlm.training.validation": (
        "training",
        "evaluation.match",
        "models",
        "sentences",
        "actions",
        "episode",
    ),
    "uivlm.training.curves": ("page", "plot"),
    # the pre-training of the tiny base, on drawn interfaces
    "uivlm.training.pages": (
        "training",
        "models",
        "sentences",
        "actions",
        "episode",
        "lessons",
        "devices.sim",
    ),
    "uivlm.training.pretrain": ("training", "models", "sentences", "lessons", "devices.sim"),
    "uivlm.lessons": ("actions", "devices.sim"),
    "uivlm.inference": ("models", "sentences", "actions", "episode", "recipe"),
    "uivlm.agents": ("inference", "sentences", "actions", "episode"),
    "uivlm.devices": ("actions", "episode"),
    "uivlm.evaluation": (
        "agents",
        "actions",
        "engine",
        "episode",
        "sentences.store",
        "page",
        "picture",
        "plot",
    ),
    "uivlm.serving": ("listening", "agents.agent", "actions", "episode"),
    "uivlm.loop": ("agents.agent", "devices.device", "safety.halt", "actions", "episode"),
    "uivlm.safety.halt": ("episode",),
    "uivlm.safety": ("loop", "agents.agent", "devices.device", "actions", "episode"),
    "uivlm.trace": ("agents.agent", "actions", "episode", "trace_page", "trace_read"),
    "uivlm.trace_read": ("actions",),
    "uivlm.trace_page": ("trace_read", "actions", "page", "picture"),
    "uivlm.film": ("trace_read", "trace_page"),
    "uivlm.agents.replay": ("trace_read", "actions", "episode"),
    "uivlm.replay": ("agents", "loop", "trace", "trace_read", "devices.device"),
    "uivlm.android_world": ("agents.agent", "actions", "episode"),
    "uivlm.show": ("sentences", "actions", "episode", "picture"),
    "uivlm.live": ("loop", "trace", "agents.agent", "devices.device", "actions", "episode"),
    "uivlm.miniwob": ("live", "loop", "trace", "agents.agent", "devices", "actions", "episode"),
    "uivlm.console": (
        "listening",
        "loop",
        "safety",
        "trace",
        "trace_read",
        "agents.agent",
        "devices.device",
        "actions",
        "episode",
        "picture",
    ),
    "uivlm.cli": ("",),
    "uivlm.cli_phones": ("",),
    "uivlm.cli_scores": ("",),
    "uivlm.doctor": ("devices",),
    "uivlm.options": (),
    "uivlm.mistakes": ("agents.agent", "devices.device"),
    "uivlm.demo": ("",),
    "uivlm.wiring": ("",),
    "uivlm.__main__": ("cli",),
    "data_prep": (
        "actions",
        "engine",
        "episode",
        "sentences",
        "page",
        "picture",
        "trace_read",
        "devices.device",
        "devices.sim",
        "miniwob",
    ),
    # counts tokens as `uivlm plan` does; imports torch only where a recipe is named
    "data_prep.tokens": ("models", "recipe", "sentences"),
    "recipes": ("recipe",),
}
NOBODY_IMPORTS = (
    "uivlm.cli",
    "uivlm.demo",
    "uivlm.wiring",
    "data_prep",
    "recipes",
)  # but each from its own room
EXCEPT = {
    ("uivlm.__main__", "uivlm.cli"),
    ("uivlm.cli", "uivlm.demo"),
    ("uivlm.cli", "uivlm.wiring"),
    ("uivlm.cli_phones", "uivlm.wiring"),
    ("uivlm.cli_scores", "uivlm.wiring"),
    ("uivlm.demo", "uivlm.wiring"),
}

TORCH_FREE = (
    "uivlm.actions",
    "uivlm.agents.agent",
    "uivlm.agents.replay",
    "uivlm.android_world",
    "uivlm.console",
    "uivlm.devices",
    "uivlm.doctor",
    "uivlm.episode",
    "uivlm.film",
    "uivlm.lessons",
    "uivlm.live",
    "uivlm.loop",
    "uivlm.miniwob",
    "uivlm.picture",
    "uivlm.recipe",
    "uivlm.replay",
    "uivlm.sentences.encode",
    "uivlm.sentences.sentence",
    "uivlm.sentences.store",
    "uivlm.serving",
    "uivlm.safety",
    "uivlm.trace",
    "uivlm.trace_page",
    "uivlm.trace_read",
    "data_prep",
)
WITHOUT_TORCH = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "peft", "tokenizers", "safetensors", "datasets"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)
sys.meta_path.insert(0, Absent())
importlib.import_module(sys.argv[1])
"""


def sources() -> dict[str, Path]:
    """Module name -> file, of everything of ours."""
    files = [file for folder in ("uivlm", "data_prep", "recipes") for file in (ROOT / folder).rglob("*.py")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


SOURCES = sources()


def below(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def room_of(module: str) -> str:
    return max((room for room in ALLOWED if below(module, room)), key=len, default="")


def imports(module: str, file: Path) -> set[str]:
    """The modules of ours that a file names in imports, wherever in the file they stand."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: write the whole name"
            name = node.module or ""
            found |= {f"{name}.{a.name}" if f"{name}.{a.name}" in SOURCES else name for a in node.names}
    return {name for name in found if name.partition(".")[0] in ("uivlm", "data_prep", "recipes")}


def may(module: str, other: str) -> bool:
    room = room_of(module)
    own = ".".join(module.split(".")[:2]) if module.startswith("uivlm.") else room
    if any(below(other, closed) and not below(module, closed) for closed in NOBODY_IMPORTS):
        return (module, other) in EXCEPT
    allowed = [f"uivlm.{name}".rstrip(".") for name in ALLOWED[room]]
    return below(other, own) or any(below(other, name) for name in allowed)


def test_the_table_covers_every_file() -> None:
    assert SOURCES, "no source file was found"
    assert [name for name in SOURCES if name != "uivlm" and not room_of(name)] == []


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_imports_follow_the_table(module: str) -> None:
    wrong = sorted(other for other in imports(module, SOURCES[module]) if not may(module, other))
    assert wrong == [], f"{module} may not import {', '.join(wrong)}"


@pytest.mark.parametrize(
    ("module", "other", "allowed"),
    [
        ("uivlm.actions.language", "uivlm.actions.action", True),
        ("uivlm.actions.action", "uivlm.episode", False),
        ("uivlm.devices.adb", "uivlm.sentences.sentence", False),
        ("uivlm.serving.server", "uivlm.agents.vlm", False),
        ("uivlm.models.llama_vit", "uivlm.training.trainer", False),
        ("uivlm.training.trainer", "data_prep.write", False),
        ("uivlm.loop", "uivlm.devices.adb", False),
        ("data_prep.simulate", "uivlm.devices.sim.tasks", True),
        ("data_prep.simulate", "uivlm.devices.adb", False),
        ("data_prep.write", "data_prep.tfrecord", True),
        ("uivlm.evaluation.benchmark", "uivlm.sentences.sentence", False),
        ("uivlm.demo", "uivlm.cli", False),
        ("uivlm.cli", "uivlm.training.trainer", True),
        ("uivlm.cli", "data_prep.write", False),
    ],
)
def test_the_rule_itself(module: str, other: str, allowed: bool) -> None:
    assert may(module, other) is allowed


def test_packages_are_one_docstring() -> None:
    """A package's __init__.py exports nothing."""
    for module, file in SOURCES.items():
        if file.name == "__init__.py":
            body = ast.parse(file.read_text("utf-8")).body
            assert len(body) == 1, f"{module} holds more than a docstring"
            assert isinstance(body[0], ast.Expr), f"{module} holds more than a docstring"


def torch_free() -> list[str]:
    found = [name for name in SOURCES if any(below(name, room) for room in TORCH_FREE)]
    return sorted(name for name in found if not name.endswith("__main__"))


def test_every_torch_free_room_exists() -> None:
    assert [room for room in TORCH_FREE if not any(below(name, room) for name in SOURCES)] == []


def test_without_torch_means_without_torch() -> None:
    """The block works: torch itself cannot be imported through it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, "torch"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "torch is not installed here" in done.stderr


@pytest.mark.parametrize("module", torch_free())
def test_imports_without_torch(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, module], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr

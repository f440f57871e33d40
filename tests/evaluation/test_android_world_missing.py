"""The AndroidWorld agent where AndroidWorld is not installed: the error names what is missing."""

import sys

import pytest

from tests.helpers.scripted_agents import ScriptedAgent
from uivlm.evaluation.android_world import android_world_agent


class MissingPackage:
    """An import hook that hides a package."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self.missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_android_world_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "android_world"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [MissingPackage("android_world"), *sys.meta_path])
    with pytest.raises(
        ModuleNotFoundError, match="android_world is not installed: .* its own repository"
    ) as caught:
        android_world_agent(None, ScriptedAgent())
    assert "\n" not in str(caught.value)


def test_a_missing_dependency_of_android_world_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "android_world"]:
        monkeypatch.delitem(sys.modules, name)
    agents = tmp_path / "android_world" / "agents"
    agents.mkdir(parents=True)
    (agents.parent / "__init__.py").touch()
    (agents / "__init__.py").touch()
    (agents / "base_agent.py").write_text("import dm_env_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.raises(ModuleNotFoundError, match="No module named 'dm_env_that_is_missing'"):
            android_world_agent(None, ScriptedAgent())
    finally:
        sys.modules.pop("android_world.agents", None)
        sys.modules.pop("android_world", None)

"""The command in an empty folder, a served agent, small data and a checkpoint."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import tiny_models
from tests.helpers.command_line import Scripted, Uivlm
from uivlm.actions.action import Finish
from uivlm.cli import main
from uivlm.serving.server import serve_in_thread


@pytest.fixture
def uivlm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Uivlm:
    """The command in an empty folder -> exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["uivlm", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_in_thread({"scripted": Scripted(Finish("complete"))}) as address:
        yield address


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random base, prepared data and a recipe, all small."""
    from uivlm.recipe import to_dict

    root = tmp_path_factory.mktemp("small")
    base, data = (
        tiny_models.base(root / "base"),
        tiny_models.prepare(root / "data", [tiny_models.episode(0, 4)]),
    )
    tree = to_dict(tiny_models.recipe(base, data))
    (root / "small.py").write_text(
        f"from uivlm.recipe import from_dict\n\n\ndef recipe():\n    return from_dict({tree!r})\n"
    )
    return root


@pytest.fixture(scope="module")
def checkpoint(small: Path) -> Path:
    from uivlm.recipe import load
    from uivlm.training.checkpoint import save_base_checkpoint

    return save_base_checkpoint(load(small / "small.py"), small / "checkpoint")

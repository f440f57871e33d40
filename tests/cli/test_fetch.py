"""`--fetch`: the base that a stranger's checkpoint names is downloaded on request only."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from tests.helpers.command_line import GOAL, Uivlm
from tests.helpers.foreign_checkpoints import change_model
from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import recipe
from uivlm.recipe import LoraArgs, QwenHFArgs
from uivlm.training.checkpoint import save_base_checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("hub") / "base", "Qwen2VL")


@pytest.fixture(scope="module")
def foreign(base: Path) -> Path:
    """A checkpoint whose recipe names the hub's evil/repo."""
    args = QwenHFArgs(str(base), max_visual_tokens=40, lora=LoraArgs(2, 4, 0.0))
    folder = save_base_checkpoint(replace(recipe(base, base), model=args), base.parent / "foreign")
    change_model(folder, base_model="evil/repo")
    return folder


@pytest.fixture
def downloads(base: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was downloaded from a hub that has `base` as evil/repo."""
    fetched: list[str] = []

    def snapshot_download(repo_id: str, local_files_only: bool = False, **_: Any) -> str:
        if local_files_only and repo_id not in fetched:
            raise LocalEntryNotFoundError("not in the cache")
        if not local_files_only:
            fetched.append(repo_id)
        return str(base)

    for module in ("base_models", "pretrained"):
        monkeypatch.setattr(f"uivlm.models.{module}.snapshot_download", snapshot_download)
    return fetched


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "CKPT", "--out", "merged"),
        ("serve", "CKPT", "--port", "0"),
        ("run", GOAL, "--agent", "CKPT"),
        ("eval-online", "CKPT"),
    ],
)
def test_nothing_is_fetched_unasked(
    uivlm: Uivlm, foreign: Path, downloads: list[str], words: tuple[str, ...]
) -> None:
    status, _, err = uivlm(*(str(foreign) if word == "CKPT" else word for word in words))
    assert status == 2
    assert "the base evil/repo, which is not on this machine" in " ".join(err.split())
    assert "add --fetch if you trust its owner, evil" in " ".join(err.split())
    assert downloads == []


def test_what_was_asked_for_is_fetched_once(uivlm: Uivlm, foreign: Path, downloads: list[str]) -> None:
    status, out, err = uivlm("merge", str(foreign), "--out", "merged", "--fetch")
    assert status == 0, err
    assert f"base of {foreign}: evil/repo, from the model hub\n" in out
    assert downloads == ["evil/repo"]
    assert Path("merged/model.safetensors").is_file()
    status, _, err = uivlm("merge", str(foreign), "--out", "again")  # now in the cache
    assert (status, downloads) == (0, ["evil/repo"]), err


def test_a_server_has_its_own_base(uivlm: Uivlm) -> None:
    status, _, err = uivlm("run", GOAL, "--agent", "http://127.0.0.1:1", "--fetch")
    assert status == 2
    assert "--fetch has no effect with a server" in err

"""Model folders by name or hub id: what is not there is said in one sentence, what is asked of the hub is
little.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from uivlm.models import pretrained
from uivlm.models.qwen_hf import files as qwen_hf
from uivlm.models.qwen_vl import files as qwen_vl

LOADERS = [(qwen_vl.load, "Qwen-VL"), (qwen_hf.load, "Qwen2-VL or later")]


@pytest.mark.parametrize(("load", "what"), LOADERS)
def test_no_folder(tmp_path: Path, load: Callable[[Any], Any], what: str) -> None:
    with pytest.raises(
        ValueError, match=f"there is no folder .*nowhere with a {what}, and it is not a hub id"
    ):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(("load", "what"), LOADERS)
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LocalEntryNotFoundError("no network\nand more lines"), "no network"),
        (OSError(), "OSError"),  # an error without words
    ],
)
def test_no_network(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[Any], Any], what: str, error: Exception, said: str
) -> None:
    def offline(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(pretrained, "snapshot_download", offline)
    with pytest.raises(ValueError, match=rf"no folder Qwen/Q, .* did not provide it \({said}\): .* a {what}"):
        load("Qwen/Q")


def test_a_folder_is_taken_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen" / "Q").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert pretrained.find_or_download("Qwen/Q", "Q", ["*"]) == Path("Qwen/Q")


def test_the_hub_is_asked_for_the_named_files(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def given_by_hub(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return "there"

    monkeypatch.setattr(pretrained, "snapshot_download", given_by_hub)
    assert pretrained.find_or_download("Qwen/Q", "Q", ["config.json"]) == Path("there")
    assert asked == [("Qwen/Q", ["config.json"])]

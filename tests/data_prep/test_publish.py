"""Prepared data with `datasets` and on the hub: a folder opens, streams and is uploaded unchanged."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import HfApi

from data_prep import publish
from data_prep.card import render_card
from tests.helpers.prepared_data import FIXTURE, STYLES, content, made
from uivlm.actions.text import ActionText
from uivlm.episodes.dataset import PreparedData, read_meta
from uivlm.episodes.rows import SCHEMA

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("publish") / "out"
    made(FIXTURE, out, FIXTURE / STYLES[0], image_format="png")
    return out


def test_load_dataset_opens_the_folder(data: Path, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(str(data), cache_dir=str(tmp_path))
    prepared = PreparedData.open(data)
    assert set(loaded) == {split for split, count in prepared.meta["splits"].items() if count}
    for split, rows in loaded.items():
        steps = [step for episode in prepared.episodes(split) for step in episode.steps]
        assert rows.features == datasets.Features.from_arrow_schema(SCHEMA)
        assert len(rows) == len(steps) == rows.info.splits[split].num_examples
        for row, step in zip(rows, steps, strict=True):
            np.testing.assert_array_equal(np.asarray(row["image"]), step.screen.pixels)
            assert row["action_text"] == ActionText().format(step.action)
            assert row["element_ui_types"] == [element.ui_type for element in step.screen.elements]


def test_the_folder_streams(data: Path) -> None:
    rows = datasets.load_dataset(str(data), split="train", streaming=True)
    episode = PreparedData.open(data).episodes("train")[0]
    first = next(iter(rows))
    assert (first["episode_id"], first["t"], first["goal"]) == (episode.id, 0, episode.goal)
    np.testing.assert_array_equal(np.asarray(first["image"]), episode.steps[0].screen.pixels)


def test_the_card_names_only_splits_with_episodes(data: Path, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('{"train": ["777"]}')
    made(FIXTURE, tmp_path / "out", tmp_path / "split.json")
    assert set(datasets.load_dataset(str(tmp_path / "out"), streaming=True)) == {"train"}
    assert read_meta(data)["source_format"] == "aitw"
    assert render_card(read_meta(data)) == (data / "README.md").read_text("utf-8")


def test_the_card_shows_foreign_text_as_text(data: Path) -> None:
    meta = read_meta(data) | {
        "subsets": {"<script>`a`\n---\nconfigs: 1": 1},
        "split_rule": "the list of <b>.json",
    }
    text = render_card(meta)
    assert "<script>" not in text
    assert "<b>" not in text
    assert text.split("---\n")[1] == (data / "README.md").read_text("utf-8").split("---\n")[1]


class FakeHub:
    """The two calls of the hub's API that publishing makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.repositories = folder, list[dict[str, Any]]()
        monkeypatch.setattr(HfApi, "create_repo", lambda _, repo_id, **options: self.create(repo_id, options))
        monkeypatch.setattr(HfApi, "upload_folder", lambda _, **options: self.upload(**options))

    def create(self, repo_id: str, options: dict[str, Any]) -> str:
        self.repositories.append({"repo_id": repo_id, **options})
        return f"https://hub/datasets/{repo_id}"

    def upload(self, *, folder_path: Path, allow_patterns: list[str], **options: Any) -> None:
        assert options["repo_type"] == "dataset"
        for name in allow_patterns:
            shutil.copy(folder_path / name, self.folder / name)


def test_push_to_hub_uploads_the_exact_files(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(monkeypatch, tmp_path)
    assert publish.push_to_hub(data, "me/phones") == "https://hub/datasets/me/phones"
    assert hub.repositories == [
        {"repo_id": "me/phones", "repo_type": "dataset", "private": True, "exist_ok": True}
    ]
    uploaded, prepared = content(tmp_path), content(data)
    kept_here = ("report.", "episode_index/")
    assert uploaded == {name: prepared[name] for name in prepared if not name.startswith(kept_here)}
    assert len(PreparedData.open(tmp_path).refs) == len(PreparedData.open(data).refs)
    assert set(datasets.load_dataset(str(tmp_path), streaming=True)) == {"train", "validation", "test"}


def test_other_folders_are_not_published(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"no meta\.json"):
        publish.push_to_hub(tmp_path, "me/phones")
    copied = Path(shutil.copytree(data, tmp_path / "copy"))
    (copied / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="datasets cannot open"):
        publish.push_to_hub(copied, "me/phones")
    (copied / "README.md").unlink()
    with pytest.raises(ValueError, match=r"has no README\.md"):
        publish.push_to_hub(copied, "me/phones")
    assert hub.repositories == []


def test_errors_of_the_hub_are_one_sentence(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="repo_id: got 'a/b/c'; expected USER/NAME"):
        publish.push_to_hub(data, "a/b/c")
    with pytest.raises(OSError, match="offline mode"):
        publish.push_to_hub(data, "me/phones")

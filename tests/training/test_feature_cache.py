"""Features of screens, seen once and kept on disk: the same training, and never those of something else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.helpers.tiny_models import base, episode, prepare, recipe
from uivlm.episodes.window_index import index_windows
from uivlm.models.build import build, prompt_format
from uivlm.models.multimodal import encode_screens
from uivlm.training.feature_cache import build_feature_cache
from uivlm.training.mixture import ConcatEpisodes, open_datasets
from uivlm.training.train import train

pytestmark = pytest.mark.slow

EPISODES = [episode(seed, num_steps) for seed, num_steps in enumerate((1, 6, 2, 3))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("features")
    base(made / "base")
    prepare(made / "data", EPISODES)
    return made


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Path:
    """A base, and data that has no features yet."""
    for name in ("data", "base"):
        shutil.copytree(root / name, tmp_path / name)
    return tmp_path


def losses(own: Path, name: str, cache_vision_features: bool = True, **part: Any) -> list[float]:
    one = recipe(own / "base", own / "data", epochs=1.0, cache_vision_features=cache_vision_features, **part)
    out = train(one, own / name)
    return [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]


def test_kept_features_train_alike(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uivlm.training.feature_cache.SCREENS_PER_FORWARD", 5)
    monkeypatch.setattr("uivlm.training.feature_cache.PREFETCH_FACTOR", 1)
    assert losses(own, "kept", num_workers=1) == pytest.approx(
        losses(own, "seen", cache_vision_features=False), rel=1e-4
    )


def test_a_second_run_takes_the_features_of_the_first(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = losses(own, "first")
    (folder,) = (own / "data" / "features").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["features.bin", "metadata.json", "tokens.npz"]
    with monkeypatch.context() as patched:
        patched.setattr(
            "uivlm.training.feature_cache.encode_screens", lambda *_: pytest.fail("a screen is seen again")
        )
        assert losses(own, "second") == first
        losses(own, "another", lr=1e-5)


def test_features_of_another_encoder_are_never_taken(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One weight of the vision encoder is another: the screens are seen again, and the loss is another."""
    first = losses(own, "first")
    weights = own / "base" / "model.safetensors"
    table = load_file(weights)
    name = "vision.embeddings.patch_embeddings.projection.weight"
    # no sum: the norms after it would take that away, all but rounding
    save_file({**table, name: table[name].flip(0).contiguous()}, weights, {"format": "pt"})
    again = losses(own, "second")
    assert again != first
    assert len(list((own / "data" / "features").iterdir())) == 2
    assert again == pytest.approx(losses(own, "seen", cache_vision_features=False), rel=1e-4)
    monkeypatch.setattr("uivlm.training.feature_cache.VERSION", 0)
    losses(own, "third")
    assert len(list((own / "data" / "features").iterdir())) == 3


def test_stale_or_damaged_features_are_refused(own: Path) -> None:
    first = losses(own, "first")
    (folder,) = (own / "data" / "features").iterdir()
    numbers, told = folder / "features.bin", folder / "metadata.json"
    whole, made_of = numbers.read_bytes(), told.read_text()
    numbers.write_bytes(whole[:-4])
    with pytest.raises(
        ValueError, match=r"is damaged \(features.bin: got \d+ bytes; expected \d+\); remove that folder"
    ):
        losses(own, "short")
    numbers.write_bytes(whole)
    told.write_text(made_of.replace('"weights": "', '"weights": "0'))
    with pytest.raises(ValueError, match="different data or a different vision encoder; remove that folder"):
        losses(own, "stale")
    told.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        losses(own, "no_json")
    told.unlink()
    with pytest.raises(ValueError, match="is damaged"):
        losses(own, "gone")
    told.write_text(made_of)
    assert losses(own, "again") == first


def test_features_of_uivlm_0_1_are_refused(own: Path) -> None:
    """Their digest has another version, so that only a renamed folder is ever read."""
    first = losses(own, "first")
    (folder,) = (own / "data" / "features").iterdir()
    metadata = folder / "metadata.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"version": 1}))
    with pytest.raises(ValueError, match="different data or a different vision encoder; remove that folder"):
        losses(own, "old")
    folder.rename(folder.with_name("0" * 16))
    assert losses(own, "new") == first
    assert len(list((own / "data" / "features").iterdir())) == 2


def test_a_run_that_fails_while_it_sees_leaves_no_features(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("uivlm.training.feature_cache.encode_screens", stops)
        with pytest.raises(KeyboardInterrupt):
            losses(own, "stopped")
    assert not list((own / "data" / "features").iterdir())
    shutil.rmtree(own / "stopped.state")
    losses(own, "again")


def stops(model: nn.Module, screens: list[Any]) -> list[torch.Tensor]:
    if len(screens) > 1:  # a single one is for the size of the features
        raise KeyboardInterrupt
    return encode_screens(model, screens)


def test_data_whose_index_is_wrong_is_refused(own: Path) -> None:
    one = recipe(own / "base", own / "data")
    built, episodes = build(one), ConcatEpisodes(open_datasets(one))
    index = index_windows(episodes, prompt_format(one), built.processor)
    episodes.num_steps[-1] += 1
    with pytest.raises(ValueError, match="12 screens; their index has 13"):
        build_feature_cache(built.model, one, episodes, index, prompt_format(one), built.processor)

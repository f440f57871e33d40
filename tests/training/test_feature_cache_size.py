"""The size of the feature cache is known before, and checked; its numbers are in the model's dtype."""

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny_models import base, episode, prepare, recipe
from uivlm.episodes.window_index import index_windows
from uivlm.models.build import build, prompt_format
from uivlm.models.multimodal import encode_screens
from uivlm.training import feature_cache
from uivlm.training.feature_cache import CachedFeatureDataset, build_feature_cache, cache_bytes
from uivlm.training.mixture import ConcatEpisodes, open_datasets

Usage = namedtuple("Usage", "total used free")


def build_cache(root: Path, dtype: torch.dtype = torch.float32) -> tuple[CachedFeatureDataset, int, Any]:
    """The cache, the size computed before, and the model."""
    one = recipe(root / "base", root / "data", num_workers=0)
    built, episodes = build(one), ConcatEpisodes(open_datasets(one))
    built.model.to(dtype)
    index = index_windows(episodes, prompt_format(one), built.processor)
    size = cache_bytes(built.model, episodes.num_steps, index, built.processor)
    cache = build_feature_cache(built.model, one, episodes, index, prompt_format(one), built.processor)
    return cache, size, (built, episodes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base(tmp_path / "base")
    prepare(tmp_path / "data", [episode(seed, n) for seed, n in enumerate((1, 9, 2, 3))])
    return tmp_path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_have_the_size_computed_and_the_models_numbers(root: Path, dtype: torch.dtype) -> None:
    cache, size, (built, episodes) = build_cache(root, dtype)
    (file,) = (root / "data" / "features").glob("*/features.bin")
    assert file.stat().st_size == size
    assert size % (15 * dtype.itemsize) == 0, "15 screens"
    pixels = [built.processor.pixel_values(feature_cache.ScreenPiece(episodes[0].steps[0].screen))]
    with torch.inference_mode():
        (expected,) = encode_screens(built.model, pixels)
    assert expected.dtype == dtype
    (kept,) = cache[0].features
    assert kept.dtype == np.float32
    # screens in one batch may be rounded differently from one alone
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    np.testing.assert_allclose(kept, expected.float().numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(kept, torch.from_numpy(kept).to(dtype).float().numpy())


def test_a_cache_that_does_not_fit_is_refused_before_a_screen_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 999))
    monkeypatch.setattr(feature_cache, "_write_cache", lambda *_: pytest.fail("features are computed"))
    with pytest.raises(ValueError, match=r"needs 5\.8 kB in .*data, where 999 bytes are free: set it"):
        build_cache(root)
    assert not (root / "data" / "features").exists()

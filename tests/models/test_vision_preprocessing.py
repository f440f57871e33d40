"""Screens reach a vision encoder as transformers' own image processor would give them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.helpers.hf_checkpoints import write
from tests.helpers.hf_llama_vit_parts import MEAN, STD, write_llama, write_vision
from tests.helpers.tiny_models import screen
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.bridge.files import load_base, save_base
from uivlm.models.bridge.from_pretrained import from_config_parts, from_pretrained_parts
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.multimodal import normalize_pixels
from uivlm.models.qwen_hf import files

NORMALIZATION = {"image_mean": MEAN, "image_std": STD}
BILINEAR, BICUBIC = 2, 3


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("parts")
    return write_llama(root / "llama"), write_vision(root / "vit", "vit")


def write_preprocessor(folder: Path, **fields: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(NORMALIZATION | fields))


def processor_of(parts: tuple[Path, Path]) -> BridgeProcessor:
    module, own = from_config_parts(*parts, "grid", 2, torch.float32)
    return BridgeProcessor(own, module.config)


def normalized(processor: BridgeProcessor, shown: Screen) -> NDArray[np.float32]:
    pixels = torch.from_numpy(processor.pixel_values(ScreenPiece(shown)))
    return np.asarray(normalize_pixels(pixels, processor.config.mean, processor.config.std).numpy())


def test_every_level_is_normalized_by_its_channel() -> None:
    """Against float64: the difference is the rounding of float32."""
    levels = np.broadcast_to(np.arange(256, dtype=np.uint8), (2, 3, 1, 256)).copy()
    levels[1] = levels[1, ..., ::-1]
    found = normalize_pixels(torch.from_numpy(levels), MEAN, STD)
    mean, std = (np.array(values)[:, None, None] for values in (MEAN, STD))
    assert found.dtype == torch.float32
    assert np.abs(found.numpy() - (levels / 255 - mean) / std).max() < 5e-7
    with pytest.raises(AssertionError, match=r"got torch.float32; expected torch.uint8"):
        normalize_pixels(found, MEAN, STD)


@pytest.mark.parametrize("resample", [BILINEAR, BICUBIC])
def test_pixels_are_those_of_the_published_processor(parts: tuple[Path, Path], resample: int) -> None:
    """But for single levels of 255 (one rounding more), and not for those of the other filter."""
    size = {"height": 32, "width": 32}
    write_preprocessor(parts[1], resample=resample, size=size)
    shown = screen(3, 45, 50)
    found = normalized(processor_of(parts), shown)
    theirs = ViTImageProcessorPil(size=size, resample=resample, **NORMALIZATION)
    expected = theirs(shown.pixels, return_tensors="np")["pixel_values"][0]
    level = 1 / 255 / min(STD)
    assert np.abs(found - expected).max() <= 2 * level
    other = ViTImageProcessorPil(size=size, resample=BILINEAR + BICUBIC - resample, **NORMALIZATION)
    assert np.abs(found - other(shown.pixels, return_tensors="np")["pixel_values"][0]).max() > 10 * level


def test_a_center_crop_of_the_whole_screen_is_the_screen(parts: tuple[Path, Path]) -> None:
    """CLIP's files ask for one. A screen resized to the crop's size loses nothing by it."""
    size = {"height": 32, "width": 32}
    write_preprocessor(parts[1], do_center_crop=True, crop_size=32, resample=BICUBIC)
    shown = screen(4, 200, 90)
    found = normalized(processor_of(parts), shown)
    theirs = CLIPImageProcessorPil(size=size, crop_size=size, do_center_crop=True, **NORMALIZATION)
    expected = theirs(shown.pixels, return_tensors="np")["pixel_values"][0]
    assert np.abs(found - expected).max() <= 2 / 255 / min(STD)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resample", 0),
        ("resample", 1),
        ("do_rescale", False),
        ("rescale_factor", 1.0),
        ("do_normalize", False),
    ],
)
def test_what_cannot_be_followed_is_refused(
    parts: tuple[Path, Path], tmp_path: Path, field: str, value: Any
) -> None:
    write_preprocessor(parts[1], **{field: value})
    with pytest.raises(ValueError, match=f"preprocessor_config.json: {field}: got {value}; expected"):
        processor_of(parts)
    root = write(tmp_path / "qwen", "Qwen2_5_VL")
    file = root / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(ValueError, match=f"{field}: got {value}; expected"):
        files.load_processor(root)


def test_a_saved_bridge_keeps_its_filter(parts: tuple[Path, Path], tmp_path: Path) -> None:
    write_preprocessor(parts[1], resample=BILINEAR)
    module, own = from_pretrained_parts(*parts, "grid", 2, torch.float32, 0)
    save_base(tmp_path / "base", module, own, torch.float32)
    assert load_base(tmp_path / "base")[0].config.resample == "bilinear"
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    (tmp_path / "base" / "config.json").write_text(json.dumps(config | {"resample": "nearest"}))
    with pytest.raises(ValueError, match="resample: got 'nearest'; expected one of bilinear, bicubic"):
        load_base(tmp_path / "base")

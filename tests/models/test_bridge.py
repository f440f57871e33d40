"""The bridge: its visual tokens, its pixels and its forward pass."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.model_examples import FIRST, example_of, random_pixels
from tests.helpers.tiny_models import PICTURE, bridge, config, episode, tokenizer
from uivlm.episodes.encode import IGNORE
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.bridge.blank_patches import find_blank, flatten_blank
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.bridge.vision_encoder import encode_pixels
from uivlm.models.multimodal import normalize_pixels, token_losses, trained_tokens


@pytest.mark.parametrize(("visual_tokens", "tokens"), [("pooled", 1), ("grid", 4), ("all", 24)])
def test_visual_tokens(visual_tokens: str, tokens: int) -> None:
    model = bridge(visual_tokens)
    assert model.get_image_features(torch.zeros(2, 3, 48, 32, dtype=torch.uint8)).shape == (2, tokens, 24)
    assert (
        len(
            BridgeProcessor(tokenizer(), model.config).image_token_ids(
                ScreenPiece(episode(0, 1).steps[0].screen)
            )
        )
        == tokens
    )


def test_busy_are_the_patches_that_show_something() -> None:
    """A line through the second patch of the third row, a shade too faint to matter in the fourth: the first
    patch always counts, so a black screen has one token.
    """
    pixels = np.full((96, 64, 3), 200, np.uint8)  # 6 x 4 patches of 16 x 16
    pixels[40, 16:32] = 0
    pixels[50, 2] = 195
    lined, black = (ScreenPiece(Screen(one)) for one in (pixels, np.zeros_like(pixels)))
    model = bridge("non_blank")
    reader = BridgeProcessor(tokenizer(), model.config)
    assert [len(reader.image_token_ids(one)) for one in (lined, black)] == [2, 1]
    seen = torch.from_numpy(np.stack([reader.pixel_values(one) for one in (lined, black)]))
    colors, size = normalize_pixels(seen, model.config.mean, model.config.std), model.config.patch_size
    _, patches = encode_pixels(model.vision, flatten_blank(colors, find_blank(seen, size), size))
    for one, all_patches, kept in zip(model.get_image_features(seen), patches, ([0, 9], [0]), strict=True):
        assert torch.equal(one, all_patches[kept])


def test_grid_is_the_mean_of_its_patches() -> None:
    """6 x 4 patches in 2 x 2 cells: each the mean of 3 x 2 patches, CLS left out, rows before columns."""
    pixels = random_pixels(2, 3, 48, 32)
    patches = bridge("all").get_image_features(pixels).reshape(2, 6, 4, 24)
    cells = [patches[:, 3 * r : 3 * r + 3, 2 * c : 2 * c + 2].mean((1, 2)) for r in (0, 1) for c in (0, 1)]
    assert torch.allclose(bridge("grid").get_image_features(pixels), torch.stack(cells, 1), atol=1e-6)


def test_reader_gives_vits_own_pixels() -> None:
    """One colour stays that colour, as bytes."""
    reader = BridgeProcessor(tokenizer(), config())
    pixels = np.broadcast_to(np.array([0, 51, 255], np.uint8), (60, 30, 3)).copy()
    seen = reader.pixel_values(ScreenPiece(Screen(pixels)))
    assert (seen.shape, seen.dtype) == ((3, 48, 32), np.uint8)
    assert seen[:, 5, 7].tolist() == [0, 51, 255]


@pytest.mark.parametrize("size", [(96, 64), (601, 299), (48, 32), (20, 31)])
def test_screens_are_made_smaller_as_pillow_does(size: tuple[int, int]) -> None:
    """Enlarged screens, too. No value differs by more than one of 255 levels, and few differ at all."""
    rng = np.random.default_rng(sum(size))
    pixels = rng.integers(0, 256, (*size, 3), np.uint8)
    pixels[: size[0] // 2] = 255 * rng.integers(0, 2, 3, np.uint8)
    pixels.setflags(write=False)
    seen = BridgeProcessor(tokenizer(), config()).pixel_values(ScreenPiece(Screen(pixels)))
    ours = seen.transpose(1, 2, 0).astype(np.float32)
    narrow = Image.fromarray(pixels).resize((32, size[0]), Image.Resampling.BICUBIC)
    # Width first: Pillow 13 alone begins with the height of a tall picture, and rounds other values in
    # between.
    theirs = np.asarray(narrow.resize((32, 48), Image.Resampling.BICUBIC), np.float32)
    apart = np.abs(ours - theirs)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.005


@torch.inference_mode()
@pytest.mark.parametrize("visual_tokens", ["pooled", "grid", "all", "non_blank"])
def test_logits_of_trained_positions_are_those_of_the_full_forward(visual_tokens: str) -> None:
    model = bridge(visual_tokens)
    ids, labels, pixels = example_of(model)
    full = model(ids, pixels).logits[0]
    before = [i - 1 for i, label in enumerate(labels[0].tolist()) if label != IGNORE]
    positions, trained = trained_tokens(labels)
    assert positions.tolist() == before
    some = model(ids, pixels, trained_positions=positions)
    assert torch.allclose(some.logits, full[before], atol=1e-5)
    by_hand = torch.stack([-full[i].log_softmax(-1)[ids[0, i + 1]] for i in before])
    assert torch.allclose(token_losses(some, trained), by_hand, atol=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("right", [True, False])
def test_padding_on_either_side_leaves_the_loss_as_it_is(right: bool) -> None:
    model = bridge()
    (ids, labels, pixels), blank = example_of(model, 3), torch.full((1, 7), FIRST + 2)
    kept = torch.ones_like(ids, dtype=torch.bool)

    def padded(row: torch.Tensor, filler: torch.Tensor) -> torch.Tensor:
        return torch.cat([row, filler] if right else [filler, row], 1)

    mask = padded(kept, torch.zeros_like(blank, dtype=torch.bool))
    wide = padded(labels, torch.full_like(blank, IGNORE))
    (positions, trained), (alone, _) = trained_tokens(wide), trained_tokens(labels)
    outputs = [
        model(padded(ids, blank), pixels, mask, positions),
        model(ids, pixels, trained_positions=alone),
    ]
    assert torch.allclose(*(token_losses(output, trained) for output in outputs), atol=1e-3)


@torch.inference_mode()
def test_padding_and_neighbours_change_nothing() -> None:
    model = bridge()
    (ids, _, pixels), (long, _, more) = example_of(model, 2), example_of(model, 4)
    rows = torch.full((2, long.shape[1]), FIRST + 2)
    rows[0, : ids.shape[1]], rows[1] = ids[0], long[0]
    mask = torch.zeros_like(rows, dtype=torch.bool)
    mask[0, : ids.shape[1]], mask[1] = True, True
    both = model(rows, torch.cat([pixels, more]), mask).logits
    assert torch.allclose(both[0, : ids.shape[1]], model(ids, pixels).logits[0], atol=1e-4)
    assert torch.allclose(both[1], model(long, more).logits[0], atol=1e-4)


def test_each_screen_stands_at_its_own_place() -> None:
    model = bridge()
    ids, _, pixels = example_of(model, 3)
    features = model.get_image_features(pixels)
    embeds = model.embed(ids, features)
    places = (ids[0] == FIRST + PICTURE).nonzero().flatten()
    assert torch.allclose(embeds[0, places], model.projection(features).flatten(0, 1))
    others = ids[0] != FIRST + PICTURE
    assert torch.equal(embeds[0, others], model.get_input_embeddings()(ids)[0, others])


@pytest.mark.parametrize(
    ("screens", "numbers"),
    [(2, "12 placeholders, .* 8 visual tokens"), (0, "12 placeholders, .* 0 visual tokens")],
)
def test_places_and_screens_must_agree(screens: int, numbers: str) -> None:
    model = bridge()
    ids, _, pixels = example_of(model, 3)
    with pytest.raises(ValueError, match=numbers):
        model(ids, pixels[:screens])

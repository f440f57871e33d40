"""Caching changes the cost only."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from tests.helpers.engines import (
    LIMIT,
    conversations,
    next_logits,
    of_kind,
    same_action,
)
from tests.helpers.tiny_models import (
    episode,
    qwen_base,
    qwen_recipe,
    screen,
)
from uivlm.agents.vlm import VlmAgent
from uivlm.episodes.encode import encode
from uivlm.episodes.episode import History
from uivlm.episodes.sentence import ScreenPiece
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.inference.prefix_cache import BatchDecoder, screen_key
from uivlm.training import checkpoint


def test_reuse_changes_nothing(loaded: LoadedCheckpoint) -> None:
    with_reuse, without = TorchEngine(loaded, LIMIT), TorchEngine(loaded, LIMIT, use_cache=False)
    texts = set()
    for history in conversations():
        fresh, reused = without.predict(history), with_reuse.predict(history)
        assert same_action(reused, fresh)
        assert reused.confidence is not None
        assert 0 <= reused.confidence <= 1
        assert torch.allclose(next_logits(with_reuse, history), next_logits(without, history), atol=1e-4)
        texts.add(fresh.text)
    assert len(texts) > 5, "answers that do not depend on the history prove nothing"


def test_reuse_saves_reading(loaded: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between jumps only the new action and screen are read; a screen is looked at once."""
    read: list[int] = []
    looked: list[int] = []
    forward, look = loaded.model.forward, loaded.model.get_image_features
    monkeypatch.setattr(
        loaded.model, "forward", lambda ids, **kw: (read.append(ids.shape[1]), forward(ids, **kw))[1]
    )
    monkeypatch.setattr(
        loaded.model, "get_image_features", lambda pixels: (looked.append(len(pixels)), look(pixels))[1]
    )
    engine, of = TorchEngine(loaded), episode(1, 7)
    lengths = [
        len(encode(loaded.prompt_format.prompt(of.history(t)), loaded.processor).input_ids) for t in range(7)
    ]
    for t in range(7):
        next_logits(engine, of.history(t))
    assert sum(looked) == 7
    assert read[:4] == [lengths[0], *(b - a for a, b in pairwise(lengths[:4]))]
    assert read[5] == lengths[5] - lengths[4]  # after the jump at step 4


def test_a_failed_step_spoils_no_later_one(loaded: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, of = TorchEngine(loaded, LIMIT), episode(3, 4)
    engine.predict(of.history(1))
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.inference.prefix_cache.BatchDecoder.step", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.predict(of.history(2))
    assert same_action(engine.predict(of.history(2)), TorchEngine(loaded, LIMIT).predict(of.history(2)))


def batches(size: int) -> list[list[History]]:
    """Histories of conversations side by side: on, back, over jumps, some of them new, one of them twice."""
    given = conversations()
    mixed = [given[i] for i in Random(size).sample(range(len(given)), len(given))]
    twice = [[*mixed[i : i + size], mixed[i]] for i in range(0, len(mixed), size)]
    several = [episode(seed, 6) for seed in range(size)]
    return [*twice, *([of.history(t) for of in several] for t in range(6))]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("kind", ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_answers_side_by_side_are_those_of_each_alone(
    kind: str, size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue("loaded") if kind == "llama_vit" else of_kind(kind, tmp_path)
    together, alone = (
        TorchEngine(loaded, LIMIT, max_cached_prefixes=size),
        TorchEngine(loaded, LIMIT, use_cache=False),
    )
    texts = set()
    for histories in batches(size):
        decisions = together.predict_batch(histories)
        assert len(together.prefix_cache.prefixes) <= size
        for history, decision in zip(histories, decisions, strict=True):
            fresh = alone.predict(history)
            assert same_action(decision, fresh)
            texts.add(fresh.text)
    assert len(texts) > 5, "answers that do not depend on the history prove nothing"


def test_a_conversation_that_goes_on_is_read_on(
    loaded: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side too: after the first step a row is its new action and screen."""
    widths: list[int] = []
    read = BatchDecoder.step

    def counted(self: BatchDecoder, rows: Any, keys: Any, features: Any) -> Any:
        widths.append(max(map(len, rows)))
        return read(self, rows, keys, features)

    monkeypatch.setattr(BatchDecoder, "step", counted)
    engine, several = (
        TorchEngine(loaded, LIMIT, max_cached_prefixes=3),
        [episode(seed, 4) for seed in range(3)],
    )
    prompts = [
        [
            len(encode(loaded.prompt_format.prompt(of.history(t)), loaded.processor).input_ids)
            for t in range(4)
        ]
        for of in several
    ]
    for t in range(4):
        del widths[:]
        engine.predict_batch([of.history(t) for of in several])
        assert widths[0] == max(one[t] - (one[t - 1] if t else 0) for one in prompts)
        assert len(engine.prefix_cache.prefixes) == 3
    engine.predict(episode(7, 1).history(0))
    assert len(engine.prefix_cache.prefixes) == 3, "the oldest one went"


def test_screens_are_known_by_content() -> None:
    one = screen_key(ScreenPiece(screen(1)), 4)
    assert one == screen_key(ScreenPiece(screen(1), age=2), 4)  # seen alike
    plain = screen(1).pixels
    turned = ScreenPiece(replace(screen(1), pixels=plain.reshape(20, 30, 3)))
    others = [
        screen_key(ScreenPiece(screen(2)), 4),
        screen_key(turned, 4),
        screen_key(ScreenPiece(screen(1)), 5),
    ]
    assert one not in others


@torch.inference_mode()
def test_the_originals_long_context_reads_each_prompt_anew(tmp_path: Path) -> None:
    """Its keys are turned by a factor of the prompt's length: those of a shorter prompt would be wrong."""
    wanted = qwen_recipe(qwen_base(tmp_path / "base", context=48), tmp_path, dynamic_ntk=True)
    loaded = load_checkpoint(checkpoint.save_base_checkpoint(wanted, tmp_path / "ckpt"))
    assert not loaded.supports_prefix_cache
    of = episode(3, 4)
    engine, wrong = (
        TorchEngine(loaded, LIMIT),
        TorchEngine(replace(loaded, supports_prefix_cache=True), LIMIT),
    )
    differ = []
    for t in range(4):
        fresh = next_logits(TorchEngine(loaded, LIMIT, use_cache=False), of.history(t))
        assert torch.equal(next_logits(engine, of.history(t)), fresh)
        differ.append(not torch.allclose(next_logits(wrong, of.history(t)), fresh, atol=1e-2))
        assert len(engine.feature_cache.entries) == t + 1, "screens are not seen again"
    assert differ[0] is False
    assert differ[-1] is True, "the prompts crossed the training length"


def test_a_reset_keeps_what_saves_reading(loaded: LoadedCheckpoint) -> None:
    """A server resets before each request: no request knows of another, but its prompt's beginning is not
    read again.
    """
    engine = TorchEngine(loaded, LIMIT)
    agent, of = VlmAgent(engine), episode(4, 3)
    agent.act(of.history(1))
    agent.reset()
    assert engine.prefix_cache.prefixes
    assert engine.feature_cache.entries
    agent.reset_cache()
    assert not engine.prefix_cache.prefixes
    assert not engine.feature_cache.entries


def test_a_screen_with_other_visual_tokens_than_placeholders(
    loaded: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model runs: on a GPU it does not count."""
    encode = loaded.model.get_image_features
    monkeypatch.setattr(loaded.model, "get_image_features", lambda pixels: encode(pixels)[:, :-1])
    with pytest.raises(ValueError, match=r"screens of \[3\] visual tokens have \[4\] placeholders"):
        TorchEngine(loaded).predict(episode(0, 1).history(0))

"""A new token copies no cached keys and values, and a window that advances encodes no screen again."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Cache, DynamicCache

from tests.helpers.engines import next_logits, of_kind
from tests.helpers.tiny_models import episode, screen
from uivlm.episodes.sentence import PromptFormat
from uivlm.inference.engine import TorchEngine
from uivlm.inference.kv_cache import FREE_TOKENS, PreallocatedLayer, preallocated_cache
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.multimodal import encode_screens

KINDS = ("qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL")


@pytest.fixture(scope="module", params=KINDS)
def checkpoint_of_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return of_kind(request.param, tmp_path_factory.mktemp(request.param))


def test_it_holds_what_transformers_own_cache_holds() -> None:
    torch.manual_seed(0)
    own, theirs = preallocated_cache(), DynamicCache()
    for num_tokens in (0, 7, 1, 1, FREE_TOKENS, 1, 3 * FREE_TOKENS, 1):
        new = torch.randn(2, 2, 3, num_tokens, 4)
        for layer in range(2):
            for a, b in zip(own.update(*new, layer), theirs.update(*new, layer), strict=True):
                assert torch.equal(a, b)
        assert own.get_seq_length() == theirs.get_seq_length()


class CopiedElements(TorchDispatchMode):
    """The largest number of elements that an operation which only moves values has written."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.cat.default, torch.ops.aten.copy_.default, torch.ops.aten.clone.default):
            self.largest = max(self.largest, result.numel())
        return result


@pytest.mark.parametrize("cache", [preallocated_cache, DynamicCache])
def test_a_new_token_copies_no_cached_ones(cache: Any) -> None:
    """transformers' own cache shows that the count would find a copy."""
    made: Cache = cache()
    made.update(*torch.randn(2, 1, 4, 1000, 8), 0)
    with CopiedElements() as copied:
        made.update(*torch.randn(2, 1, 4, 1, 8), 0)
    assert copied.largest == (4 * 8 if cache is preallocated_cache else 4 * 1001 * 8)


def test_logits_are_those_of_transformers_own_cache(
    checkpoint_of_kind: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs = TorchEngine(checkpoint_of_kind, 8), TorchEngine(checkpoint_of_kind, 8)
    for t in range(6):
        history = episode(1, 6).history(t)
        decision, logits = own.predict(history), next_logits(own, history)
        with monkeypatch.context() as patch:
            patch.setattr("uivlm.inference.prefix_cache.preallocated_cache", DynamicCache)
            assert theirs.predict(history) == decision
            assert torch.equal(next_logits(theirs, history), logits)


def test_no_step_encodes_the_screens_of_earlier_steps(
    checkpoint_of_kind: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of 4 screens advance by 2; screens that became older are shown in fewer tokens."""
    loaded, encoded = checkpoint_of_kind, list[int]()

    def count(model: nn.Module, screens: list[Any]) -> list[torch.Tensor]:
        encoded.append(len(screens))
        return encode_screens(model, screens)

    monkeypatch.setattr("uivlm.inference.prefix_cache.encode_screens", count)
    small = episode(2, 12)
    steps = tuple(replace(step, screen=screen(t, 64, 48)) for t, step in enumerate(small.steps))
    large, engine = replace(small, steps=steps), TorchEngine(loaded, 4)
    for t in range(12):
        engine.predict(large.history(t))
    shrinks = loaded.recipe.model.type == "qwen_hf"
    assert len(encoded) == 12
    assert max(encoded) == (2 if shrinks else 1)


@pytest.mark.parametrize("max_screens", [1, 2, 3, 4, 5, 8])
def test_later_ages(max_screens: int) -> None:
    """Against the sentences of all later prompts."""
    prompt_format, steps = PromptFormat(max_screens=max_screens), 3 * max_screens + 2
    whole = episode(0, steps)
    ages = [
        {piece.screen: piece.age for piece in prompt_format.prompt(whole.history(t)) if hasattr(piece, "age")}
        for t in range(steps)
    ]
    for t in range(max_screens):
        screen = whole.steps[t].screen
        later = {of[screen] for of in ages[t + 1 :] if screen in of} - {ages[t][screen]}
        assert prompt_format.later_ages(t) == tuple(sorted(later))


def test_the_search_for_several_actions_copies_no_prompt(
    checkpoint_of_kind: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each candidate is run after the one prompt: only its own tokens are written."""
    engine, history, limit = TorchEngine(checkpoint_of_kind, 8, constrained=True), episode(1, 4).history(2), 8
    written: list[int] = []
    update = PreallocatedLayer.update

    def counted(
        self: PreallocatedLayer, keys: torch.Tensor, values: torch.Tensor, *rest: Any, **named: Any
    ) -> Any:
        written.append(keys.shape[2])
        return update(self, keys, values, *rest, **named)

    monkeypatch.setattr(PreallocatedLayer, "update", counted)
    decisions = engine.top_k(history, 3)
    num_layers = len(engine.prefix_cache.prefixes[0].layers)
    prompt, later = written[:num_layers], written[num_layers:]
    assert min(prompt) > 4 * limit
    assert len(later) >= 3 * num_layers, "several candidates were run"
    assert max(later) <= limit
    # the prompt is still that of the cache
    again = TorchEngine(checkpoint_of_kind, 8, constrained=True).top_k(history, 3)
    assert [one.text for one in engine.top_k(history, 3)] == [one.text for one in again]
    assert [one.text for one in decisions] == [one.text for one in again]

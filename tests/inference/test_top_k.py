"""Top-k search against all answers that there are."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.engines import (
    wished,
)
from tests.helpers.tiny_models import (
    config,
    episode,
    tokenizer,
)
from uivlm.actions.action import InvalidAction
from uivlm.actions.text_prefix import is_prefix
from uivlm.episodes.episode import History
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.bridge.processor import BridgeProcessor


@pytest.mark.slow
def test_the_likeliest_answers_are_those_of_all(
    loaded: LoadedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against every answer that there is, each found by reading its whole beginning anew: two bins, and no
    typed text fits.
    """
    monkeypatch.setattr("uivlm.inference.top_k.MIN_PROBABILITY", 0.0)
    limit = 6
    few = replace(loaded, prompt_format=replace(loaded.prompt_format, num_bins=2))
    for t in (0, 2):
        history = episode(3, 4).history(t)
        engine = TorchEngine(few, limit, constrained=True)
        every = sorted(all_answers(few, history, limit), reverse=True)
        found = engine.top_k(history, 5)
        assert [one.text for one in found] == [words for _, words in every[:5]]
        assert [one.confidence for one in found] == pytest.approx(
            [chance for chance, _ in every[:5]], rel=1e-3
        )
        assert all(one.confidence <= one.action_type_confidence <= 1 for one in found)
        assert found[0].confidence >= engine.predict(history).confidence - 1e-6, "greedy may be less probable"
        assert len({one.text for one in engine.top_k(history, 40)}) == len(every)


def all_answers(loaded: LoadedCheckpoint, history: History, limit: int) -> list[tuple[float, str]]:
    """(probability, words) of every answer of at most so many tokens."""
    engine = TorchEngine(loaded, limit, use_cache=False, constrained=True)
    speech, processor = engine.constraint, loaded.processor
    assert speech is not None
    ids = engine._build_prompt(history)
    found: dict[str, float] = {}

    def go_on(said: list[int], chance: float) -> None:
        whole = replace(ids, token_ids=[*ids.token_ids, *said], keys=[*ids.keys, *said])
        with torch.inference_mode():
            chances = engine._prefill([whole])[1][0].float().softmax(-1)
        for token in range(len(chances)):
            if token == processor.eos_id:
                if isinstance(loaded.prompt_format.action_text.parse(processor.decode(said)), InvalidAction):
                    continue
                found[processor.decode(said)] = max(
                    chance * float(chances[token]), found.get(processor.decode(said), 0.0)
                )
                continue
            longer = processor.decode([*said, token])
            if not (processor.is_text_token(token) and is_prefix(longer, loaded.prompt_format.action_text)):
                continue
            forced, over = speech.forced_tokens([*said, token])
            now = [*said, token, *forced]
            if len(now) > limit or processor.decode(now).startswith("Input"):
                continue
            if over:
                words = processor.decode(now)
                found[words] = max(chance * float(chances[token]), found.get(words, 0.0))
            else:
                go_on(now, chance * float(chances[token]))

    go_on([], 1.0)
    return [(chance, words) for words, chance in found.items()]


def test_the_kind_has_its_own_probability(loaded: LoadedCheckpoint) -> None:
    """Of a model that always says the same, bound: `t` decides for a tap, what follows for its place."""
    words, module = wished(loaded, "7", "tap")
    chances = module.logits.softmax(-1)
    processor = BridgeProcessor(tokenizer(), config())
    one = LoadedCheckpoint(module, processor, loaded.prompt_format, loaded.recipe, "wishing")
    decision = TorchEngine(one, 40, constrained=True).predict(episode(0, 3).history(0))
    assert decision.text == words
    assert decision.action_type_confidence == pytest.approx(float(chances[processor.encode("tap at")[0]]))
    assert decision.confidence < decision.action_type_confidence


def test_only_a_bound_predictor_ranks(loaded: LoadedCheckpoint) -> None:
    with pytest.raises(ValueError, match="top_k needs .*constrained=True"):
        TorchEngine(loaded).top_k(episode(0, 3).history(0), 2)

"""The native engine: the text it generates is an action or an InvalidAction."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.engines import (
    FIRST,
    LIMIT,
    Saved,
    Wishing,
    conversations,
    decide,
    of_kind,
    same_action,
    wished,
)
from tests.helpers.tiny_models import (
    END,
    PICTURE,
    base,
    config,
    episode,
    tokenizer,
)
from uivlm.actions.action import InvalidAction, Press
from uivlm.actions.decision import Decision
from uivlm.agents.vlm import VlmAgent
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models.adapters import attach_adapters
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.build import build
from uivlm.training import checkpoint

KINDS = ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


def test_an_action_and_its_confidence(loaded: LoadedCheckpoint) -> None:
    """The confidence is the product over the said tokens, the end among them."""
    tokens = BridgeProcessor(tokenizer(), config()).encode("press back")
    decision = decide(loaded, [*tokens, FIRST + END])
    assert (decision.text, decision.action) == ("press back", Press("back"))
    assert decision.confidence == pytest.approx(0.9 ** (len(tokens) + 1), rel=1e-4)


def test_an_answer_that_fills_the_limit_may_still_end(loaded: LoadedCheckpoint) -> None:
    tokens = BridgeProcessor(tokenizer(), config()).encode("press back")
    assert decide(loaded, [*tokens, FIRST + END], limit=len(tokens)).action == Press("back")
    assert isinstance(decide(loaded, [*tokens, FIRST + END], limit=len(tokens) - 1).action, InvalidAction)


def test_an_answer_without_end_is_no_action(loaded: LoadedCheckpoint) -> None:
    tokens = BridgeProcessor(tokenizer(), config()).encode("press back")
    decision = decide(loaded, tokens, limit=len(tokens))
    assert decision.text == "press back"
    assert isinstance(decision.action, InvalidAction)
    assert f"no end within {len(tokens)} tokens" in decision.action.reason
    assert decision.confidence is not None
    assert math.isclose(decision.confidence, 0.9 ** len(tokens), rel_tol=1e-4)


@pytest.mark.parametrize("control", [PICTURE, 0, 2])
def test_a_control_token_within_the_words_is_no_action(loaded: LoadedCheckpoint, control: int) -> None:
    tokens = BridgeProcessor(tokenizer(), config()).encode("press back")
    action = decide(loaded, [*tokens, FIRST + control, FIRST + END]).action
    assert isinstance(action, InvalidAction)
    assert "control token" in action.reason


def test_nonsense_is_no_action(loaded: LoadedCheckpoint) -> None:
    tokens = BridgeProcessor(tokenizer(), config()).encode("open the door")
    decision = decide(loaded, [*tokens, FIRST + END])
    assert decision.text == "open the door"
    assert isinstance(decision.action, InvalidAction)


def test_the_context_is_never_exceeded(saved: Saved, tmp_path: Path) -> None:
    short = replace(
        saved.recipe, model=replace(saved.recipe.model, base_model=str(base(tmp_path / "base", context=60)))
    )
    built = build(short)
    checkpoint.save(tmp_path / "ckpt", attach_adapters(built, 0), built, short, None, 0.0, "")
    engine = TorchEngine(load_checkpoint(tmp_path / "ckpt"))
    with pytest.raises(
        ValueError, match=r"the prompt has \d+ tokens, the model reads 60: .*prompt.max_screens"
    ):
        engine.predict(episode(2, 5).history(4))
    assert isinstance(engine.predict(episode(2, 5).history(0)).text, str)


def test_the_agent_decides_what_the_predictor_says(loaded: LoadedCheckpoint) -> None:
    engine = TorchEngine(loaded, LIMIT)
    agent, of = VlmAgent(engine), episode(4, 3)
    agent.reset()
    for t in range(3):
        decision = agent.act(of.history(t))
        assert isinstance(decision, Decision)
        assert same_action(decision, TorchEngine(loaded, LIMIT, use_cache=False).predict(of.history(t)))


def test_a_bound_answer_stays_within_its_room(loaded: LoadedCheckpoint) -> None:
    """What must follow counts, too: the context has no place beyond."""
    processor = BridgeProcessor(tokenizer(), config())
    for limit in range(1, 5):
        module = Wishing(processor.encode("press home"), FIRST + 4)
        one = LoadedCheckpoint(module, processor, loaded.prompt_format, loaded.recipe, "wishing")
        decision = TorchEngine(one, limit, constrained=True).predict(episode(0, 3).history(0))
        assert len(processor.encode(decision.text)) <= limit
        assert isinstance(decision.action, InvalidAction) == (limit < len(processor.encode("press home")))
        assert sum(module.read[1:]) <= limit


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_model_says_nothing_but_actions(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Random weights write nonsense unless constrained; typed texts are closed at the limit."""
    loaded = request.getfixturevalue("loaded") if kind == "llama_vit" else of_kind(kind, tmp_path)
    bound, free = TorchEngine(loaded, 40, max_cached_prefixes=4, constrained=True), TorchEngine(loaded, 40)
    action_text = loaded.prompt_format.action_text
    histories = conversations()[:20]
    for i in range(0, len(histories), 4):
        for decision in bound.predict_batch(histories[i : i + 4]):
            assert not isinstance(decision.action, InvalidAction), decision.text
            assert action_text.format(decision.action) == decision.text
            assert decision.confidence is not None
            assert decision.action_type_confidence is not None
            assert 0 <= decision.confidence <= decision.action_type_confidence <= 1
    assert any(isinstance(free.predict(history).action, InvalidAction) for history in histories)


def test_of_what_may_follow_the_likeliest_is_taken(loaded: LoadedCheckpoint) -> None:
    said, _ = wished(loaded, "t", "7", "9", "a")
    assert said.startswith("tap at 9"), "nothing else begins with what is likeliest of all that may begin"


def test_what_must_follow_is_not_asked_for(loaded: LoadedCheckpoint) -> None:
    """`press` leaves a choice, its key none; and nothing is read after the last choice."""
    said, module = wished(loaded, "press home")
    assert said == "press home"
    processor = BridgeProcessor(tokenizer(), config())
    assert len(module.read) < len(processor.encode("press home")), (
        "some tokens were read together with others"
    )


def test_a_typed_text_cannot_break_out(loaded: LoadedCheckpoint) -> None:
    """It is closed where it grows too long, and what stands in it is one JSON string."""
    for wish in ("I", "I\\", "I\n", "Iä", "I\\u0"):
        said, _ = wished(loaded, *wish[::-1], limit=30)
        assert said.startswith('Input text "'), said
        assert said.endswith('"')

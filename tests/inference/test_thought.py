"""Decoding with thoughts: a line of free text, then the action's grammar; the action is scored alone."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.tiny_models import base, episode, prepare, recipe, with_settings
from uivlm.actions.action import InvalidAction
from uivlm.episodes.encode import encode
from uivlm.episodes.episode import Episode, StepNotes
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.inference.thought import (
    MAX_THOUGHT_TOKENS,
    RequestGrammar,
    next_thought_token,
    thought_length,
)
from uivlm.training.train import train


def thoughtful(seed: int, num_steps: int) -> Episode:
    plain = episode(seed, num_steps)
    notes = [StepNotes(thought=f"go {t}") for t in range(num_steps - 1)]
    steps = [replace(step, notes=n) for step, n in zip(plain.steps, [*notes, StepNotes()], strict=True)]
    return replace(plain, steps=tuple(steps))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    """A model that has learned one episode with its thoughts by heart."""
    root = tmp_path_factory.mktemp("thoughts")
    small = recipe(base(root / "base"), prepare(root / "data", [thoughtful(3, 3)]))
    small = replace(small, prompt=replace(small.prompt, thoughts="thought"))
    lora = replace(small.model, lora=replace(small.model.lora, r=16, alpha=32))  # type: ignore[type-var]
    small = with_settings(replace(small, model=lora), epochs=60, per_device_batch_size=3)
    return load_checkpoint(train(small, root / "out"))


@pytest.mark.parametrize("constrained", [False, True])
def test_a_taught_model_writes_thought_and_action(taught: LoadedCheckpoint, constrained: bool) -> None:
    """The last step has no thought: its line is empty. Batched and alone are alike."""
    engine = TorchEngine(taught, constrained=constrained)
    histories = [episode(3, 3).history(t) for t in range(3)]
    decisions = engine.predict_batch(histories)
    text = taught.prompt_format.action_text
    for t, (decision, step) in enumerate(zip(decisions, episode(3, 3).steps, strict=True)):
        thought = f"go {t}" if t < 2 else ""
        assert decision.text == f"{thought}\n{text.format(step.action)}"
        assert not isinstance(decision.action, InvalidAction)
    alone = [engine.predict(history) for history in histories]
    assert [(one.action, one.text) for one in alone] == [(one.action, one.text) for one in decisions]


@torch.inference_mode()
def test_confidence_is_of_the_action_alone(taught: LoadedCheckpoint) -> None:
    """The product of the probabilities of the tokens after the thought, by one forward over all text."""
    engine = TorchEngine(taught)
    history = episode(4, 3).history(1)
    decision = engine.predict(history)
    thought, _, action = decision.text.partition("\n")
    processor = taught.processor
    prompt = encode(taught.prompt_format.prompt(history), processor)
    first = [*prompt.input_ids.tolist(), *processor.encode(thought), *processor.encode("\n")]
    said = [*processor.encode(action), processor.eos_id]
    pixels = torch.stack([torch.from_numpy(screen) for screen in prompt.pixels])
    logits = taught.model(torch.tensor([[*first, *said]]), pixels).logits[0, len(first) - 1 : -1]
    expected = logits.softmax(-1)[torch.arange(len(said)), torch.tensor(said)].prod()
    assert decision.confidence == pytest.approx(float(expected), rel=1e-3)


def test_most_probable_actions_share_the_thought(taught: LoadedCheckpoint) -> None:
    engine = TorchEngine(taught, constrained=True)
    history = episode(3, 3).history(0)
    best = engine.top_k(history, 3)
    greedy = engine.predict(history)
    assert (best[0].text, best[0].action) == (greedy.text, greedy.action)
    assert best[0].confidence == pytest.approx(greedy.confidence, rel=1e-3)
    assert len(best) == 3
    assert {one.text.partition("\n")[0] for one in best} == {"go 0"}


def test_any_probabilities_become_a_line_and_an_action(taught: LoadedCheckpoint) -> None:
    """At the limit the line is closed, and no control token comes before the action's end."""
    processor, text = taught.processor, taught.prompt_format.action_text
    constraint, generator = ActionConstraint(processor, text), torch.Generator().manual_seed(0)
    num_closed = 0
    for _ in range(40):
        said: list[int] = []
        grammar = RequestGrammar(constraint, 8)
        while len(said) < 60 and (not said or said[-1] != processor.eos_id):
            probs = torch.rand(processor.image_token_id, generator=generator)
            said.append(int(probs.masked_fill(grammar.forbidden_tokens(said, probs), -1.0).argmax()))
        length = thought_length(said, processor)
        assert length is not None
        num_closed += length == 9
        line = processor.decode(said[:length])
        assert line.endswith("\n")
        assert line.count("\n") == 1
        if said[-1] == processor.eos_id:
            assert not isinstance(text.parse(processor.decode(said[length:-1])), InvalidAction)
    assert num_closed > 20


def test_a_line_ends_once(taught: LoadedCheckpoint) -> None:
    """The end token is never the first choice of a thought, however probable it is."""
    processor = taught.processor
    probs = torch.zeros(processor.image_token_id)
    probs[processor.eos_id], probs[processor.encode("x")[0]] = 0.9, 0.1
    assert processor.decode([next_thought_token([], probs, MAX_THOUGHT_TOKENS, processor)]) == "x"
    full = processor.encode("x") * 5
    assert processor.decode([next_thought_token(full, probs, 5, processor)]) == "\n"
    assert thought_length(full, processor) is None
    assert thought_length([*full, *processor.encode("\ntap")], processor) == 6

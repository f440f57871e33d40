"""Decoding with thoughts: a line of free text, then the action's grammar; the action is scored alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.readers import READERS, Reader
from tests.helpers.tiny_models import base, episode, prepare, recipe, with_settings
from tests.helpers.transfers import Transfers
from uivlm.actions.action import InvalidAction
from uivlm.episodes.encode import encode
from uivlm.episodes.episode import Episode, StepNotes
from uivlm.inference.constrained import ActionConstraint, best_tokens
from uivlm.inference.decoding import GenerationState
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.inference.thought import RequestGrammar, ThoughtConstraint, thought_length
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
    constraint, thoughts = ActionConstraint(processor, text), ThoughtConstraint(processor)
    generator = torch.Generator().manual_seed(0)
    num_closed = 0
    for _ in range(40):
        said: list[int] = []
        grammar = RequestGrammar(constraint, thoughts, 8)
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


@pytest.mark.parametrize("kind", READERS)
def test_a_thought_is_one_line_of_text(kind: Reader, tmp_path: Path) -> None:
    """The mask against decoded text: for every token of every tokenizer."""
    processor, size = kind(tmp_path)
    constraint = ThoughtConstraint(processor)
    for thought in ("", "go é"):
        said = processor.encode(thought)

        def may(token: int, said: list[int] = said) -> bool:
            line = processor.decode([*said, token]).removesuffix("\n")
            return token != processor.eos_id and processor.is_text_token(token) and "\n" not in line

        forbidden = constraint.forbidden_tokens(said, 9, torch.zeros(size)).tolist()
        tokens = range(0, size, 1 if size < 10_000 else 7)
        assert [token for token in tokens if not forbidden[token]] == [t for t in tokens if may(t)]
        assert not forbidden[processor.encode("\n")[-1]], "the end"


def test_a_step_of_thoughts_waits_for_its_tokens_only(taught: LoadedCheckpoint) -> None:
    """One transfer for the whole batch: of two thoughts, one at its limit, and one action."""
    encode, probs = taught.processor.encode, torch.rand(4, taught.processor.image_token_id)
    for constrained in (False, True):
        engine = TorchEngine(taught, constrained=constrained)
        for _ in range(2):  # the first one makes the masks
            states = [
                GenerationState(40, max_thought_tokens=8),
                GenerationState(40, max_thought_tokens=8, thought_ids=encode("go")),
                GenerationState(40, max_thought_tokens=2, thought_ids=encode("xy")[:2]),
                GenerationState(40, encode("tap at "), max_thought_tokens=8, thought_ended=True),
            ]
            with Transfers() as transfers:
                engine._step(states, probs)
        assert transfers.counted == ["tolist"]
        assert taught.processor.decode(states[2].thought_ids) == "xy\n"


def test_a_line_ends_once(taught: LoadedCheckpoint) -> None:
    """The end token is never the first choice of a thought, however probable it is."""
    processor, thoughts = taught.processor, ThoughtConstraint(taught.processor)
    probs = torch.zeros(processor.image_token_id)
    probs[processor.eos_id], probs[processor.encode("x")[0]] = 0.9, 0.1

    def chosen(said: list[int], limit: int) -> str:
        best = best_tokens(probs[None], [thoughts.forbidden_tokens(said, limit, probs)])
        return processor.decode(best.tolist())

    assert chosen([], 9) == "x"
    full = processor.encode("x") * 5
    assert chosen(full, 5) == "\n"
    assert thought_length(full, processor) is None
    assert thought_length([*full, *processor.encode("\ntap")], processor) == 6

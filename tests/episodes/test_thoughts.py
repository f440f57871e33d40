"""Thoughts: trained words before the action of one step, never seen by another step."""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.tiny_models import config, episode, tokenizer
from uivlm.episodes.encode import IGNORE, TOKEN_TYPES, encode
from uivlm.episodes.episode import Episode, StepNotes
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, Sentence, TextPiece
from uivlm.models.bridge.processor import BridgeProcessor


def thoughtful(seed: int, num_steps: int) -> Episode:
    """An episode whose last step has no notes."""
    plain = episode(seed, num_steps)
    notes = [StepNotes("desc", f"tap at {t} 0\n then  wait", f"do {t}") for t in range(num_steps - 1)]
    steps = [replace(step, notes=n) for step, n in zip(plain.steps, [*notes, StepNotes()], strict=True)]
    return replace(plain, steps=tuple(steps))


def texts(sentence: Sentence) -> list[tuple[str, bool]]:
    return [(piece.text, piece.trained) for piece in sentence if isinstance(piece, TextPiece)]


def ages(sentence: Sentence) -> list[int]:
    return [piece.age for piece in sentence if isinstance(piece, ScreenPiece)]


@pytest.mark.parametrize("max_screens", [1, 2, 4, 5])
@pytest.mark.parametrize("thoughts", ["instruction", "thought"])
def test_prompt_is_the_training_sentence_cut_before_the_trained_words(
    max_screens: int, thoughts: str
) -> None:
    """Of every step, with ages; the history's steps come from a phone and have no notes."""
    format_ = PromptFormat(100, max_screens, 3, thoughts)  # type: ignore[arg-type]
    recorded, acted = thoughtful(0, 9), episode(0, 9)
    processor = BridgeProcessor(tokenizer(), config())
    windows = list(format_.windows(recorded))
    assert [window.steps[-1].action for window in windows] == [step.action for step in recorded.steps]
    for t, window in enumerate(windows):
        sentence, prompt = format_.sentence(window), format_.prompt(acted.history(t))
        example, asked = encode(sentence, processor), encode(prompt, processor)
        first = int(np.flatnonzero(example.labels != IGNORE)[0])
        assert example.input_ids[:first].tolist() == asked.input_ids.tolist()
        assert ages(sentence) == ages(prompt)
        assert (example.labels[first:] != IGNORE).all(), "thought, its end and the action are trained"
        plain = replace(format_, thoughts="none")
        assert texts(prompt) == texts(plain.prompt(acted.history(t)))


def test_trained_words_and_their_types() -> None:
    format_ = PromptFormat(100, 4, 3, "thought")
    recorded = thoughtful(0, 3)
    first, _, last = (format_.sentence(window) for window in format_.windows(recorded))
    assert [text for text, trained in texts(first) if trained] == [
        "tap at 0 0 then wait", "\n", format_.action_text.format(recorded.steps[0].action),
    ]  # fmt: skip
    assert next(text for text, trained in texts(last) if trained) == "\n", (
        "a step without a note: an empty line"
    )
    processor = BridgeProcessor(tokenizer(), config())
    example = encode(first, processor)
    trained = example.labels[example.labels != IGNORE]
    is_thought = example.action_types == TOKEN_TYPES.index("thought")
    assert processor.decode(trained[is_thought].tolist()) == "tap at 0 0 then wait\n"
    assert set(example.action_types[~is_thought]) == {TOKEN_TYPES.index("tap")}


def test_without_thoughts_notes_change_nothing() -> None:
    format_ = PromptFormat(100, 4, 3)
    pairs = zip(format_.windows(thoughtful(0, 9)), format_.windows(episode(0, 9)), strict=True)
    for one, other in pairs:
        assert texts(format_.sentence(one)) == texts(format_.sentence(other))


def test_unknown_thoughts_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"prompt\.thoughts: got 'all'; expected one of none, instruction"):
        PromptFormat(thoughts="all")  # type: ignore[arg-type]

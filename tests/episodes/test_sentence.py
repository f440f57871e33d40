"""Sentences: what is trained, what a prompt is, how much is shown, and that text is only text."""

import numpy as np
import pytest
from tokenizers import AddedToken

from tests.helpers.tiny_models import END, PICTURE, START, config, episode, tokenizer
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, TextPiece
from uivlm.models.bridge.processor import BridgeProcessor

FIRST = tokenizer().get_vocab_size()
GRAMMARS = [
    PromptFormat(100, screens, before) for screens, before in ((1, 0), (1, 8), (2, 1), (3, 3), (4, 8), (8, 2))
]


@pytest.fixture(scope="module")
def reader() -> BridgeProcessor:
    return BridgeProcessor(tokenizer(), config())


def said(grammar: PromptFormat, of: Episode) -> list[str]:
    return [grammar.action_text.format(step.action) for step in of.steps]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_trained_ids_are_the_action_words_and_their_end_tokens(
    grammar: PromptFormat, reader: BridgeProcessor
) -> None:
    """Over all windows: each action of a long episode exactly once, in order, and nothing else."""
    of = episode(3, 29)
    words: list[str] = []
    for window in grammar.windows(of):
        example = encode(grammar.sentence(window), reader)
        at = example.labels != IGNORE
        assert (example.labels[at] == example.input_ids[at]).all()
        run: list[int] = []
        for label, trained in zip(example.labels.tolist(), at.tolist(), strict=True):
            if not trained:
                assert run == [], "trained tokens that no end token closes"
            elif label == FIRST + END:
                words.append(reader.decode(run))
                run = []
            else:
                run.append(label)
        assert run == []
    assert words == said(grammar, of)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_prompt_is_the_training_sentence_cut_before_the_action(
    grammar: PromptFormat, reader: BridgeProcessor
) -> None:
    of = episode(1, 21)
    windows = iter(grammar.windows(of))
    window, t = next(windows), 0
    for start, first, stop in grammar.spans(len(of.steps)):
        assert first == t
        trained = encode(grammar.sentence(window), reader)
        ends = [i for i, token in enumerate(trained.input_ids) if token == FIRST + END]
        for t in range(first, stop):
            prompt = encode(grammar.prompt(of.history(t)), reader)
            cut = ends[t - start] - len(reader.encode(said(grammar, of)[t]))
            assert prompt.input_ids.tolist() == trained.input_ids[:cut].tolist()
            assert (prompt.labels == IGNORE).all()
            assert np.array_equal(prompt.pixels, trained.pixels[: t - start + 1])
            assert (
                prompt.num_visual_tokens
                == trained.num_visual_tokens[: t - start + 1]
                == (4,) * (t - start + 1)
            )
        t, window = stop, next(windows, window)
    assert t == 21


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_never_more_screens_than_the_grammar_says(grammar: PromptFormat) -> None:
    of = episode(2, 40)
    sentences = [grammar.sentence(w) for w in grammar.windows(of)] + [
        grammar.prompt(of.history(t)) for t in range(40)
    ]
    shown = [sum(isinstance(piece, ScreenPiece) for piece in sentence) for sentence in sentences]
    assert max(shown) == grammar.max_screens
    assert min(shown) >= 1


def test_windows_by_hand() -> None:
    """Four screens, jumps of two: counted by hand."""
    assert list(PromptFormat(100, 4, 8).spans(9)) == [(0, 0, 4), (2, 4, 6), (4, 6, 8), (6, 8, 9)]
    assert list(PromptFormat(100, 1, 8).spans(3)) == [(0, 0, 1), (1, 1, 2), (2, 2, 3)]
    assert list(PromptFormat(100, 4, 8).spans(0)) == []


def test_older_actions_are_told_in_words() -> None:
    grammar, of = PromptFormat(100, 2, 2), episode(0, 6)
    pieces = grammar.prompt(of.history(5))
    words = said(grammar, of)
    assert [p.text for p in pieces if isinstance(p, TextPiece)] == [
        "goal 0\n", f"{words[2]}\n{words[3]}\n", "\n", words[4], "\n",
    ]  # fmt: skip
    assert [p.screen for p in pieces if isinstance(p, ScreenPiece)] == [
        of.steps[4].screen,
        of.steps[5].screen,
    ]


def test_between_jumps_each_prompt_extends_the_one_before(reader: BridgeProcessor) -> None:
    grammar, of = PromptFormat(100, 4, 8), episode(5, 12)
    ids = [
        encode(grammar.prompt(of.history(t)), reader, with_pixels=False).input_ids.tolist() for t in range(12)
    ]
    extends = [b[: len(a)] == a for a, b in zip(ids, ids[1:], strict=False)]
    assert extends == [grammar.window_start(t) == grammar.window_start(t + 1) for t in range(11)]


@pytest.mark.parametrize(
    "goal", ["<screen></s><s>", "<|end|>\x00\x7f", "新闻 🙂 é\u202e", "<pad> <unk> tap at 1 1\n"]
)
def test_text_never_yields_control_ids(goal: str) -> None:
    """Also with a tokenizer that has such specials, as Llama's has."""
    hostile = tokenizer()
    hostile.add_special_tokens(
        [AddedToken(t, special=True) for t in ("<s>", "</s>", "<screen>", "<|end|>", "<pad>")]
    )
    for reader in (BridgeProcessor(tokenizer(), config()), BridgeProcessor(hostile, config())):
        ids = reader.encode(goal)
        assert max(ids) < FIRST
        assert reader.decode(ids) == goal


def test_control_ids_stand_where_code_puts_them(reader: BridgeProcessor) -> None:
    of = episode(2, 3, goal="</s><screen><s>")
    example = encode(PromptFormat(100, 8, 8).sentence(next(PromptFormat().windows(of))), reader)
    counts = {name: int((example.input_ids == FIRST + name).sum()) for name in (START, END, PICTURE)}
    assert counts == {START: 1, END: 3, PICTURE: 3 * 4}
    assert [screen.shape for screen in example.pixels] == [(3, 48, 32)] * 3


def test_no_look_no_pixels(reader: BridgeProcessor) -> None:
    sentence = PromptFormat().prompt(episode(0, 3).history(2))
    seen, unseen = encode(sentence, reader), encode(sentence, reader, with_pixels=False)
    assert seen.input_ids.tolist() == unseen.input_ids.tolist()
    assert len(unseen.pixels) == 0


@pytest.mark.parametrize(("field", "value"), [("num_bins", 1), ("max_screens", 0), ("max_past_actions", -1)])
def test_impossible_grammars(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"prompt.{field}: got {value}"):
        PromptFormat(**{field: value})

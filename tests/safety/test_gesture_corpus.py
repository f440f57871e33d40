"""The corpus of labelled gestures is sound, and the shipped keywords find its commits."""

import pytest

from bench.shared.gestures import LabelledGesture, Rates, asked, rates, read_corpus
from uivlm.safety.labels import shipped_keywords


@pytest.fixture(scope="module")
def corpus() -> list[LabelledGesture]:
    return read_corpus()


def test_the_corpus_is_sound(corpus: list[LabelledGesture]) -> None:
    assert len(corpus) >= 500
    ids = {gesture.id for gesture in corpus}
    assert len(ids) == len(corpus)
    languages = {gesture.language for gesture in corpus}
    assert len(languages) == 22
    for held_out in (False, True):
        half = [gesture for gesture in corpus if gesture.held_out == held_out]
        assert {(g.language, g.kind) for g in half} == {
            (language, kind) for language in languages for kind in ("commit", "harmless")
        }
    for gesture in corpus:
        assert gesture.texts, gesture
        assert all(text.strip() for text in gesture.texts), gesture
        assert gesture.source, gesture
        original, _, disguise = gesture.id.partition("~")
        assert original in ids
        assert disguise == ("" if gesture.disguise == "none" else gesture.disguise.replace(" ", "-"))


def test_the_guard_asks_for_commits_that_were_held_out(corpus: list[LabelledGesture]) -> None:
    held_out = [gesture for gesture in corpus if gesture.held_out]
    found = rates(held_out, asked(held_out, shipped_keywords()))
    assert found.recall >= 0.99
    assert found.false_ask_rate <= 0.09


def test_rates_are_shares_of_each_kind() -> None:
    gestures = [
        LabelledGesture(str(i), "en", (text,), kind, "none", "test")  # type: ignore[arg-type]
        for i, (text, kind) in enumerate(
            [
                ("Pay", "commit"),
                ("Go", "commit"),
                ("Pay later?", "harmless"),
                ("Map", "harmless"),
                ("", "harmless"),
            ]
        )
    ]
    found = rates(gestures, asked(gestures, ["pay"]))
    assert found == Rates(2, 1, 3, 1)
    assert (found.recall, found.false_ask_rate) == (1 / 2, 1 / 3)

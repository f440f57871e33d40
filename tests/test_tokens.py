"""Tokens in the report: those of the sentences as a model reads them."""

from pathlib import Path

from test_data_prep import FIXTURE, refused

from data_prep.__main__ import prepare
from data_prep.settings import Settings
from uivlm.models.bridge_folder import load_base
from uivlm.models.llama_vit import TINY, Reader
from uivlm.sentences.encode import encode
from uivlm.sentences.sentence import Grammar, Picture
from uivlm.sentences.store import Prepared

RECIPE = str(Path(__file__).parents[1] / "recipes" / "tiny.py")


def test_counts_are_those_of_encoded_sentences(tmp_path: Path) -> None:
    report = prepare(FIXTURE, tmp_path / "out", settings=Settings(tokens=(RECIPE,)))
    told = report["tokens"]["tiny"]
    module, tokenizer = load_base(TINY)
    reader = Reader(tokenizer, module.config)
    grammar = Grammar()
    episodes = Prepared.open(tmp_path / "out").episodes("train")
    found = [
        [len(encode(grammar.sentence(window), reader).input_ids) for window in grammar.windows(episode)]
        for episode in episodes
    ]
    seen = [len(reader.picture(Picture(step.screen))) for episode in episodes for step in episode.steps]
    assert (
        max(len(episode.steps) for episode in episodes) <= grammar.screens
    )  # else some are seen in two windows
    assert told["tokens a screen"] == round(sum(seen) / len(seen), 1)
    assert told["episodes"] == len(episodes)
    assert told["longest sentence"] == max(max(each) for each in found)
    assert told["longest"] == max(map(sum, found))
    assert told["median"] in map(sum, found)


def test_an_unknown_recipe_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    sentence = refused(tmp_path, str(FIXTURE), str(tmp_path / "out"), "--tokens", "nosuch")
    assert "no recipe 'nosuch'" in sentence

"""Tokens in the report: those of the sentences as a model reads them."""

from pathlib import Path

from data_prep.__main__ import prepare
from data_prep.settings import PrepSettings
from tests.helpers.paths import ROOT
from tests.helpers.prepared_data import FIXTURE, refused
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE
from uivlm.models.bridge.processor import BridgeProcessor

RECIPE = str(ROOT / "recipes" / "tiny.py")


def test_counts_are_those_of_encoded_sentences(tmp_path: Path) -> None:
    report = prepare(FIXTURE, tmp_path / "out", settings=PrepSettings(count_tokens=(RECIPE,)))
    counts = report["tokens"]["tiny"]
    module, tokenizer = load_base(TINY_BASE)
    processor = BridgeProcessor(tokenizer, module.config)
    prompt_format = PromptFormat()
    episodes = PreparedData.open(tmp_path / "out").episodes("train")
    lengths = [
        [
            len(encode(prompt_format.sentence(window), processor).input_ids)
            for window in prompt_format.windows(episode)
        ]
        for episode in episodes
    ]
    visual_tokens = [
        len(processor.image_token_ids(ScreenPiece(step.screen)))
        for episode in episodes
        for step in episode.steps
    ]
    assert (
        max(len(episode.steps) for episode in episodes) <= prompt_format.max_screens
    )  # else some are seen in two windows
    assert counts["visual_tokens_per_screen"] == round(sum(visual_tokens) / len(visual_tokens), 1)
    assert counts["num_episodes"] == len(episodes)
    assert counts["longest_sentence"] == max(max(windows) for windows in lengths)
    assert counts["longest"] == max(map(sum, lengths))
    assert counts["median"] in map(sum, lengths)


def test_an_unknown_recipe_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    sentence = refused(tmp_path, str(FIXTURE), str(tmp_path / "out"), "--count-tokens", "nosuch")
    assert "no recipe 'nosuch'" in sentence

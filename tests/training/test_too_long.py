"""Sentences that are too long: refused before any weight is read, or skipped and counted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.helpers.tiny_models import base, episode, prepare, recipe, with_settings
from uivlm.actions.action import Type
from uivlm.cli.main import app
from uivlm.episodes.encode import encode
from uivlm.episodes.episode import Episode
from uivlm.models.build import build, prompt_format
from uivlm.recipe import Recipe, override
from uivlm.training import train as training
from uivlm.training.train import train

pytestmark = pytest.mark.slow

NUM_STEPS = (1, 3, 2, 1, 2, 4)


def wordy(seed: int) -> Episode:
    """One step that types more text than the model reads."""
    one = episode(seed, 1)
    return replace(one, steps=(replace(one.steps[0], action=Type("word " * 140)),))


def usual() -> list[Episode]:
    return [episode(seed, n) for seed, n in enumerate(NUM_STEPS)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("too_long")
    base(made / "base")
    prepare(made / "fine", usual())
    prepare(made / "long", [*usual()[:4], wordy(9), *usual()[4:]])
    prepare(made / "validation", [*usual(), wordy(9), episode(8, 1)], validation=2)
    return made


def run(root: Path, data: str, *settings: str, **train_settings: Any) -> Recipe:
    one = recipe(root / "base", root / data, epochs=2.0)
    return override(with_settings(one, **train_settings), list(settings))


def tokens_of(one: Episode, of: Recipe) -> int:
    format_, processor = prompt_format(of), build(of).processor
    return max(len(encode(format_.sentence(each), processor).input_ids) for each in format_.windows(one))


@pytest.mark.parametrize("data", ["long", "validation"])
def test_too_long_sentences_are_refused_before_any_weight_is_read(
    root: Path, tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run(root, data, f"data.eval_episodes={2 if data == 'validation' else 0}")
    num_tokens = tokens_of(wordy(9), one)
    assert num_tokens > 512
    monkeypatch.setattr(
        training, "build", lambda one, device=None: build(one, device) if device else pytest.fail("loaded")
    )
    with pytest.raises(ValueError, match="sentences of") as refused:
        train(one, tmp_path / "out")
    said = str(refused.value)
    assert f"episode 'e9' with {num_tokens:,} tokens; the model reads 512." in said
    assert ("1 of 2 sentences" if data == "validation" else "1 of 7 sentences") in said
    assert "prompt.max_screens" in said
    assert "data.skip_too_long=true" in said
    assert "\n" not in said
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("cached", [False, True])
def test_skipped_sentences_are_as_if_they_were_not_there(root: Path, tmp_path: Path, cached: bool) -> None:
    """The same adapters as of data without them."""
    outs = [
        train(run(root, data, "data.skip_too_long=true", cache_vision_features=cached), tmp_path / data)
        for data in ("fine", "long")
    ]
    weights = [(out / "adapter_model.safetensors").read_bytes() for out in outs]
    assert weights[0] == weights[1]
    cards = [json.loads((out / "card.json").read_text())["data"][0] for out in outs]
    assert [card["windows"] for card in cards] == [6, 6]
    assert [card["windows_too_long"] for card in cards] == [0, 1]


def test_validation_skips_them_too(root: Path, tmp_path: Path) -> None:
    out = train(run(root, "validation", "data.skip_too_long=true", "data.eval_episodes=2"), tmp_path / "out")
    assert "eval_partial_match" in (out / "log.jsonl").read_text()


def test_nothing_is_left(root: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "data", [wordy(0), wordy(1)])
    one = replace(run(root, "fine", "data.skip_too_long=true"))
    one = replace(one, data=replace(one.data, path=str(tmp_path / "data")))
    with pytest.raises(ValueError, match=r"2 of 2 sentences .*no sentence is left"):
        train(one, tmp_path / "out")


def test_a_sentence_longer_than_the_packed_tokens(root: Path, tmp_path: Path) -> None:
    one = run(root, "fine", max_packed_tokens=60, per_device_batch_size=1)
    longest = max(tokens_of(each, one) for each in usual())
    with pytest.raises(ValueError, match=rf"max_packed_tokens is 60\. Raise it to {longest}, or skip"):
        train(one, tmp_path / "out")
    out = train(override(one, ["data.skip_too_long=true"]), tmp_path / "out")
    skipped = sum(tokens_of(each, one) > 60 for each in usual())
    assert json.loads((out / "card.json").read_text())["data"][0]["windows_too_long"] == skipped > 0


def test_estimates_count_all_episodes(root: Path, tmp_path: Path) -> None:
    """Also the long sentence of the last of 300."""
    data = prepare(tmp_path / "data", [*(episode(seed % 7, 1) for seed in range(299)), wordy(9)])
    file = tmp_path / "small.py"
    file.write_text(
        "from uivlm.recipe import *\n"
        f"def recipe(): return Recipe('small', LlamaVitArgs({str(root / 'base')!r}), PromptArgs(), "
        f"DataArgs({str(data)!r}), TrainArgs(precision='float32'))\n"
    )
    arguments = ["estimate", str(file), "--data", str(data)]
    with pytest.raises(ValueError, match=r"1 of 300 sentences .*episode 'e9'"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    skip = CliRunner().invoke(app, [*arguments, "--set", "data.skip_too_long=true"], catch_exceptions=False)
    assert skip.exit_code == 0, skip.output
    assert "299 episodes of" in skip.output

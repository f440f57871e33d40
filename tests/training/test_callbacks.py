"""What is told of a run while it runs, and what ends it early: judgements, signals, curves, TensorBoard."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.tiny_models import base, episode, prepare, recipe, with_settings
from tests.helpers.training_runs import dataset
from uivlm.actions.action import InvalidAction
from uivlm.actions.matching import matches
from uivlm.actions.text import ACTION_TYPES, action_type
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.episode import boxes_of
from uivlm.models.build import build, prompt_format
from uivlm.recipe import DataArgs, Recipe, RecipeError
from uivlm.training.curves import write_curves
from uivlm.training.train import train
from uivlm.training.validation import make_eval_loader, validate

ADAPTERS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("watching")
    base(made / "base")
    episodes = [episode(seed, num_steps) for seed, num_steps in enumerate((1, 6, 2, 3, 5, 1, 2, 4))]
    prepare(made / "data", episodes, validation=3)
    return made


def small(root: Path, validation: int = 0, **part: Any) -> Recipe:
    made = recipe(root / "base", root / "data")
    data = DataArgs(str(root / "data"), eval_episodes=validation)
    return with_settings(replace(made, data=data), **part)


def lines(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


# -- judgements -----------------------------------------------------------------------------------------


@torch.inference_mode()
def test_a_judgement_is_that_of_each_action_by_hand(root: Path) -> None:
    """Against the full logits of each sentence: their likeliest tokens as words, parsed, matched."""
    one = small(root)
    built, spoken = build(one), prompt_format(one)
    episodes = [episode(seed, 6) for seed in range(3)]
    rows = dataset(episodes, spoken, built.processor)
    found = validate(built.model, make_eval_loader(rows, 1, 0, 0, 1), lambda sums: sums)
    right: dict[str, list[bool]] = {}
    nats = []
    for each in episodes:
        for window in spoken.windows(each):
            example = encode(spoken.sentence(window), built.processor)
            logits = built.model(
                torch.tensor(example.input_ids)[None], torch.tensor(np.stack(example.pixels))
            ).logits[0]
            chances, said = logits.log_softmax(-1), []
            steps = list(window.steps[window.first_trained :])
            for i in np.flatnonzero(example.labels != IGNORE):
                nats.append(-float(chances[i - 1, example.labels[i]]))
                said.append(int(logits[i - 1].argmax()))
                if example.labels[i] == built.processor.eos_id:
                    step, words = steps.pop(0), built.processor.decode(said[:-1])
                    guess = spoken.action_text.parse(words)
                    fine = said[-1] == built.processor.eos_id and not isinstance(guess, InvalidAction)
                    verdict = fine and matches(guess, step.action, boxes_of(step.screen))
                    right.setdefault(action_type(step.action), []).append(verdict)
                    said = []
            assert not steps
    assert found["eval_loss"] == pytest.approx(np.mean(nats), rel=1e-4)
    for name in ACTION_TYPES:
        figure = found.get(f"eval_partial_match_{name.replace(' ', '_')}")
        assert figure == (pytest.approx(np.mean(right[name])) if name in right else None)


@pytest.mark.slow
def test_what_was_learned_by_heart_is_judged_right(root: Path, tmp_path: Path) -> None:
    one = small(root, epochs=150.0)
    one = replace(one, data=replace(one.data, max_episodes=2))
    train(one, tmp_path / "out")
    from uivlm.models import adapters

    built, module = adapters.load(one, tmp_path / "out")
    learned = PreparedData.open(root / "data").episodes("train", max_episodes=2)
    rows = dataset(learned, prompt_format(one), built.processor)
    found = validate(module, make_eval_loader(rows, 1, 0, 0, 1), lambda sums: sums)
    assert found["eval_partial_match"] == 1
    assert found["eval_loss"] < 1  # of about seven before


@pytest.mark.slow
def test_the_best_state_becomes_the_checkpoint(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged best at the third of ten judgements: a run that is stopped there has the same adapters."""
    told = iter([0.2, 0.3, 0.9, 0.5, 0.9, 0.4, 0.3, 0.2, 0.1, 0.0])
    monkeypatch.setattr(
        "uivlm.training.trainer.validate", lambda *_: {"eval_partial_match": next(told), "eval_loss": 1.0}
    )
    seen: dict[int, dict[str, torch.Tensor]] = {}

    def kept(self: Any, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        seen[state.global_step] = {name: value.detach().clone() for name, value in trained.items()}

    monkeypatch.setattr("uivlm.training.callbacks.ProgressLogger.on_evaluate", kept, raising=False)
    out = train(small(root, validation=3, epochs=10.0, per_device_batch_size=5), tmp_path / "out")
    (third,) = [step for i, step in enumerate(sorted(seen)) if i == 2]
    for name, value in load_file(out / ADAPTERS).items():
        assert torch.equal(value, seen[third][name.replace(".weight", ".default.weight")]), name
    projected = load_file(out / "projector.safetensors")
    for name, value in projected.items():
        assert any(torch.equal(value, other) for other in seen[third].values()), name
    assert [line["eval_partial_match"] for line in lines(out) if "eval_partial_match" in line][:3] == [
        0.2,
        0.3,
        0.9,
    ]


@pytest.mark.slow
def test_a_run_without_progress_ends_early(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([0.2, 0.3, 0.3, 0.1, 0.9])
    monkeypatch.setattr(
        "uivlm.training.trainer.validate", lambda *_: {"eval_partial_match": next(told), "eval_loss": 1.0}
    )
    one = small(root, validation=3, epochs=10.0, per_device_batch_size=5)
    out = train(replace(one, data=replace(one.data, early_stopping_patience=2)), tmp_path / "out")
    assert [line["eval_partial_match"] for line in lines(out) if "eval_partial_match" in line] == [
        0.2,
        0.3,
        0.3,
        0.1,
    ]
    assert not list(tmp_path.glob("*.state"))


def test_validation_needs_episodes(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "data"
    prepare(bare, [episode(0, 2)])
    one = replace(small(root), data=DataArgs(str(bare), eval_episodes=2))
    with pytest.raises(
        ValueError, match="data.eval_episodes: got 2, but the split 'validation' of .* is empty"
    ):
        train(one, tmp_path / "out")
    with pytest.raises(RecipeError, match="data.early_stopping_patience is 2, but there is no validation"):
        DataArgs(str(bare), early_stopping_patience=2)
    assert not list(tmp_path.glob("out*"))


# -- signals --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_step_and_keeps_a_whole_state(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    one = small(root, epochs=3.0)
    train(one, tmp_path / "whole")
    before = signal.getsignal(number)

    def signalled(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 4:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_begin", signalled, raising=False)
        with pytest.raises(InterruptedError, match="stopped after step 5 of 12. .* --resume"):
            train(one, tmp_path / "cut")
    assert signal.getsignal(number) == before
    assert (tmp_path / "cut.state" / "checkpoint-5" / "complete.json").is_file()
    assert not (tmp_path / "cut").exists()
    train(one, tmp_path / "cut", resume=True)
    one_by_one = [load_file(tmp_path / name / ADAPTERS) for name in ("whole", "cut")]
    assert all(torch.equal(value, one_by_one[1][name]) for name, value in one_by_one[0].items())
    assert [line["step"] for line in lines(tmp_path / "cut")] == list(range(1, 13))


# -- what is left to look at ----------------------------------------------------------------------------


def test_curves_are_drawn(tmp_path: Path) -> None:
    log = "".join(
        json.dumps(
            {
                "step": i,
                "loss": 5 / i,
                "loss_tap": 3 / i,
                "loss_<b>": float("nan"),
                "data_loading_fraction": 0.0,
            }
        )
        + "\n"
        for i in range(1, 41)
    )
    log += json.dumps({"step": 40, "eval_partial_match": 0.5}) + "\n"
    write_curves(log, tmp_path / "curves.html", "<script>")
    page = (tmp_path / "curves.html").read_text()
    assert page.count("<figure>") == 4
    assert "<script>" not in page
    assert "nan" not in page
    first = page.partition('<polyline points="')[2].partition('"')[0].split()
    assert len(first) == 40
    heights = [float(point.partition(",")[2]) for point in first]
    assert heights == sorted(heights), "a falling loss goes down"


def test_an_empty_log_is_an_empty_page(tmp_path: Path) -> None:
    write_curves("", tmp_path / "curves.html", "base")
    assert "<figure>" not in (tmp_path / "curves.html").read_text()


def test_tensorboard_reads_the_log(root: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    out = train(small(root, epochs=1.0, report_to=("tensorboard",)), tmp_path / "runs" / "out")
    events = accumulator.EventAccumulator(str(out.parent / "tensorboard" / "out"))
    events.Reload()
    told = [event.value for event in events.Scalars("train/loss")]
    assert told == pytest.approx([line["loss"] for line in lines(out)], rel=1e-5)
    assert "train/loss_macro" in events.Tags()["scalars"]

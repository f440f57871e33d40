"""Traces become training data and are scored."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from uivlm.actions.action import Action
from uivlm.actions.decision import Decision
from uivlm.actions.schema import action_from_json, action_to_json
from uivlm.actions.text import ActionText
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.sentence import PromptFormat, TextPiece
from uivlm.rollout.trace_writer import TraceWriter


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Demonstrations on the simulated phone, two failed runs among them, and the data prepared from them."""
    from data_prep.__main__ import app

    root = tmp_path_factory.mktemp("shown")
    for seed in range(6):
        episode = record_demonstration(make_task(seed, "train"))
        good = seed < 4
        trace = TraceWriter(root / "traces" / f"{seed:04d}", episode.goal, actor="human" if good else "agent")
        for t, step in enumerate(episode.steps if good else episode.steps[:1]):
            trace.on_screen(t, step.screen, 1.0)
            trace.on_decision(t, Decision(step.action, ""), 2.0)
            trace.on_action(t, None, 3.0)
        trace.on_end(episode.steps[-1].action.status if good else ("max_steps", "stopped")[seed % 2], "")
    args = [
        str(root / "traces"),
        str(root / "data"),
        "--format",
        "trace",
        "--image-format",
        "png",
        "--workers",
        "1",
    ]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return root / "traces", root / "data"


def test_demonstrations_are_training_data(shown: tuple[Path, Path]) -> None:
    """Sentences whose trained words are exactly the actions; nothing of the runs that ended badly."""
    data = PreparedData.open(shown[1])
    prepared = {e.goal: e for split in data.meta["splits"] for e in data.episodes(split)}
    episodes = [record_demonstration(make_task(seed, "train")) for seed in range(4)]
    assert sorted(prepared) == sorted(episode.goal for episode in episodes)
    for episode in episodes:
        found = prepared[episode.goal]
        assert [step.action for step in found.steps] == [rounded(step.action) for step in episode.steps]
        pieces = [
            piece for window in PromptFormat().windows(found) for piece in PromptFormat().sentence(window)
        ]
        trained = [piece.text for piece in pieces if isinstance(piece, TextPiece) and piece.trained]
        assert trained == [ActionText().format(step.action) for step in episode.steps]
        for step, gold in zip(found.steps, episode.steps, strict=True):
            assert np.array_equal(step.screen.pixels, gold.screen.pixels)


def rounded(action: Action) -> Action:
    """Prepared data keeps float32."""
    return action_from_json(
        json.loads(json.dumps(action_to_json(action)), parse_float=lambda digits: float(np.float32(digits)))
    )


def test_prepared_traces_are_scored(shown: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys) -> None:
    """`uivlm eval` on them: one verdict a step."""
    pytest.importorskip("torch", reason="a checkpoint needs the extra `model`")
    from tests.helpers import tiny_models
    from uivlm.cli import main
    from uivlm.training.checkpoint import save_base_checkpoint

    checkpoint = save_base_checkpoint(
        tiny_models.recipe(tiny_models.base(tmp_path / "base"), shown[1]), tmp_path / "ckpt"
    )
    splits = PreparedData.open(shown[1]).meta["splits"]
    split = max(splits, key=splits.__getitem__)
    out = tmp_path / "scores"
    args = [
        "eval",
        str(checkpoint),
        str(shown[1]),
        "--split",
        split,
        "--max-episodes",
        "1",
        "--out",
        str(out),
    ]
    monkeypatch.setattr(sys, "argv", ["uivlm", *args])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code, capsys.readouterr().err
    _, *verdicts = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    assert len(verdicts) == len(PreparedData.open(shown[1]).episodes(split).subsample(1)[0].steps)
    assert {verdict["subset"] for verdict in verdicts} == {"trace"}

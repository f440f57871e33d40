"""The pre-training of the tiny base: a run ends in a base that loads, also after an interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE, LlamaVit
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.tiny_base import init, pretrain


def test_attention_begins_with_a_look_for_the_same_word_elsewhere(reader: BridgeProcessor) -> None:
    torch.manual_seed(0)
    model = LlamaVit(reader.config)
    init.init_matching_attention(model)
    model.language.set_attn_implementation("eager")
    words = reader.encode(" Clock")[0]
    ids = torch.randint(300, 2000, (1, 60))
    ids[0, [5, 55]] = words
    with torch.no_grad():
        seen = model.language.model(ids, output_attentions=True).attentions[0][0, :, 55].mean(0)  # over heads
    assert int(seen.argmax()) == 5
    assert seen[5] > 2 * seen[55]  # itself


PLAN = pretrain.PretrainPlan(
    reading=2,
    drilling=2,
    grounding=2,
    relating=(2, 2),
    settling=2,
    screens_per_step=8,
    screens_per_turn=90,
    tokens_per_step=600,
)


@pytest.mark.slow
def test_the_stages_run_to_the_end_and_the_base_loads(tmp_path: Path) -> None:
    told: list[str] = []
    pretrain.make_base(tmp_path / "base", PLAN, told.append)
    assert [line.split()[0] for line in told] == [
        "reading",
        "drilling",
        "grounding",
        "relating-0",
        "relating-1",
        "settling",
    ]
    module, _ = load_base(tmp_path / "base")
    assert sum(value.numel() for value in module.parameters()) == 4_931_520  # what the card says
    with pytest.raises(ValueError, match="exists"):
        pretrain.make_base(tmp_path / "base", PLAN, told.append)
    assert [folder.name for folder in tmp_path.iterdir()] == ["base"]


@pytest.mark.slow
def test_a_stopped_pre_training_goes_on_to_the_same_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain.make_base(tmp_path / "whole", PLAN, lambda line: None)
    train = pretrain._train
    with monkeypatch.context() as patched:

        def stopped(stage: pretrain.Stage, *rest: Any) -> None:
            if stage.name == "relating-1":
                raise KeyboardInterrupt
            train(stage, *rest)

        patched.setattr(pretrain, "_train", stopped)
        with pytest.raises(KeyboardInterrupt):
            pretrain.make_base(tmp_path / "again", PLAN, lambda line: None)
    assert not (tmp_path / "again").exists()
    with pytest.raises(ValueError, match="another plan"):
        pretrain.make_base(tmp_path / "again", replace(PLAN, seed=1), lambda line: None)
    told: list[str] = []
    pretrain.make_base(tmp_path / "again", PLAN, told.append)
    assert told[0] == "finished earlier: reading, drilling, grounding, relating-0"
    whole, again = (tmp_path / name / "model.safetensors" for name in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()


def test_the_shipped_base_is_small_enough() -> None:
    assert (TINY_BASE / "model.safetensors").stat().st_size <= 10_000_000

"""Train in bfloat16 under ZeRO, and keep what the checkpoint must equal.

tests/training/test_zero_bfloat16.py runs this program in two processes, and in one. Arguments: a recipe file,
the checkpoint, and settings. Rank 0 writes `expected.pt` next to the checkpoint:

- "masters": the trained weights in float32, by DeepSpeed's own converter from a checkpoint of its engine
- "summed", "accumulated": of the last optimizer step and of each trained parameter, the gradients of this
  process's backward passes, summed in float64, and the gradient that ZeRO has accumulated
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from deepspeed.utils import safe_get_full_grad
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import Tensor
from transformers import TrainerCallback

from uivlm.recipe import load, override
from uivlm.training import train as run
from uivlm.training.trainer import SentenceTrainer, make_trainer


class Recorder(TrainerCallback):
    def __init__(self, trainer: SentenceTrainer, folder: Path) -> None:
        self.trainer, self.folder = trainer, folder
        self.sums: dict[str, Tensor] = {}
        self.expected: dict[str, dict[str, Tensor]] = {}
        self.trained = {
            name: value for name, value in trainer.model.named_parameters() if value.requires_grad
        }
        for name, parameter in self.trained.items():
            parameter.register_hook(partial(self.add, name))

    def add(self, name: str, gradient: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0) + gradient.double()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        engine: Any = self.trainer.model_wrapped
        step = engine.step

        def recorded_step() -> None:
            self.expected["summed"], self.sums = self.sums, {}
            self.expected["accumulated"] = {
                name: safe_get_full_grad(parameter) for name, parameter in self.trained.items()
            }
            step()

        engine.step = recorded_step

    def on_train_end(self, *_: Any, **__: Any) -> None:
        engine: Any = self.trainer.model_wrapped
        engine.save_checkpoint(str(self.folder / "engine"), exclude_frozen_parameters=True)

    def write(self, stage: int) -> None:
        if stage == 2:  # of stage 1 with float32 sums, the converter reads no checkpoint
            self.expected["masters"] = get_fp32_state_dict_from_zero_checkpoint(
                str(self.folder / "engine"), exclude_frozen_parameters=True
            )
        torch.save(self.expected, self.folder / "expected.pt")


def main(recipe: str, out: str, *settings: str) -> None:
    recorders: list[Recorder] = []

    def recorded_trainer(*given: Any) -> SentenceTrainer:
        trainer = make_trainer(*given)
        recorders.append(Recorder(trainer, Path(out).parent))
        trainer.add_callback(recorders[0])
        return trainer

    run.make_trainer = recorded_trainer
    changed = override(load(recipe), list(settings))
    run.train(changed, out)
    if os.environ["RANK"] == "0":
        recorders[0].write(changed.distributed.zero_stage)
    run.exit_distributed()


if __name__ == "__main__":
    main(*sys.argv[1:])

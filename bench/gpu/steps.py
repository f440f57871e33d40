"""Steps of a real training run on episodes in memory: our Trainer, loader, loss and optimizer.

In: a recipe, its model, episodes. Out: the seconds and the metrics of each step.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from part import Part
from shared.episodes import phone_episode
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from uivlm.episodes.episode import Episode
from uivlm.episodes.window_index import WindowIndex, index_windows
from uivlm.models.build import prompt_format
from uivlm.models.cost import CUDA_RUNTIME_BYTES, SCREEN_SIZE, ModelShape, prepare_and_measure
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import Recipe
from uivlm.training.dataset import BatchDataset, DamageLog, WindowDataset
from uivlm.training.metrics import peak_memory_bytes
from uivlm.training.mixture import MixtureSampler
from uivlm.training.trainer import make_trainer

EPISODE_LENGTHS = (2, 4, 6, 8, 10, 12, 14)  # steps; their mean is about that of AITW's episodes
NUM_EPISODES = 16 * len(EPISODE_LENGTHS)
SMALL_LENGTHS, SMALL_SCREEN_SIZE = (1, 2, 3), (96, 64)


@dataclass
class StepRecorder(TrainerCallback):
    """Ends the run after `num_steps`."""

    num_steps: int
    steps: list[dict[str, float]] = field(default_factory=list)  # "seconds", and what the log has
    last: float = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if torch.cuda.is_available():  # the model is built, which takes more memory than a step
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self.last = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        control.should_training_stop = state.global_step >= self.num_steps

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if logs and "loss" in logs:  # read from the GPU: the step is finished
            now = time.perf_counter()
            self.steps.append({**logs, "seconds": now - self.last})
            self.last = now


@dataclass(frozen=True, slots=True)
class StepMeasurements:
    steps: list[dict[str, float]]
    peak_flops: float  # operations per second of a matrix product, measured
    peak_bytes: float  # with what CUDA itself takes
    shape: ModelShape
    index: WindowIndex


def make_episodes(part: Part) -> list[Episode]:
    """Episodes of several lengths that share their screens."""
    lengths = SMALL_LENGTHS if part.small else EPISODE_LENGTHS
    longest = phone_episode(max(lengths), SMALL_SCREEN_SIZE if part.small else SCREEN_SIZE)
    number = 8 * len(lengths) if part.small else NUM_EPISODES
    return [
        Episode(f"random {i}", longest.goal, longest.subset, longest.steps[: lengths[i % len(lengths)]])
        for i in range(number)
    ]


def run_steps(
    recipe: Recipe, loaded: LoadedModel, episodes: Sequence[Episode], num_steps: int
) -> StepMeasurements:
    """Train `num_steps` optimizer steps. Adds adapters to the model."""
    spoken = prompt_format(recipe)
    index = index_windows(episodes, spoken, loaded.processor)
    model, shape = prepare_and_measure(loaded, recipe.train.seed)
    recorder = StepRecorder(num_steps)
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder)
        rows = WindowDataset(episodes, index, spoken, loaded.processor)
        dataset = BatchDataset(rows, DamageLog.open(state_dir, len(episodes)))
        mixture = MixtureSampler((len(index),), (1.0,))
        trainer = make_trainer(recipe, loaded, model, shape, dataset, mixture, None, state_dir)
        trainer.add_callback(recorder)
        trainer.train()
    if len(recorder.steps) < num_steps:
        raise RuntimeError(f"{len(recorder.steps)} steps were run; expected {num_steps}")
    cuda = CUDA_RUNTIME_BYTES if torch.cuda.is_available() else 0.0
    peak_bytes = peak_memory_bytes() + cuda
    return StepMeasurements(recorder.steps, trainer.meter.peak_flops, peak_bytes, shape, index)

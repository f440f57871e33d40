"""The time of each action of an episode, decided on the recorded past."""

import time
from collections.abc import Iterable
from dataclasses import replace

import torch

from uivlm.episodes.episode import Episode
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.build import build, prompt_format
from uivlm.recipe import Recipe


def random_checkpoint(recipe: Recipe, device: str) -> LoadedCheckpoint:
    """The recipe's model with random weights."""
    torch.manual_seed(0)
    built = build(recipe, device)
    module = built.model.requires_grad_(False)
    return LoadedCheckpoint(
        module,
        built.processor,
        prompt_format(recipe),
        recipe,
        recipe.name,
        built.supports_prefix_cache,
        built.supports_static_decoding,
    )


def without_capture(checkpoint: LoadedCheckpoint) -> LoadedCheckpoint:
    """The same model, each of whose forward passes Python sees: a captured one calls no hook."""
    return replace(checkpoint, supports_static_decoding=False)


def time_actions(engine: TorchEngine, episode: Episode, steps: Iterable[int]) -> dict[int, float]:
    """Milliseconds of the action at each step, from 0."""
    latencies = {}
    for t in steps:
        history = episode.history(t)
        began = time.perf_counter()
        engine.predict(history)
        latencies[t] = 1000 * (time.perf_counter() - began)
    return latencies

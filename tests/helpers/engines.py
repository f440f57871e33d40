"""Checkpoints with random adapters, engines over scripted models, and histories to decide on."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import (
    base,
    config,
    episode,
    prepare,
    qwen_base,
    qwen_recipe,
    recipe,
    screen,
    tokenizer,
)
from uivlm.actions.action import InvalidAction, Press
from uivlm.actions.decision import Decision
from uivlm.episodes.episode import Episode, History, Step
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models.adapters import attach_adapters
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.build import build
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import LoraArgs, QwenHFArgs, Recipe
from uivlm.training import checkpoint

FIRST = tokenizer().get_vocab_size()
LIMIT = 8  # tokens: a random model seldom ends by itself


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of random adapters, and the model that it was made of."""

    folder: Path
    recipe: Recipe
    built: LoadedModel
    model: Any


def changed_past(of: Episode, t: int, at: int) -> History:
    """The history of step t, but with another screen and another action at an earlier step."""
    history = of.history(t)
    steps = list(history.steps)
    steps[at] = Step(screen(9999), Press("home"))
    return History(history.goal, tuple(steps), history.screen)


def conversations() -> list[History]:
    """A conversation over jumps of the window, one between its steps, changed pasts, repeats, steps back."""
    one, other = episode(1, 11), episode(2, 11, goal="goal 1")  # goals alike: a shared beginning
    mixed = [of.history(t) for t in range(11) for of in (one, other)]
    changed = [changed_past(one, t, at) for t, at in ((3, 2), (3, 0), (9, 8), (9, 1), (10, 7))]
    back = [one.history(t) for t in (10, 10, 9, 2, 0, 3)]
    return [*(one.history(t) for t in range(11)), *mixed, *changed, *back]


def of_kind(kind: str, root: Path) -> LoadedCheckpoint:
    """An untuned checkpoint."""
    if kind == "qwen_vl":
        wanted = qwen_recipe(qwen_base(root / "base"), root)
    else:
        part = QwenHFArgs(
            str(write(root / "base", kind)),
            max_visual_tokens=40,
            max_visual_tokens_by_age=(20, 9),
            lora=LoraArgs(2, 4, 0.0),
        )
        wanted = replace(recipe(root / "base", root), model=part)
    return load_checkpoint(checkpoint.save_base_checkpoint(wanted, root / "ckpt"))


class Scripted(nn.Module):
    """Says given tokens, each with the probability `chance`; then repeats the last."""

    def __init__(self, tokens: list[int], chance: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.tokens, self.chance, self.said = tokens, chance, 0

    def get_image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pixels), 4, 24)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        vocabulary = FIRST + 4
        chances = torch.full((1, 1, vocabulary), (1 - self.chance) / (vocabulary - 1))
        chances[..., self.tokens[min(self.said, len(self.tokens) - 1)]] = self.chance
        self.said += 1
        return SimpleNamespace(logits=chances.log())


class Wishing(nn.Module):
    """Wishes for one token more than for another, whatever was said: the later in the list the more."""

    def __init__(self, wishes: list[int], vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.logits = torch.zeros(vocabulary)
        self.logits[wishes] = torch.arange(1.0, len(wishes) + 1)
        self.read: list[int] = []

    def get_image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pixels), 4, 24)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        self.read.append(input_ids.shape[1])
        return SimpleNamespace(logits=self.logits.expand(len(input_ids), 1, -1))


def decide(loaded: LoadedCheckpoint, tokens: list[int], limit: int = 32) -> Decision:
    processor = BridgeProcessor(tokenizer(), config())
    scripted = LoadedCheckpoint(
        Scripted(tokens, 0.9), processor, loaded.prompt_format, loaded.recipe, "scripted"
    )
    return TorchEngine(scripted, limit).predict(episode(0, 3).history(2))


def wished(loaded: LoadedCheckpoint, *wishes: str, limit: int = 40) -> tuple[str, Wishing]:
    """What a bound model says whose wishes are the tokens of these texts."""
    processor = BridgeProcessor(tokenizer(), config())
    tokens = [token for text in wishes for token in processor.encode(text)]
    module = Wishing(tokens, FIRST + 4)
    checkpoint = LoadedCheckpoint(module, processor, loaded.prompt_format, loaded.recipe, "wishing")
    decision = TorchEngine(checkpoint, limit, constrained=True).predict(episode(0, 3).history(0))
    assert not isinstance(decision.action, InvalidAction)
    assert loaded.prompt_format.action_text.format(decision.action) == decision.text
    return decision.text, module


def save_random_adapters(root: Path) -> Saved:
    random_recipe = recipe(base(root / "base"), prepare(root / "data", [episode(0, 2)]))
    loaded = build(random_recipe)
    model = attach_adapters(loaded, 0)
    torch.manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.05 * torch.randn_like(value)
    checkpoint.save(root / "ckpt", model.eval(), loaded, random_recipe, [], 0.0, "")
    return Saved(root / "ckpt", random_recipe, loaded, model)


def next_logits(engine: TorchEngine, history: History) -> torch.Tensor:
    """Logits [V] of the first new token."""
    with engine.lock, torch.inference_mode():
        decoder, logits = engine._prefill([engine._build_prompt(history)])
        engine._store_prefixes(decoder)
        return logits[0]


def same_action(decision: Decision, other: Decision) -> bool:
    """The same text and action, and nearly the same confidence."""
    assert decision.confidence == pytest.approx(other.confidence, abs=1e-4)
    return (decision.text, decision.action) == (other.text, other.action)

"""Time of one action against the length of the history: with the prefix kept and without, bound to the grammar and free.

The tiny base, greedy answers, simulated screens; and a random model whose screens are of as many tokens as those of published models.
All figures come from the same run, in turns; the ratios are what counts.
"""

import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import of_length

from uivlm.episode import Episode
from uivlm.inference.load import Loaded, load
from uivlm.inference.predict import Predictor
from uivlm.lessons.words import vocabulary
from uivlm.models.bridge_folder import save_base
from uivlm.models.llama_vit import BridgeConfig, LlamaVit
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import base_checkpoint
from uivlm.training.untrained import config, tokenizer

EPISODES = 12
LONGEST = 8  # steps of a recorded episode; longer pasts are two of them
PASTS = (0, 1, 4, 7, 15)  # screens before
WIDE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4}  # of Llama
WIDE |= {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192}
SEEING = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}  # of ViT
SEEING |= {"num_attention_heads": 6, "image_size": (448, 224), "patch_size": (14, 14)}
GRID, SHORT, FEW = (16, 16), 8, 3  # visual tokens a screen; most tokens of its answers; episodes
WAYS = {
    "prefix kept, bound": {"reuse": True, "bound": True},
    "prefix kept, free": {"reuse": True, "bound": False},
    "computed anew, bound": {"reuse": False, "bound": True},
    "computed anew, free": {"reuse": False, "bound": False},
}


def main() -> None:
    pairs = _pairs()
    with tempfile.TemporaryDirectory() as folder:
        base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
        loaded = load(Path(folder) / "base")
        began = time.perf_counter()
        Predictor(loaded, bound=True).predict(pairs[0].history(0))
        first = 1000 * (time.perf_counter() - began)
        timed = {name: _timed(Predictor(loaded, **way), pairs) for name, way in WAYS.items()}
        wide, bound = _wide(Path(folder)), [name for name, way in WAYS.items() if way["bound"]]
    apart = {name: _timed(Predictor(wide, SHORT, **WAYS[name]), pairs[:FEW]) for name in bound}
    console = Console(width=120)
    console.print(_table(f"the tiny base, {EPISODES} episodes", timed))
    console.print(
        _table(
            f"{GRID[0] * GRID[1]} tokens a screen, {FEW} episodes, at most {SHORT} tokens an answer", apart
        )
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    console.print(f"the first action of a new process: {first:.0f} ms; most memory: {memory:.0f} MB")


def _pairs() -> list[Episode]:
    """Two episodes after each other: a long past."""
    episodes = of_length("test", LONGEST, 2 * EPISODES)
    return [
        replace(one, steps=one.steps + two.steps)
        for one, two in zip(episodes[::2], episodes[1::2], strict=True)
    ]


def _wide(folder: Path) -> Loaded:
    """Some sixty million random weights."""
    words = tokenizer(vocabulary())
    told = config(words)
    text, vision = told.text_config.to_dict(), told.vision_config.to_dict()
    text |= WIDE
    vision |= SEEING
    torch.manual_seed(0)
    save_base(folder / "wide", LlamaVit(BridgeConfig(text, vision, "grid", GRID, told.picture_id)), words)
    recipe = load_recipe("tiny")
    recipe = replace(
        recipe,
        model=replace(recipe.model, base=str(folder / "wide")),
        grammar=replace(recipe.grammar, screens=2 * LONGEST, before=2 * LONGEST - 1),
    )
    base_checkpoint(recipe, folder / "wide checkpoint")
    return load(folder / "wide checkpoint")


def _table(what: str, timed: dict[str, dict[int, list[float]]]) -> Table:
    table = Table(title=f"{what}: ms an action, median (95 %), {torch.get_num_threads()} threads")
    for head in ("screens before", *timed, "anew / kept, bound"):
        table.add_column(head, justify="right")
    kept, anew = (timed[f"{name}, bound"] for name in ("prefix kept", "computed anew"))
    for t in PASTS:
        cells = [f"{statistics.median(by[t]):.1f} ({_high(by[t]):.1f})" for by in timed.values()]
        table.add_row(str(t), *cells, f"{statistics.median(anew[t]) / statistics.median(kept[t]):.2f}")
    return table


def _high(took: list[float]) -> float:
    return statistics.quantiles(took, n=20, method="inclusive")[-1]


def _timed(predictor: Predictor, episodes: list[Episode]) -> dict[int, list[float]]:
    """ms of the action at each step, on the recorded past; where nothing is kept, only of the steps that are told."""
    steps = range(2 * LONGEST) if predictor.kept.size else PASTS
    took: dict[int, list[float]] = {t: [] for t in steps}
    for episode in episodes:
        for t in took:
            history = episode.history(t)
            began = time.perf_counter()
            predictor.predict(history)
            took[t].append(1000 * (time.perf_counter() - began))
    return took


if __name__ == "__main__":
    main()

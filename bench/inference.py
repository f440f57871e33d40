"""Time of one action against the length of the history: with the prefix kept and without, bound to the grammar and free.

    python bench/inference.py                                the tiny base, and a flat Qwen-VL
    python bench/inference.py RECIPE [PART.FIELD=VALUE ...]  a recipe's model at full size, on a GPU if there is one

Greedy answers on simulated screens. The flat Qwen-VL has the published numbers of pixels, patches and tokens a screen, but one
layer that sees and one that speaks, half as wide, and the beginning of the vocabulary: the narrower a layer, the dearer
attention to the past looks beside its products. Its weights and a recipe's are random: only configuration and tokenizer are
read. All figures come from one run, in turns; what counts are ratios, to each other and to a floor (bench/shared/roofline.py).
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from shared.episodes import of_length
from shared.roofline import device_of, floors, weights_of

from uivlm.episode import Episode
from uivlm.inference.load import Loaded, load
from uivlm.inference.predict import Predictor
from uivlm.models.model import build, grammar
from uivlm.models.qwen_vl.config import FULL_SIZE, QwenVLConfig, to_original
from uivlm.recipe import Recipe, override
from uivlm.recipe import load as load_recipe
from uivlm.training.checkpoint import base_checkpoint

EPISODES = 12
LONGEST = 8  # steps of a recorded episode; longer pasts are two of them
PASTS = (0, 1, 4, 7, 15)  # screens before
LONG = [f"grammar.screens={2 * LONGEST}", f"grammar.before={2 * LONGEST - 1}"]
FLAT = {"num_hidden_layers": 1, "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 11008}
SEEING = {"layers": 1, "width": 832, "heads": 8, "output_dim": 2048}
RANKS = 4096  # of the vocabulary
SHORT, FEW = 8, 4  # most tokens of an answer at random; episodes
KEPT, ANEW = "prefix kept, bound", "computed anew, bound"
WAYS = {
    KEPT: {"reuse": True, "bound": True},
    "prefix kept, free": {"reuse": True, "bound": False},
    ANEW: {"reuse": False, "bound": True},
    "computed anew, free": {"reuse": False, "bound": False},
}


Times = dict[int, list[float]]  # ms by the number of screens before


def main(recipe: str | None, settings: Sequence[str]) -> None:
    console, episodes = Console(width=120), _pairs()
    with tempfile.TemporaryDirectory() as folder:
        if recipe is not None:
            wanted = override(load_recipe(recipe), [*LONG, *settings])
            loaded = _at_random(wanted, "cuda" if torch.cuda.is_available() else "cpu")
            _measure(recipe, loaded, episodes[:FEW], SHORT, console)
        else:
            base_checkpoint(load_recipe("tiny"), Path(folder) / "base")
            _measure("the tiny base", load(Path(folder) / "base"), episodes, None, console)
            _measure("a flat Qwen-VL", _flat(Path(folder) / "qwen"), episodes[:FEW], SHORT, console)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    held = f", of a GPU {torch.cuda.max_memory_allocated() / 1e6:.0f}" if torch.cuda.is_available() else ""
    console.print(f"most memory: {memory:.0f} MB{held}")


def _pairs() -> list[Episode]:
    """Two episodes after each other: a long past."""
    episodes = of_length("test", LONGEST, 2 * EPISODES)
    return [
        replace(one, steps=one.steps + two.steps)
        for one, two in zip(episodes[::2], episodes[1::2], strict=True)
    ]


def _flat(folder: Path) -> Loaded:
    """Qwen-VL's own folder without weights, a layer of each kind in its configuration."""
    spec = find_spec("qwen_agent")
    if spec is None or spec.origin is None:
        raise SystemExit("bench/inference.py needs Qwen-VL's vocabulary, which `make setup` installs")
    ranks = (Path(spec.origin).parent / "utils" / "qwen.tiktoken").read_bytes().splitlines(keepends=True)
    less = len(ranks) - RANKS  # the ids of control tokens follow
    seeing = FULL_SIZE | SEEING | {"image_start_id": FULL_SIZE["image_start_id"] - less}
    vocabulary = QwenVLConfig().vocab_size - less
    config = QwenVLConfig(vocabulary, **FLAT, seq_length=8192, visual=seeing)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_original(config)), "utf-8")
    (folder / "qwen.tiktoken").write_bytes(b"".join(ranks[:RANKS]))
    told = [f"model.base={folder}", "train.precision=float32", *LONG]
    return _at_random(override(load_recipe("qwenvl"), told), "cpu")


def _at_random(recipe: Recipe, device: str) -> Loaded:
    torch.manual_seed(0)
    built = build(recipe, device)
    module = built.module.requires_grad_(False)
    return Loaded(module, built.reader, grammar(recipe), recipe, recipe.name, built.reuse)


def _measure(what: str, loaded: Loaded, episodes: list[Episode], limit: int | None, console: Console) -> None:
    options = {} if limit is None else {"limit": limit}
    began = time.perf_counter()
    Predictor(loaded, bound=True, **options).predict(episodes[0].history(0))
    first = 1000 * (time.perf_counter() - began)
    predictors = {name: Predictor(loaded, **way, **options) for name, way in WAYS.items()}
    timed: dict[str, Times] = {name: {} for name in WAYS}
    for episode, name in product(episodes, WAYS):
        _act(predictors[name], episode, timed[name])
    device, weights = device_of(loaded.module), weights_of(loaded.module)
    fresh = Predictor(loaded, **WAYS[KEPT], **options)
    least = floors(fresh, episodes[0], range(2 * LONGEST), device, weights)
    console.print(_table(f"{what}, {len(episodes)} episodes", timed, least))
    console.print(
        f"its first action: {first:.0f} ms; MB of weights: {weights.language / 1e6:.0f} of the language model, "
        f"{weights.vision / 1e6:.0f} of the vision encoder; this device reads {device.bytes / 1e9:.1f} GB/s and does "
        f"{device.operations / 1e12:.2f} TFLOP/s"
    )


def _table(what: str, timed: dict[str, Times], least: dict[int, float]) -> Table:
    table = Table(title=f"{what}: ms an action, median (95 %), {torch.get_num_threads()} threads")
    for head in ("screens before", *timed, "anew / kept, bound", "kept, bound / floor"):
        table.add_column(head, justify="right")
    for t in PASTS:
        cells = [f"{statistics.median(by[t]):.1f} ({_high(by[t]):.1f})" for by in timed.values()]
        kept, anew = (statistics.median(timed[name][t]) for name in (KEPT, ANEW))
        table.add_row(str(t), *cells, f"{anew / kept:.2f}", f"{kept / 1000 / least[t]:.1f}")
    return table


def _high(took: list[float]) -> float:
    return statistics.quantiles(took, n=20, method="inclusive")[-1]


def _act(predictor: Predictor, episode: Episode, timed: Times) -> None:
    """The action at each step, on the recorded past; where nothing is kept, only of the steps that are told."""
    for t in range(2 * LONGEST) if predictor.kept.size else PASTS:
        history = episode.history(t)
        began = time.perf_counter()
        predictor.predict(history)
        timed.setdefault(t, []).append(1000 * (time.perf_counter() - began))


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else None, sys.argv[2:])
    except ValueError as error:  # no such recipe or setting, too short a context
        raise SystemExit(f"bench/inference.py: {error}") from None

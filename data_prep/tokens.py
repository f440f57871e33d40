"""How many tokens the sentences of prepared data are for a model: in recipes and a folder, out numbers for the report.

No weights are read: a recipe's configuration and tokenizer decide. Needs the `model` extra.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uivlm.recipe import Recipe, RecipeError, load
from uivlm.sentences.store import Episodes, Prepared


@dataclass(frozen=True, slots=True)
class Counter:
    """A recipe, and its model on the meta device."""

    recipe: Recipe
    built: Any  # models.model.Built, imported only when it is needed


def counters(names: Iterable[str]) -> tuple[Counter, ...]:
    """Made before any data is read, so that a recipe that cannot be is refused at once. ValueError with one sentence."""
    found = []
    for name in names:
        from uivlm.models.model import build

        try:
            recipe = load(name)
        except RecipeError as error:
            raise ValueError(str(error)) from None
        found.append(Counter(recipe, build(recipe, "meta")))
    return tuple(found)


def count(models: Sequence[Counter], folder: Path) -> dict[str, dict[str, float]]:
    """By recipe: over the first episodes of the train split (else of the first split that has some)."""
    if not models:
        return {}
    from uivlm.models.cost import EPISODES

    prepared = Prepared.open(folder)
    split = next(split for split, number in prepared.meta["splits"].items() if number)
    episodes = prepared.episodes(split, limit=EPISODES)
    return {model.recipe.name: _count(model, episodes) for model in models}


def _count(model: Counter, episodes: Episodes) -> dict[str, float]:
    from uivlm.models.cost import lengths, sizes

    told = lengths(sizes(model.recipe, model.built, episodes))
    return {
        "episodes": told.episodes,
        "tokens a screen": round(told.a_screen, 1),
        "tokens a step": round(told.a_step, 1),
        "median": told.median,
        "95 %": told.high,
        "longest": told.longest,
        "longest sentence": told.longest_sentence,
    }

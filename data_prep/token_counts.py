"""The number of tokens per step and episode for the model of a recipe: recipes and a folder in, counts out.

No weights are loaded: a recipe's configuration and tokenizer suffice. Needs the `model` extra.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.recipe import Recipe, RecipeError, load

MAX_EPISODES = 200  # whose tokens are counted


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A recipe, and its model on the meta device."""

    recipe: Recipe
    loaded_model: Any  # uivlm.models.build.LoadedModel, imported on use: it needs torch


def make_token_counters(names: Iterable[str]) -> tuple[TokenCounter, ...]:
    """The counters of some recipes, made before any data is read. Raises ValueError for a bad recipe."""
    counters = []
    for name in names:
        from uivlm.models.build import build

        try:
            recipe = load(name)
        except RecipeError as error:
            raise ValueError(str(error)) from None
        counters.append(TokenCounter(recipe, build(recipe, "meta")))
    return tuple(counters)


def count_tokens(token_counters: Sequence[TokenCounter], folder: Path) -> dict[str, dict[str, float]]:
    """Counts by recipe, over the first episodes of the train split, or of the first split with episodes."""
    if not token_counters:
        return {}
    prepared = PreparedData.open(folder)
    split = next(split for split, num_episodes in prepared.meta["splits"].items() if num_episodes)
    episodes = prepared.episodes(split, max_episodes=MAX_EPISODES)
    return {counter.recipe.name: _count_tokens(counter, episodes) for counter in token_counters}


def _count_tokens(token_counter: TokenCounter, episodes: PreparedEpisodes) -> dict[str, float]:
    from uivlm.episodes.window_index import index_windows
    from uivlm.models.build import prompt_format
    from uivlm.models.cost import sentence_sizes
    from uivlm.models.sentence_lengths import summarize_lengths

    loaded = token_counter.loaded_model
    index = index_windows(episodes, prompt_format(token_counter.recipe), loaded.processor)
    lengths = summarize_lengths(sentence_sizes(index, loaded.model))
    return {
        "num_episodes": lengths.num_episodes,
        "visual_tokens_per_screen": round(lengths.visual_tokens_per_screen, 1),
        "tokens_per_step": round(lengths.tokens_per_step, 1),
        "median": lengths.median,
        "p95": lengths.p95,
        "longest": lengths.longest,
        "longest_sentence": lengths.longest_sentence,
    }

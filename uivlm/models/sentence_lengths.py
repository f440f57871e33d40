"""The lengths of sentences: a summary, and those that are too long, before any weight is loaded.

In: a recipe, its processor, prepared episodes. Out: the windows that the recipe can train.
"""

from dataclasses import dataclass

from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.encode import Processor
from uivlm.episodes.window_index import WindowIndex, open_window_index
from uivlm.models.build import prompt_format
from uivlm.models.cost import SentenceSize
from uivlm.recipe import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class TrainableWindows:
    index: WindowIndex  # of the windows whose sentences fit
    num_too_long: int  # of the other windows


def trainable_windows(
    recipe: Recipe,
    processor: Processor,
    episodes: PreparedEpisodes,
    data_fingerprint: str,
    num_workers: int = 1,
    wait: bool = False,
) -> TrainableWindows:
    """The windows whose sentences fit.

    ValueError if there are others and `data.skip_too_long` is false, or if no window is left. The arguments
    are those of `open_window_index`.
    """
    index = open_window_index(episodes, data_fingerprint, prompt_format(recipe), processor, num_workers, wait)
    budget = recipe.train.max_packed_tokens
    limit = processor.max_length if budget is None else min(processor.max_length, budget)
    fits = index.num_tokens <= limit
    num_too_long = int((~fits).sum())
    if not num_too_long:
        return TrainableWindows(index, 0)
    first = int(fits.argmin())
    episode, num_tokens = episodes.refs[index.episode[first]].id, index.num_tokens[first]
    limited_by, remedy = (
        ("the model reads", "Lower prompt.max_screens (or prompt.max_past_actions)")
        if limit == processor.max_length
        else ("train.max_packed_tokens is", f"Raise it to {index.num_tokens.max()}")
    )
    found = (
        f"{num_too_long:,} of {len(index):,} sentences of {episodes.folder} are too long, the first is of "
        f"episode {episode!r} with {num_tokens:,} tokens; {limited_by} {limit:,}. {remedy}"
    )
    if not recipe.data.skip_too_long:
        raise ValueError(f"{found}, or skip these sentences with data.skip_too_long=true")
    if num_too_long == len(index):
        raise ValueError(f"{found}. With data.skip_too_long=true no sentence is left")
    return TrainableWindows(index.up_to(limit), num_too_long)


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Tokens of episodes and of their sentences."""

    num_episodes: int
    tokens_per_step: float  # mean over sentences; text included
    visual_tokens_per_screen: float  # mean over screens
    median: int  # of an episode
    p95: int  # 95 % of the episodes are not longer
    longest: int
    longest_sentence: int


def summarize_lengths(sizes: list[list[SentenceSize]]) -> LengthSummary:
    """The result of `sentence_sizes` in a few numbers."""
    rows = [row for episode in sizes for row in episode]
    tokens = sorted(sum(row.num_tokens for row in episode) for episode in sizes)
    return LengthSummary(
        num_episodes=len(sizes),
        tokens_per_step=sum(row.num_tokens / row.num_screens for row in rows) / len(rows),
        visual_tokens_per_screen=sum(row.num_visual_tokens for row in rows)
        / sum(row.num_screens for row in rows),
        median=tokens[len(tokens) // 2],
        p95=tokens[int(0.95 * (len(tokens) - 1))],
        longest=tokens[-1],
        longest_sentence=max(row.num_tokens for row in rows),
    )

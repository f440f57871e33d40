"""Which episodes of each subset a limit keeps: those whose ids have the smallest digests.

In: (subset, episode id) of every episode. Out: the indices of at most N of each subset. The order of the data
does not matter, and the N episodes are among those of any larger limit.
"""

import hashlib
from collections.abc import Iterable


def hash_rank(subset: str, episode_id: str) -> bytes:
    """What orders the episodes of a subset: a SHA-256 of its name and the id, 32 bytes."""
    return hashlib.sha256(f"{subset}\0{episode_id}".encode()).digest()


def subsample(episodes: Iterable[tuple[str, str]], max_per_subset: int) -> list[int]:
    """The indices, ascending, of the `max_per_subset` episodes of each subset with the lowest ranks."""
    ranked: dict[str, list[tuple[bytes, int]]] = {}
    for i, (subset, episode_id) in enumerate(episodes):
        ranked.setdefault(subset, []).append((hash_rank(subset, episode_id), i))
    return sorted(i for ranks in ranked.values() for _, i in sorted(ranks)[:max_per_subset])

"""A limit takes episodes of each subset by a hash of their ids."""

import hashlib
from random import Random

from uivlm.episodes.subsample import hash_rank, subsample

# As AITW's shards are ordered: a subset after the other, with unequal sizes.
EPISODES = [("general", str(i)) for i in range(50)] + [("single", f"{i}.0-1.goal") for i in range(3)]


def chosen(episodes: list[tuple[str, str]], max_per_subset: int) -> set[tuple[str, str]]:
    return {episodes[i] for i in subsample(episodes, max_per_subset)}


def test_each_subset_gives_up_to_the_limit() -> None:
    indices = subsample(EPISODES, 10)
    assert indices == sorted(indices)
    subsets = [EPISODES[i][0] for i in indices]
    assert (subsets.count("general"), subsets.count("single")) == (10, 3)
    assert indices[:10] != list(range(10)), "not the first ones of the data"
    assert subsample([], 10) == []


def test_the_ids_alone_decide() -> None:
    shuffled = Random(0).sample(EPISODES, len(EPISODES))
    assert chosen(shuffled, 10) == chosen(EPISODES, 10)
    assert chosen(EPISODES, 10) < chosen(EPISODES, 11)
    digests = {i: hashlib.sha256(b"general\0" + str(i).encode()).digest() for i in range(50)}
    first = min(digests, key=digests.__getitem__)
    assert chosen(EPISODES[:50], 1) == {("general", str(first))}
    assert hash_rank("general", "7") == digests[7]
    assert hash_rank("a", "bc") != hash_rank("ab", "c")


def test_an_id_that_occurs_twice_counts_twice() -> None:
    assert subsample([("a", "1"), ("a", "1"), ("b", "1")], 1) == [0, 2]

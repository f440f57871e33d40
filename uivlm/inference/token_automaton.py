"""The automaton of action texts, lifted from bytes to the tokens of one vocabulary.

In: an ActionText and a Vocabulary. Out: the tokens that may follow a state, and the state after a token. Both
are computed when first needed and cached: a decoding step looks them up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.text import ActionText
from uivlm.actions.text_automaton import NUM_CACHED_STATES, Ended, Opening, State, TextAutomaton
from uivlm.episodes.encode import Vocabulary

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BeforeFirst:
    """Before the first token."""


class TokenAutomaton:
    def __init__(self, action_text: ActionText, vocabulary: Vocabulary, eos_id: int) -> None:
        self.text, self.vocabulary, self.eos_id = TextAutomaton(action_text), vocabulary, eos_id
        self.table = _TokenTable(vocabulary.token_bytes)
        self.allowed_tokens = lru_cache(NUM_CACHED_STATES)(self._allowed_tokens)
        self.advance = lru_cache(NUM_CACHED_STATES)(self._advance)

    def state_after(self, token_ids: Sequence[int]) -> State | BeforeFirst:
        """ValueError if the tokens do not start an action."""
        state: State | BeforeFirst = BeforeFirst()
        for token in token_ids:
            state = self.advance(state, token)
        return state

    def _advance(self, state: State | BeforeFirst, token: int) -> State:
        tokens, after = self.vocabulary.token_bytes, Opening() if isinstance(state, BeforeFirst) else state
        if token == self.eos_id and self.text.is_complete(after):
            return Ended()
        if not 0 <= token < len(tokens) or not tokens[token]:
            raise ValueError(f"the token {token} has no text: it does not continue an action in {state}")
        if isinstance(state, BeforeFirst):
            tokens = self.vocabulary.first_token_bytes or tokens
        for byte in tokens[token]:
            following = self.text.next_states(after)
            if byte not in following:
                raise ValueError(
                    f"the token {token}, {tokens[token]!r}, does not continue an action in {state}"
                )
            after = following[byte]
        return after

    def _allowed_tokens(self, state: State | BeforeFirst) -> bytes:
        """Ids (int32) in increasing order. Bytes, since they are hashed once and compare by content."""
        ids = self.table.walk(self.text, Opening() if isinstance(state, BeforeFirst) else state)
        if isinstance(state, BeforeFirst) and (first := self.vocabulary.first_token_bytes) is not None:
            table = _TokenTable(first)
            dropped = np.setdiff1d(table.without_text, self.table.without_text)  # nothing but a dropped space
            ids = [*table.walk(self.text, Opening()), dropped]
        elif not isinstance(state, BeforeFirst) and self.text.is_complete(state):
            ids.append(np.array([self.eos_id]))
        return np.sort(np.concatenate([np.array([], np.int64), *ids])).astype(np.int32).tobytes()


class _TokenTable:
    """The bytes of all tokens in one array."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self.lengths = np.array([len(token) for token in token_bytes])
        self.offsets = np.cumsum(self.lengths) - self.lengths
        self.all_bytes = np.frombuffer(b"".join(token_bytes), np.uint8)
        self.without_text = np.flatnonzero(self.lengths == 0)
        with_text = np.flatnonzero(self.lengths)
        first_bytes = self.all_bytes[self.offsets[with_text]]
        order = np.argsort(first_bytes, kind="stable")
        bounds = np.searchsorted(first_bytes[order], np.arange(1, 256))
        self.by_first_byte = np.split(with_text[order], bounds)

    def walk(self, text: TextAutomaton, state: State) -> list[Ids]:
        """The tokens that may follow the state, by length in bytes."""
        following = text.next_states(state)
        states = list(dict.fromkeys(following.values()))
        groups = [self.by_first_byte[byte] for byte in following]
        index = [states.index(after) for after in following.values()]
        tokens = np.concatenate([np.array([], np.int64), *groups])
        current = np.repeat(
            np.array(index, np.int64), [len(group) for group in groups]
        )  # index into `states`
        found, depth = list[Ids](), 1
        while len(tokens):
            longer = self.lengths[tokens] > depth
            found.append(tokens[~longer])
            tokens, current = tokens[longer], current[longer]
            states, current = _step(text, states, current, self.all_bytes[self.offsets[tokens] + depth])
            tokens, current = tokens[current >= 0], current[current >= 0]
            depth += 1
        return found


def _step(
    text: TextAutomaton, states: list[State], current: Ids, next_bytes: NDArray[np.uint8]
) -> tuple[list[State], Ids]:
    """One byte further, for all tokens at once: the new states, and each token's index among them.

    The index is -1 if the byte may not follow.
    """
    keys = current * 256 + next_bytes
    following: dict[State, int] = {}
    targets = np.full(256 * len(states), -1)
    for key in np.flatnonzero(np.bincount(keys, minlength=len(targets))).tolist():
        after = text.next_states(states[key // 256]).get(key % 256)
        if after is not None:
            targets[key] = following.setdefault(after, len(following))
    return list(following), targets[keys]

"""Which tokens may follow: what is tried of a vocabulary is all that fits, for every kind of tokens that
models have.
"""

from pathlib import Path

import pytest
import torch

from tests.helpers.readers import READERS, Reader
from uivlm.actions.text import ActionText
from uivlm.actions.text_prefix import is_prefix
from uivlm.inference.constrained import ActionConstraint, best_tokens

LANGUAGE = ActionText(100)
BEGUN = ("", "tap at ", "tap at 1", "swipe from 1 2 to ", "Inp", "Input text")


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_what_may_follow_is_found_as_by_trying_every_token(tmp_path: Path, kind: Reader) -> None:
    reader, size = kind(tmp_path)
    speech = ActionConstraint(reader, LANGUAGE)
    spaces = {token for token, added in enumerate(reader.vocabulary().token_bytes) if added == b" "}
    chances = torch.rand(size, generator=torch.Generator().manual_seed(0))
    for words in BEGUN if size < 10_000 else BEGUN[::2]:
        said = reader.encode(words)
        before = reader.decode(said)

        def may(token: int, said: list[int] = said, before: str = before) -> bool:
            after = reader.decode([*said, token])
            dropped = not said and token in spaces
            return reader.is_text_token(token) and (after != before or dropped) and is_prefix(after, LANGUAGE)

        expected = [token for token in range(size) if may(token)]
        found = [token for token, _ in speech.ranked_tokens(said, chances)]
        assert sorted(found) == expected, words
        assert expected, words
        assert chances[found].tolist() == sorted(chances[found].tolist(), reverse=True)
        assert best_tokens(chances[None], [speech.forbidden_tokens(said, chances)]).tolist() == found[:1]

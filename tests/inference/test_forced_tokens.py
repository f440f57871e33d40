"""Tokens that must follow are read together with the choice before them: the forwards are counted."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.engines import FIRST, conversations, wished
from tests.helpers.readers import few_merges, qwen
from tests.helpers.tiny_models import config, tokenizer
from tests.helpers.transfers import Transfers
from tests.inference.test_reachable_text import LANGUAGE, constraint
from uivlm.actions.action import InvalidAction
from uivlm.actions.text import TEXT_PREFIX, ActionText
from uivlm.actions.text_prefix import complete_action, is_prefix
from uivlm.inference.decoding import GenerationState
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.bridge.processor import BridgeProcessor

CHARACTERS = [chr(code) for code in range(32, 127)]


def forced_text(text: str, language: ActionText) -> str:
    """What follows in every action, by trying every character."""
    longer = text
    while isinstance(language.parse(longer), InvalidAction) and not longer.startswith(TEXT_PREFIX):
        following = [character for character in CHARACTERS if is_prefix(longer + character, language)]
        if len(following) != 1:
            break
        longer += following[0]
    return longer[len(text) :]


def must_follow(loaded: LoadedCheckpoint, ids: list[int], i: int) -> bool:
    """Is the token at `i` forced? By trying every token on the decoded text."""
    language, processor = loaded.prompt_format.action_text, loaded.processor
    text, ends = processor.decode(ids[:i]), ids[i] == processor.eos_id
    fits = [
        token
        for token in range(FIRST)
        if (after := processor.decode([*ids[:i], token])) != text and is_prefix(after, language)
    ]
    if ends or (len(fits) == 1 and isinstance(language.parse(text), InvalidAction)):
        return len(fits) == 1 - ends
    if text.startswith(TEXT_PREFIX) or not (text + forced_text(text, language)).startswith(
        processor.decode(ids[: i + 1])
    ):
        return False
    tokens = processor.encode(complete_action(processor.decode(ids[: i + 1]), language))
    return tokens[: i + 1] == ids[: i + 1]


def test_one_forward_for_each_choice(loaded: LoadedCheckpoint) -> None:
    """And the confidence is the model's probability of the choices, each from a forward of its own."""
    processor, forwards, num_forced = loaded.processor, list[int](), 0
    engine = TorchEngine(loaded, 24, use_cache=False, constrained=True)
    for history in conversations()[:10]:
        forwards.clear()
        hook = loaded.model.register_forward_hook(lambda *_: forwards.append(1))
        with torch.inference_mode():
            state, prompt = engine._generate([history])[0], engine._build_prompt(history)
        hook.remove()
        count, at_limit = len(forwards), bool(state.stop_reason)
        ids = [*state.token_ids, *[processor.eos_id] * (not at_limit)]
        choices = [i for i in range(len(ids)) if i == 0 or not must_follow(loaded, ids, i)]
        num_forced += len(ids) - len(choices)
        assert count == len(choices) + at_limit, processor.decode(ids)
        probability = 1.0
        for i in choices:
            said = replace(prompt, token_ids=[*prompt.token_ids, *ids[:i]], keys=[*prompt.keys, *ids[:i]])
            with torch.inference_mode():
                probability *= float(engine._prefill([said])[1][0].float().softmax(-1)[ids[i]])
        assert state.probability == pytest.approx(probability, rel=1e-3)
    assert num_forced > 10


def test_a_choice_and_what_it_forces_are_read_at_once(loaded: LoadedCheckpoint) -> None:
    """The verb of a gesture decides the rest up to its number: one forward with all these tokens."""
    processor = BridgeProcessor(tokenizer(), config())
    for first, opening in (("tap", "tap at "), ("swipe", "swipe from ")):
        said, module = wished(loaded, "7", "9", first)
        assert said.startswith(opening)
        assert module.read[1] == len(processor.encode(opening)), "after the prompt: one read for the opening"


@pytest.mark.parametrize("kind", [few_merges, qwen])
def test_where_one_token_may_follow_it_is_forced(kind: object) -> None:
    """A mask of one token is never left to the model, outside typed text."""
    reader, speech, _ = constraint(kind)  # type: ignore[arg-type]
    for text in ("t", "tap at 1 2", "swipe from 5 5 to 60 60", "press b", "press h", "imp", "c", "Input"):
        said = reader.encode(text)
        forced, ended = speech.forced_tokens(said)
        expected = forced_text(text, LANGUAGE)
        assert (text + expected).startswith(reader.decode([*said, *forced]))
        following = any(is_prefix(text + expected + character, LANGUAGE) for character in CHARACTERS)
        assert ended == (not following and reader.decode([*said, *forced]) == text + expected)
        may = speech.ranked_tokens([*said, *forced], torch.ones(reader.eos_id + 3))
        assert len(may) > 1 or ended


def test_a_step_waits_for_its_tokens_only(loaded: LoadedCheckpoint) -> None:
    """One transfer for the whole batch, once the masks of its states are there."""
    engine = TorchEngine(loaded, 40, constrained=True)
    prefixes = [
        loaded.processor.encode(text) for text in ("tap at ", 'Input text "a', "swipe from 5 5 to ", "")
    ]
    logits = torch.rand(4, FIRST + 4, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        states = [GenerationState(40, list(token_ids)) for token_ids in prefixes]
        with Transfers() as transfers:
            engine._step(states, logits)
    assert transfers.counted == ["tolist"]


def test_the_search_for_candidates_waits_once_a_prefix() -> None:
    reader, speech, size = constraint(qwen)
    probs = torch.rand(size, generator=torch.Generator().manual_seed(0))
    for text in ("tap at ", 'Input text "a'):
        with Transfers() as transfers:
            ranked = speech.ranked_tokens(reader.encode(text), probs, min_probability=0.5)
        assert transfers.counted == ["numpy"]
        assert [probability for _, probability in ranked] == [float(probs[token]) for token, _ in ranked]
        assert min(probability for _, probability in ranked) >= 0.5

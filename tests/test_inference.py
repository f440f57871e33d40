"""Inference: reuse changes only the cost, what is said is an action or NotAnAction, and a bad folder says so."""

import json
import math
import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bridges import (
    END,
    PICTURE,
    base,
    config,
    episode,
    prepare,
    qwen_base,
    qwen_recipe,
    recipe,
    screen,
    tokenizer,
)
from safetensors.torch import load_file, save_file
from successors import write
from torch import nn

from uivlm.actions.action import Press
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Decision
from uivlm.agents.vlm import VlmAgent
from uivlm.episode import Episode, History, Step
from uivlm.inference.cache import Reading, screen_key
from uivlm.inference.load import Loaded, load
from uivlm.inference.predict import Answer, Predictor
from uivlm.models.llama_vit import Reader
from uivlm.models.lora import adapt
from uivlm.models.model import Built, build
from uivlm.recipe import Lora, QwenHF, Recipe
from uivlm.sentences.encode import encode
from uivlm.sentences.sentence import Grammar, Picture
from uivlm.training import checkpoint

FIRST = tokenizer().get_vocab_size()
LIMIT = 8  # tokens: a random model seldom ends by itself


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of random adapters, and the model that it was made of."""

    folder: Path
    recipe: Recipe
    built: Built
    model: Any


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    root = tmp_path_factory.mktemp("saved")
    wanted = recipe(base(root / "base"), prepare(root / "data", [episode(0, 2)]))
    built = build(wanted)
    model = adapt(built, 0)
    torch.manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.05 * torch.randn_like(value)
    checkpoint.save(root / "ckpt", model.eval(), built, wanted, None, 0.0, "")
    return Saved(root / "ckpt", wanted, built, model)


@pytest.fixture(scope="module")
def loaded(saved: Saved) -> Loaded:
    return load(saved.folder)


# -- a saved model is the same model ----------------------------------------------------------------------------


@torch.inference_mode()
def test_a_loaded_checkpoint_gives_the_logits_of_the_saved_model(saved: Saved, loaded: Loaded) -> None:
    """Merged and cached against adapters beside the weights, in one forward from pixels."""
    predictor, untuned = Predictor(loaded), build(saved.recipe).module
    for t in (0, 3, 6):
        history = episode(1, 9).history(t)
        example = encode(loaded.grammar.prompt(history), loaded.reader)
        ids, pixels = torch.tensor(example.input_ids)[None], torch.tensor(example.pixels)
        logits = predictor.next_logits(history).cpu()
        assert torch.allclose(logits, saved.model(ids, pixels).logits[0, -1], atol=1e-4)
        assert not torch.allclose(logits, untuned(ids, pixels).logits[0, -1], atol=1e-2)


def test_what_is_loaded(saved: Saved, loaded: Loaded) -> None:
    assert loaded.recipe == saved.recipe
    assert loaded.grammar == Grammar(100, 4, 3)
    assert loaded.name == "ckpt"
    assert not loaded.module.training
    assert not any(value.requires_grad for value in loaded.module.parameters())


# -- reuse ------------------------------------------------------------------------------------------------------


def changed_past(of: Episode, t: int, at: int) -> History:
    """The history of step t, but with another screen and another action at an earlier step."""
    history = of.history(t)
    steps = list(history.steps)
    steps[at] = Step(screen(9999), Press("home"))
    return History(history.goal, tuple(steps), history.screen)


def conversations() -> list[History]:
    """A conversation over jumps of the window, one between its steps, changed pasts, repeats, steps back."""
    one, other = episode(1, 11), episode(2, 11, goal="goal 1")  # goals alike: a shared beginning
    mixed = [of.history(t) for t in range(11) for of in (one, other)]
    changed = [changed_past(one, t, at) for t, at in ((3, 2), (3, 0), (9, 8), (9, 1), (10, 7))]
    back = [one.history(t) for t in (10, 10, 9, 2, 0, 3)]
    return [*(one.history(t) for t in range(11)), *mixed, *changed, *back]


def test_reuse_changes_nothing(loaded: Loaded) -> None:
    with_reuse, without = Predictor(loaded, LIMIT), Predictor(loaded, LIMIT, reuse=False)
    all_words = set()
    for history in conversations():
        fresh, reused = without.predict(history), with_reuse.predict(history)
        assert reused[:2] == fresh[:2]
        assert reused[2] == pytest.approx(fresh[2], abs=1e-4)
        assert 0 <= reused[2] <= 1
        assert torch.allclose(with_reuse.next_logits(history), without.next_logits(history), atol=1e-4)
        all_words.add(fresh[0])
    assert len(all_words) > 5, "answers that do not depend on the history prove nothing"


def test_reuse_saves_reading(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between jumps only the new action and screen are read; a screen is looked at once."""
    read: list[int] = []
    looked: list[int] = []
    forward, look = loaded.module.forward, loaded.module.look
    monkeypatch.setattr(
        loaded.module, "forward", lambda ids, **kw: (read.append(ids.shape[1]), forward(ids, **kw))[1]
    )
    monkeypatch.setattr(loaded.module, "look", lambda pixels: (looked.append(len(pixels)), look(pixels))[1])
    predictor, of = Predictor(loaded), episode(1, 7)
    lengths = [len(encode(loaded.grammar.prompt(of.history(t)), loaded.reader).input_ids) for t in range(7)]
    for t in range(7):
        predictor.next_logits(of.history(t))
    assert sum(looked) == 7
    assert read[:4] == [lengths[0], *(b - a for a, b in pairwise(lengths[:4]))]
    assert read[5] == lengths[5] - lengths[4]  # after the jump at step 4


def test_a_failed_step_spoils_no_later_one(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, of = Predictor(loaded, LIMIT), episode(3, 4)
    predictor.predict(of.history(1))
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.inference.cache.Reading.read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            predictor.predict(of.history(2))
    assert predictor.predict(of.history(2))[:2] == Predictor(loaded, LIMIT).predict(of.history(2))[:2]


def batches(size: int) -> list[list[History]]:
    """Histories of conversations side by side: on, back, over jumps, some of them new, one of them twice."""
    given = conversations()
    mixed = [given[i] for i in Random(size).sample(range(len(given)), len(given))]
    twice = [[*mixed[i : i + size], mixed[i]] for i in range(0, len(mixed), size)]
    several = [episode(seed, 6) for seed in range(size)]
    return [*twice, *([of.history(t) for of in several] for t in range(6))]


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("kind", ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_answers_side_by_side_are_those_of_each_alone(
    kind: str, size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue("loaded") if kind == "llama_vit" else of_kind(kind, tmp_path)
    together, alone = Predictor(loaded, LIMIT, kept=size), Predictor(loaded, LIMIT, reuse=False)
    all_words = set()
    for histories in batches(size):
        answers = together.predict_all(histories)
        assert len(together.kept.latest) <= size
        for history, answer in zip(histories, answers, strict=True):
            fresh = alone.predict(history)
            assert answer[:2] == fresh[:2]
            assert answer[2] == pytest.approx(fresh[2], abs=1e-4)
            all_words.add(fresh[0])
    assert len(all_words) > 5, "answers that do not depend on the history prove nothing"


def of_kind(kind: str, root: Path) -> Loaded:
    """An untuned checkpoint."""
    if kind == "qwen_vl":
        wanted = qwen_recipe(qwen_base(root / "base"), root)
    else:
        part = QwenHF(str(write(root / "base", kind)), most=40, older=(20, 9), lora=Lora(2, 4, 0.0))
        wanted = replace(recipe(root / "base", root), model=part)
    return load(checkpoint.base_checkpoint(wanted, root / "ckpt"))


def test_a_conversation_that_goes_on_is_read_on(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side too: after the first step a row is its new action and screen."""
    widths: list[int] = []
    read = Reading.read

    def counted(self: Reading, rows: Any, keys: Any, features: Any) -> Any:
        widths.append(max(map(len, rows)))
        return read(self, rows, keys, features)

    monkeypatch.setattr(Reading, "read", counted)
    predictor, several = Predictor(loaded, LIMIT, kept=3), [episode(seed, 4) for seed in range(3)]
    prompts = [
        [len(encode(loaded.grammar.prompt(of.history(t)), loaded.reader).input_ids) for t in range(4)]
        for of in several
    ]
    for t in range(4):
        del widths[:]
        predictor.predict_all([of.history(t) for of in several])
        assert widths[0] == max(one[t] - (one[t - 1] if t else 0) for one in prompts)
        assert len(predictor.kept.latest) == 3
    predictor.predict(episode(7, 1).history(0))
    assert len(predictor.kept.latest) == 3, "the oldest one went"


def test_screens_are_known_by_content() -> None:
    one = screen_key(Picture(screen(1)), 4)
    assert one == screen_key(Picture(screen(1), age=2), 4)  # seen alike
    plain = screen(1).pixels
    turned = Picture(replace(screen(1), pixels=plain.reshape(20, 30, 3)))
    others = [screen_key(Picture(screen(2)), 4), screen_key(turned, 4), screen_key(Picture(screen(1)), 5)]
    assert one not in others


# -- what is said -----------------------------------------------------------------------------------------------


class Scripted(nn.Module):
    """Says given tokens, each with the probability `chance`; then repeats the last."""

    def __init__(self, tokens: list[int], chance: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.tokens, self.chance, self.said = tokens, chance, 0

    def look(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pixels), 4, 24)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        vocabulary = FIRST + 4
        chances = torch.full((1, 1, vocabulary), (1 - self.chance) / (vocabulary - 1))
        chances[..., self.tokens[min(self.said, len(self.tokens) - 1)]] = self.chance
        self.said += 1
        return SimpleNamespace(logits=chances.log())


def answer(loaded: Loaded, tokens: list[int], limit: int = 32) -> Answer:
    reader = Reader(tokenizer(), config())
    scripted = Loaded(Scripted(tokens, 0.9), reader, loaded.grammar, loaded.recipe, "scripted")
    return Predictor(scripted, limit).predict(episode(0, 3).history(2))


def test_an_action_and_its_confidence(loaded: Loaded) -> None:
    """The confidence is the product over the said tokens, the end among them."""
    tokens = Reader(tokenizer(), config()).words("press back")
    words, action, confidence, _ = answer(loaded, [*tokens, FIRST + END])
    assert (words, action) == ("press back", Press("back"))
    assert confidence == pytest.approx(0.9 ** (len(tokens) + 1), rel=1e-4)


def test_an_answer_that_fills_the_limit_may_still_end(loaded: Loaded) -> None:
    tokens = Reader(tokenizer(), config()).words("press back")
    assert answer(loaded, [*tokens, FIRST + END], limit=len(tokens))[1] == Press("back")
    assert isinstance(answer(loaded, [*tokens, FIRST + END], limit=len(tokens) - 1)[1], NotAnAction)


def test_an_answer_without_end_is_no_action(loaded: Loaded) -> None:
    tokens = Reader(tokenizer(), config()).words("press back")
    words, action, confidence, _ = answer(loaded, tokens, limit=len(tokens))
    assert words == "press back"
    assert isinstance(action, NotAnAction)
    assert f"no end within {len(tokens)} tokens" in str(action)
    assert math.isclose(confidence, 0.9 ** len(tokens), rel_tol=1e-4)


@pytest.mark.parametrize("control", [PICTURE, 0, 2])
def test_a_control_token_within_the_words_is_no_action(loaded: Loaded, control: int) -> None:
    tokens = Reader(tokenizer(), config()).words("press back")
    _, action, *_ = answer(loaded, [*tokens, FIRST + control, FIRST + END])
    assert isinstance(action, NotAnAction)
    assert "control token" in str(action)


def test_nonsense_is_no_action(loaded: Loaded) -> None:
    tokens = Reader(tokenizer(), config()).words("open the door")
    words, action, *_ = answer(loaded, [*tokens, FIRST + END])
    assert words == "open the door"
    assert isinstance(action, NotAnAction)


def test_the_context_is_never_exceeded(saved: Saved, tmp_path: Path) -> None:
    short = replace(
        saved.recipe, model=replace(saved.recipe.model, base=str(base(tmp_path / "base", context=60)))
    )
    built = build(short)
    checkpoint.save(tmp_path / "ckpt", adapt(built, 0), built, short, None, 0.0, "")
    predictor = Predictor(load(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match=r"the prompt has \d+ tokens, the model reads 60: .*grammar.screens"):
        predictor.predict(episode(2, 5).history(4))
    assert isinstance(predictor.predict(episode(2, 5).history(0))[0], str)


def test_the_agent_decides_what_the_predictor_says(loaded: Loaded) -> None:
    predictor = Predictor(loaded, LIMIT)
    agent, of = VlmAgent(predictor), episode(4, 3)
    agent.reset()
    for t in range(3):
        decision = agent.act(of.history(t))
        words, action, confidence, _ = Predictor(loaded, LIMIT, reuse=False).predict(of.history(t))
        assert isinstance(decision, Decision)
        assert (decision.words, decision.action) == (words, action)
        assert decision.confidence == pytest.approx(confidence, abs=1e-4)


# -- Qwen-VL ------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_the_originals_long_context_reads_each_prompt_anew(tmp_path: Path) -> None:
    """Its keys are turned by a factor of the prompt's length: those of a shorter prompt would be wrong."""
    wanted = qwen_recipe(qwen_base(tmp_path / "base", context=48), tmp_path, long_context="original")
    loaded = load(checkpoint.base_checkpoint(wanted, tmp_path / "ckpt"))
    assert not loaded.reuse
    of = episode(3, 4)
    predictor, wrong = Predictor(loaded, LIMIT), Predictor(replace(loaded, reuse=True), LIMIT)
    differ = []
    for t in range(4):
        fresh = Predictor(loaded, LIMIT, reuse=False).next_logits(of.history(t))
        assert torch.equal(predictor.next_logits(of.history(t)), fresh)
        differ.append(not torch.allclose(wrong.next_logits(of.history(t)), fresh, atol=1e-2))
        assert len(predictor.features.kept) == t + 1, "screens are not seen again"
    assert differ[0] is False
    assert differ[-1] is True, "the prompts crossed the training length"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints: adapters, and all weights."""
    root = tmp_path_factory.mktemp("qwen")
    folder = qwen_base(root / "base")
    made = {"lora": qwen_recipe(folder, root), "full": qwen_recipe(folder, root, lora=None)}
    return {name: checkpoint.base_checkpoint(one, root / name) for name, one in made.items()}


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (
            "lora",
            "adapter_model.safetensors missing",
            "is no checkpoint: it has no adapter_model.safetensors",
        ),
        (
            "lora",
            "projector.safetensors added",
            "holds projector.safetensors, which a qwen_vl checkpoint .* has not",
        ),
        ("lora", "model added", "holds model, which a qwen_vl checkpoint like this one has not"),
        ("full", "model missing", "is no checkpoint: it has no model"),
        (
            "full",
            "adapter_model.safetensors added",
            "holds adapter_model.safetensors, which a qwen_vl checkpoint",
        ),
        ("full", "model/qwen.tiktoken missing", "has no qwen.tiktoken"),
        ("full", "model/model.safetensors missing", "model has no weights"),
    ],
)
def test_files_of_another_checkpoint_are_refused(
    qwen: dict[str, Path], tmp_path: Path, kind: str, change: str, says: str
) -> None:
    copy = shutil.copytree(qwen[kind], tmp_path / "copy")
    load(copy)  # whole: the change alone is refused
    name, _, how = change.partition(" ")
    if how == "added":
        (copy / name).write_bytes(b"")
    elif (copy / name).is_dir():
        shutil.rmtree(copy / name)
    else:
        (copy / name).unlink()
    with pytest.raises(ValueError, match=says) as caught:
        load(copy)
    assert "\n" not in str(caught.value)


# -- bad folders ------------------------------------------------------------------------------------------------


def damage(folder: Path, what: str) -> None:
    file, _, how = what.partition(" ")
    path = folder / file
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            save_file({"other": torch.zeros(3)}, path)
        case "shape":
            kept = load_file(path)
            save_file(kept | {sorted(kept)[0]: torch.zeros(3)}, path)
        case "field":
            path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": 1}))
        case "rank":
            path.write_text(json.dumps(json.loads(path.read_text()) | {"r": 5}))
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        *((f"{name} missing", f"is no checkpoint: it has no {name}") for name in (
            "recipe.json", "adapter_model.safetensors", "adapter_config.json", "projector.safetensors",
        )),
        ("adapter_model.safetensors cut", "adapter_model.safetensors is damaged or incomplete"),
        ("projector.safetensors cut", "projector.safetensors is damaged or incomplete"),
        ("adapter_model.safetensors empty", "adapter_model.safetensors is damaged or incomplete"),
        ("adapter_model.safetensors foreign", r"lacks 28 of 28 weights"),
        ("projector.safetensors foreign", r"lacks 2 of 2 weights"),
        ("adapter_model.safetensors shape", r"has shape \[3\] where the model has"),
        ("recipe.json empty", "recipe.json is no recipe of this version"),
        ("recipe.json field", "no recipe of this version .*no field 'colour'"),
        ("adapter_config.json empty", "adapter_config.json does not describe LoRA adapters"),
        ("adapter_config.json field", "adapter_config.json does not describe LoRA adapters"),
        ("adapter_config.json rank", r"has shape \[4, 32\] where the model has \[5, 32\]"),
    ],
)  # fmt: skip
def test_a_bad_checkpoint_says_so(saved: Saved, tmp_path: Path, what: str, says: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in saved.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    load(copy)  # whole: the damage alone is refused
    damage(copy, what)
    with pytest.raises(ValueError, match=says) as caught:
        load(copy)
    assert "\n" not in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no checkpoint folder .*nothing"):
        load(tmp_path / "nothing")


def test_another_grammar_is_refused(saved: Saved) -> None:
    with pytest.raises(ValueError, match=r"speaks Grammar\(bins=100, .*asked for is Grammar\(bins=64"):
        load(saved.folder, Grammar(64, 4, 3))
    assert load(saved.folder, Grammar(100, 4, 3)).grammar == Grammar(100, 4, 3)


def test_a_reset_keeps_what_saves_reading(loaded: Loaded) -> None:
    """A server resets before each request: no request knows of another, but its prompt's beginning is not read again."""
    predictor = Predictor(loaded, LIMIT)
    agent, of = VlmAgent(predictor), episode(4, 3)
    agent.act(of.history(1))
    agent.reset()
    assert predictor.kept.latest
    assert predictor.features.kept
    agent.forget()
    assert not predictor.kept.latest
    assert not predictor.features.kept


def test_a_bound_answer_stays_within_its_room(loaded: Loaded) -> None:
    """What must follow counts, too: the context has no place beyond."""
    reader = Reader(tokenizer(), config())
    for limit in range(1, 5):
        module = Wishing(reader.words("press home"), FIRST + 4)
        one = Loaded(module, reader, loaded.grammar, loaded.recipe, "wishing")
        words, action, *_ = Predictor(one, limit, bound=True).predict(episode(0, 3).history(0))
        assert len(reader.words(words)) <= limit
        assert isinstance(action, NotAnAction) == (limit < len(reader.words("press home")))
        assert sum(module.read[1:]) <= limit


# -- answers from the grammar ---------------------------------------------------------------------------------------


KINDS = ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_model_says_nothing_but_actions(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Random weights, which say nonsense when they are free; typed texts are cut off at the limit and closed."""
    loaded = request.getfixturevalue("loaded") if kind == "llama_vit" else of_kind(kind, tmp_path)
    bound, free = Predictor(loaded, 40, kept=4, bound=True), Predictor(loaded, 40)
    language, kinds = loaded.grammar.language, set()
    histories = conversations()[:20]
    for i in range(0, len(histories), 4):
        for words, action, confidence, kind in bound.predict_all(histories[i : i + 4]):
            assert not isinstance(action, NotAnAction), words
            assert language.say(action) == words
            assert 0 <= confidence <= kind <= 1
            kinds.add(type(action))
    assert any(isinstance(free.predict(history)[1], NotAnAction) for history in histories)


class Wishing(nn.Module):
    """Wishes for one token more than for another, whatever was said: the later in the list the more."""

    def __init__(self, wishes: list[int], vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.logits = torch.zeros(vocabulary)
        self.logits[wishes] = torch.arange(1.0, len(wishes) + 1)
        self.read: list[int] = []

    def look(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pixels), 4, 24)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        self.read.append(input_ids.shape[1])
        return SimpleNamespace(logits=self.logits.expand(len(input_ids), 1, -1))


def wished(loaded: Loaded, *wishes: str, limit: int = 40) -> tuple[str, Wishing]:
    """What a bound model says whose wishes are the tokens of these texts."""
    reader = Reader(tokenizer(), config())
    tokens = [token for text in wishes for token in reader.words(text)]
    module = Wishing(tokens, FIRST + 4)
    one = Loaded(module, reader, loaded.grammar, loaded.recipe, "wishing")
    words, action, *_ = Predictor(one, limit, bound=True).predict(episode(0, 3).history(0))
    assert loaded.grammar.language.say(action) == words
    return words, module


def test_of_what_may_follow_the_likeliest_is_taken(loaded: Loaded) -> None:
    said, _ = wished(loaded, "t", "7", "9", "a")
    assert said.startswith("tap at 9"), "nothing else begins with what is likeliest of all that may begin"


def test_what_must_follow_is_not_asked_for(loaded: Loaded) -> None:
    """`press` leaves a choice, its key none; and nothing is read after the last choice."""
    said, module = wished(loaded, "press home")
    assert said == "press home"
    reader = Reader(tokenizer(), config())
    assert len(module.read) < len(reader.words("press home")), "some tokens were read together with others"


def test_a_typed_text_cannot_break_out(loaded: Loaded) -> None:
    """It is closed where it grows too long, and what stands in it is one JSON string."""
    for wish in ("I", "I\\", "I\n", "Iä", "I\\u0"):
        said, _ = wished(loaded, *wish[::-1], limit=30)
        assert said.startswith('Input text "'), said
        assert said.endswith('"')


# -- the likeliest ------------------------------------------------------------------------------------------------


def test_the_likeliest_answers_are_those_of_all(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against every answer that there is, each found by reading its whole beginning anew: two bins, and no typed text fits."""
    monkeypatch.setattr("uivlm.inference.likeliest.LEAST", 0.0)
    limit = 6
    few = replace(loaded, grammar=replace(loaded.grammar, bins=2))
    for t in (0, 2):
        history = episode(3, 4).history(t)
        predictor = Predictor(few, limit, bound=True)
        every = sorted(all_answers(few, history, limit), reverse=True)
        found = predictor.rank(history, 5)
        assert [one.words for one in found] == [words for _, words in every[:5]]
        assert [one.chance for one in found] == pytest.approx([chance for chance, _ in every[:5]], rel=1e-3)
        assert all(one.chance <= one.kind <= 1 for one in found)
        assert (
            found[0].chance >= predictor.predict(history).chance - 1e-6
        )  # of greedy words, which may be less likely
        assert len({one.words for one in predictor.rank(history, 40)}) == len(every)


def all_answers(loaded: Loaded, history: History, limit: int) -> list[tuple[float, str]]:
    """(probability, words) of every answer of at most so many tokens."""
    predictor = Predictor(loaded, limit, reuse=False, bound=True)
    speech, reader = predictor.speech, loaded.reader
    assert speech is not None
    ids = predictor._prompt(history)
    found: dict[str, float] = {}

    def go_on(said: list[int], chance: float) -> None:
        whole = replace(ids, ids=[*ids.ids, *said], keys=[*ids.keys, *said])
        with torch.inference_mode():
            chances = predictor._read([whole])[1][0].float().softmax(-1)
        for token in range(len(chances)):
            if not speech._may(said, reader.text(said), token):
                continue
            if token == reader.end:
                found[reader.text(said)] = max(
                    chance * float(chances[token]), found.get(reader.text(said), 0.0)
                )
                continue
            forced, over = speech.forced([*said, token])
            now = [*said, token, *forced]
            if len(now) > limit or reader.text(now).startswith("Input"):
                continue
            if over:
                words = reader.text(now)
                found[words] = max(chance * float(chances[token]), found.get(words, 0.0))
            else:
                go_on(now, chance * float(chances[token]))

    go_on([], 1.0)
    return [(chance, words) for words, chance in found.items()]


def test_the_kind_has_its_own_probability(loaded: Loaded) -> None:
    """Of a model that always says the same, bound: `t` decides for a tap, what follows for its place."""
    words, module = wished(loaded, "7", "tap")
    chances = module.logits.softmax(-1)
    reader = Reader(tokenizer(), config())
    one = Loaded(module, reader, loaded.grammar, loaded.recipe, "wishing")
    answer = Predictor(one, 40, bound=True).predict(episode(0, 3).history(0))
    assert answer.words == words
    assert answer.kind == pytest.approx(float(chances[reader.words("tap at")[0]]))
    assert answer.chance < answer.kind


def test_only_a_bound_predictor_ranks(loaded: Loaded) -> None:
    with pytest.raises(ValueError, match="bound to the words of actions"):
        Predictor(loaded).rank(episode(0, 3).history(0), 2)

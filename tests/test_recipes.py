"""Recipes: each one loads, survives JSON, and trains through the real command line at tiny size."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bridges import base, episode, prepare, qwen_base, vocabulary
from parts import write_llama, write_vision
from successors import write
from typer.testing import CliRunner

from uivlm.actions.action import Point, Swipe
from uivlm.cli import app
from uivlm.models.model import grammar
from uivlm.models.qwen_vl.tokens import Tokens, read_ranks
from uivlm.recipe import (
    Data,
    GrammarPart,
    LlamaVit,
    Lora,
    QwenHF,
    QwenVL,
    Recipe,
    RecipeError,
    Train,
    from_dict,
    load,
    override,
    to_dict,
)

ROOT = Path(__file__).parents[1]
RECIPES = sorted(path for path in (ROOT / "recipes").glob("*.py") if path.stem != "__init__")
NUM_STEPS = [1 + i % 3 for i in range(30)]  # of the small data's episodes
PLAIN = Recipe("plain", LlamaVit("tiny"), GrammarPart(), Data("data"), Train())
QWEN = replace(PLAIN, model=QwenVL("folder"))
HF = replace(PLAIN, model=QwenHF("folder"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Random bases by the kind of their model, and small data."""
    root = tmp_path_factory.mktemp("small")
    episodes = [episode(i, n) for i, n in enumerate(NUM_STEPS)]
    bases = {"llama_vit": base(root / "bridge"), "qwen_vl": qwen_base(root / "qwen")}
    bases["qwen_hf"] = write(root / "hf", "Qwen3VL")
    bases["llama_parts"] = write_llama(root / "llama")
    write_vision(root / "vision", "siglip")
    return bases, prepare(root / "data", episodes)


def two_steps(recipe: Path, small: tuple[dict[str, Path], Path], out: Path) -> list[str]:
    """The command line that trains this recipe for two steps on the small data."""
    wanted = load(recipe)
    spoken = grammar(wanted)
    rows = sum(len(list(spoken.spans(n))) for n in NUM_STEPS)
    steps = math.ceil(math.ceil(rows / wanted.train.batch) / wanted.train.accumulate)
    assert steps >= 2, f"{recipe.name} needs more rows for two steps"
    bases, data = small
    vision = [f"model.vision={data.with_name('vision')}"] if wanted.model.kind == "llama_parts" else []
    settings = [
        *vision,
        f"model.base={bases[wanted.model.kind]}",
        f"data.folder={data}",
        f"train.epochs={1.5 / steps}",
    ]
    return [
        "train",
        str(recipe),
        *(word for setting in settings for word in ("--set", setting)),
        "--out",
        str(out),
    ]


def check(out: Path, recipe: Path) -> None:
    """Two finite steps, and a checkpoint that tells its recipe."""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2]
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in log)
    told, wanted = from_dict(json.loads((out / "recipe.json").read_text())), load(recipe)
    assert told == replace(
        wanted, model=told.model, data=told.data, train=replace(wanted.train, epochs=told.train.epochs)
    )


def test_there_are_recipes() -> None:
    assert {"tiny", "qwenvl"} <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_survives_json(path: Path) -> None:
    wanted = load(path)
    assert from_dict(to_dict(wanted)) == wanted
    assert from_dict(json.loads(json.dumps(to_dict(wanted)))) == wanted
    assert wanted.name == path.stem
    grammar(wanted)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_trains(path: Path, small: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, two_steps(path, small, tmp_path / "out"), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    check(tmp_path / "out", path)


def test_a_recipe_trains_as_a_program(small: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    path = ROOT / "recipes" / "tiny.py"
    command = [sys.executable, "-m", "uivlm", *two_steps(path, small, tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    check(tmp_path / "out", path)


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    """Before anything slow is loaded, on stderr, with exit status 2 and no traceback."""
    command = [
        sys.executable,
        "-m",
        "uivlm",
        "train",
        str(ROOT / "recipes" / "tiny.py"),
        "--set",
        "train.lr=high",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "recipe.train.lr is 'high': it must be of type float" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_longest_sentences_of_qwenvl_fit() -> None:
    """Six screens of 258 tokens, the longest swipes before and between them, and 100 tokens of goal or typed text."""
    wanted = load(ROOT / "recipes" / "qwenvl.py")
    tokens = Tokens(read_ranks(vocabulary()))
    swipe = grammar(wanted).language.say(Swipe(Point(0.105, 0.205), Point(0.305, 0.405)))
    assert swipe == "swipe from 10 20 to 30 40"
    words = len(tokens.encode(f"{swipe}\n"))
    part = wanted.grammar
    assert 100 + part.before * words + part.screens * (258 + 1 + words) <= 2048


# -- files ------------------------------------------------------------------------------------------------------


def test_a_recipe_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert load("tiny") == load(ROOT / "recipes" / "tiny.py")
    with pytest.raises(RecipeError, match=r"no recipe 'nothing': .*recipes here: .*tiny"):
        load("nothing")


@pytest.mark.parametrize("text", ["", "def recipe():\n    return 1\n", "recipe = 3\n"])
def test_a_file_that_is_no_recipe(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(RecipeError, match=r"odd.py is no recipe: it needs a function recipe\(\)"):
        load(tmp_path / "odd.py")


# -- settings ---------------------------------------------------------------------------------------------------


def test_settings_by_hand() -> None:
    settings = [
        "name=other", "model.base=folder", "model.lora.r=7", "grammar.screens=3", "data.limit=5", "data.limit=6",
        "train.lr=3e-5", "train.epochs=2", "train.keep_features=true", "train.zero=2", "train.precision=float32",
    ]  # fmt: skip
    changed = override(PLAIN, settings)
    assert changed == Recipe(
        "other",
        LlamaVit("folder", Lora(r=7)),
        GrammarPart(screens=3),
        Data("data", limit=6),
        Train(lr=3e-5, epochs=2.0, keep_features=True, zero=2, precision="float32"),
    )
    assert isinstance(changed.train.epochs, float)
    assert override(changed, ["data.limit=null"]).data.limit is None
    assert override(PLAIN, []) == PLAIN
    assert PLAIN.train == Train()


def test_settings_of_qwenvl() -> None:
    settings = ["model.lora.r=8", "model.quantise=nf4", "model.long_context=original", "model.context=4096"]
    changed = override(QWEN, settings)
    assert changed.model == QwenVL("folder", Lora(r=8), "nf4", "original", 4096)
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert override(changed, ["model.quantise=null", "model.context=null"]).model == QwenVL(
        "folder", Lora(r=8), long_context="original"
    )
    whole = override(QWEN, ["model.lora=null", "train.precision=float32"])
    assert whole.model == QwenVL("folder", None)
    assert from_dict(json.loads(json.dumps(to_dict(whole)))) == whole
    assert override(QWEN, ["model.lora=null", "train.zero=2"]).model == whole.model
    assert override(PLAIN, ["model.kind=qwen_vl"]).model == QwenVL("tiny")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            "model.kind=gpt",
            "recipe.model.kind is 'gpt': it must be one of 'llama_vit', 'llama_parts', 'qwen_vl', 'qwen_hf'",
        ),
        ("model.kind=llama_vit", "recipe.model has no field '"),
        ("model=null", "recipe.model must be a table, not None"),
        ("model.quantise=nf3", "recipe.model.quantise is 'nf3': it must be one of 'nf4', 'int8', None"),
        (
            "model.long_context=ntk",
            "recipe.model.long_context is 'ntk': it must be one of 'none', 'original'",
        ),
        ("model.context=long", "recipe.model.context is 'long': it must be of type int"),
        ("model.context=0", "model.context is 0: it must be at least 1"),
        ("model.lora=8", "no such setting"),
        ("model.lora=null model.lora.r=8", "no such setting"),
        (
            "model.lora=null model.quantise=int8",
            "model.quantise is 'int8', but quantised weights cannot be trained",
        ),
        ("model.quantise=nf4 train.zero=3", "train.zero is 3, which cannot share out quantised weights"),
        ("model.lora=null", "in bfloat16 would lose its small steps: set train.precision to float32, or"),
        ("model.lora=null train.zero=3", "train.zero is 3, under which no process holds the weights"),
        ("model.lora=null train.zero=1 train.keep_features=true", "set train.keep_features to false"),
    ],
)
def test_a_bad_setting_of_qwenvl_says_so(settings: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says) as caught:
        override(QWEN, settings.split())
    assert "\n" not in str(caught.value)


def test_settings_of_qwen_hf() -> None:
    changed = override(HF, ["model.most=256", "model.older=[64,16]", "model.least=9", "model.quantise=int8"])
    assert changed.model == QwenHF("folder", quantise="int8", most=256, older=(64, 16), least=9)
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert override(changed, ["model.older=[]"]).model == replace(changed.model, older=())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("model.older=5", "recipe.model.older is 5: it must be a list"),
        ("model.older=[1.5]", "recipe.model.older is 1.5: it must be of type int"),
        ("model.older=[600]", r"model.older has 600: it must be 4 \(model.least\) to 512 \(model.most\)"),
        ("model.most=3", "model.most is 3: it must be at least 4"),
        ("model.least=0", "model.least is 0: it must be at least 1"),
        ("model.older=[9] train.keep_features=true", "model.older shrinks screens as they age"),
        ("model.lora=null model.quantise=nf4", "quantised weights cannot be trained"),
        ("model.quantise=nf4 train.zero=3", "train.zero is 3, which cannot share out quantised weights"),
    ],
)
def test_a_bad_setting_of_qwen_hf_says_so(settings: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says) as caught:
        override(HF, settings.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("train.lr", "--set 'train.lr': no such setting; write part.field=value"),
        ("train.speed=1", "--set 'train.speed=1': no such setting"),
        ("speed=1", "no such setting"),
        ("train=1", "no such setting"),
        ("train.lr.x=1", "no such setting"),
        ("=1", "no such setting"),
        ("train.batch=many", "recipe.train.batch is 'many': it must be of type int"),
        ("train.batch=1.5", "recipe.train.batch is 1.5: it must be of type int"),
        ("train.batch=true", "recipe.train.batch is True: it must be of type int"),
        ("train.batch=null", "recipe.train.batch is None: it must be of type int"),
        ("train.keep_features=1", "recipe.train.keep_features is 1: it must be of type bool"),
        (
            "train.precision=float16",
            "recipe.train.precision is 'float16': it must be one of 'float32', 'bfloat16'",
        ),
        ("train.zero=4", "recipe.train.zero is 4: it must be one of 0, 1, 2, 3"),
        (
            "model.kind=gpt",
            "recipe.model.kind is 'gpt': it must be one of 'llama_vit', 'llama_parts', 'qwen_vl', 'qwen_hf'",
        ),
        ("data=null", "recipe.data must be a table, not None"),
        ("train=null", "recipe.train must be a table, not None"),
        ("name=3", "recipe.name is 3: it must be of type str"),
        ("data.limit=few", "recipe.data.limit is 'few': it must be of type int"),
        ("train.batch=0", "train.batch is 0: it must be at least 1"),
        ("train.accumulate=-1", "train.accumulate is -1: it must be at least 1"),
        ("train.lr=0", "train.lr is 0.0: it must be above 0"),
        ("train.epochs=-1", "train.epochs is -1.0: it must be above 0"),
        ("train.lr=NaN", "train.lr is nan: it must be above 0"),
        ("train.zero=true", "recipe.train.zero is True: it must be one of"),
        ("model.lora.r=0", "model.lora.r is 0: it must be at least 1"),
        ("model.lora.dropout=1", r"model.lora.dropout is 1.0: it must lie in \[0, 1\)"),
    ],
)
def test_a_bad_setting_says_so(setting: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says) as caught:
        override(PLAIN, [setting])
    assert "\n" not in str(caught.value)


def test_a_recipe_of_another_version() -> None:
    tree = to_dict(PLAIN)
    with pytest.raises(RecipeError, match=r"recipe.train has no field 'speed'"):
        from_dict(tree | {"train": tree["train"] | {"speed": 1}})
    with pytest.raises(RecipeError, match=r"recipe: .*missing.*'train'"):
        from_dict({name: value for name, value in tree.items() if name != "train"})
    with pytest.raises(RecipeError, match=r"recipe.data must be a table, not 3"):
        from_dict(tree | {"data": 3})
    with pytest.raises(RecipeError, match=r"recipe.model.kind is None: it must be one of"):
        from_dict(tree | {"model": {"base": "tiny"}})

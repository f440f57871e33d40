"""Recipes: each one loads, survives JSON, and trains through the real command line at tiny size."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bridges import base, episode, prepare
from typer.testing import CliRunner

from uivlm.cli import app
from uivlm.models.model import grammar
from uivlm.recipe import (
    Data,
    GrammarPart,
    LlamaVit,
    Lora,
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
NUM_STEPS = [1 + i % 3 for i in range(20)]  # of the small data's episodes
PLAIN = Recipe("plain", LlamaVit("tiny"), GrammarPart(), Data("data"), Train())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random base and small data."""
    root = tmp_path_factory.mktemp("small")
    episodes = [episode(i, n) for i, n in enumerate(NUM_STEPS)]
    return base(root / "base"), prepare(root / "data", episodes)


def two_steps(recipe: Path, small: tuple[Path, Path], out: Path) -> list[str]:
    """The command line that trains this recipe for two steps on the small data."""
    wanted = load(recipe)
    spoken = grammar(wanted)
    rows = sum(len(list(spoken.spans(n))) for n in NUM_STEPS)
    steps = math.ceil(math.ceil(rows / wanted.train.batch) / wanted.train.accumulate)
    assert steps >= 2, f"{recipe.name} needs more rows for two steps"
    bridge, data = small
    settings = [f"model.base={bridge}", f"data.folder={data}", f"train.epochs={1.5 / steps}"]
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
    assert "tiny" in [path.stem for path in RECIPES]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_survives_json(path: Path) -> None:
    wanted = load(path)
    assert from_dict(to_dict(wanted)) == wanted
    assert from_dict(json.loads(json.dumps(to_dict(wanted)))) == wanted
    assert wanted.name == path.stem
    grammar(wanted)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_trains(path: Path, small: tuple[Path, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, two_steps(path, small, tmp_path / "out"), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    check(tmp_path / "out", path)


def test_a_recipe_trains_as_a_program(small: tuple[Path, Path], tmp_path: Path) -> None:
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
        ("model.kind=gpt", "recipe.model.kind is 'gpt': it must be one of 'llama_vit'"),
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

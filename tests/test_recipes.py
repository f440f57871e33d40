"""Recipes: each one loads, survives JSON, and trains through the real command line at tiny size."""

import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers import two_process
from tests.helpers.hf_checkpoints import write
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare, qwen_base, vocabulary
from uivlm.actions.action import Point, Swipe
from uivlm.cli.main import app
from uivlm.models.build import prompt_format
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer, read_ranks
from uivlm.recipe import RecipeError, from_dict, load, recipes_dir, to_dict
from uivlm.safety.labels import KEYWORDS_DIR

pytestmark = pytest.mark.usefixtures("quick_runs")

RECIPES = sorted(path for path in (ROOT / "recipes").glob("*.py") if path.stem != "__init__")
NUM_STEPS = [1 + i % 3 for i in range(30)]  # of the small data's episodes


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Random bases by model type, and small data."""
    root = tmp_path_factory.mktemp("small")
    episodes = [episode(i, n) for i, n in enumerate(NUM_STEPS)]
    bases = {"llama_vit": base(root / "bridge"), "qwen_vl": qwen_base(root / "qwen")}
    bases["qwen_hf"] = write(root / "hf", "Qwen3VL")
    bases["llama_parts"] = write_llama(root / "llama")
    write_vision(root / "vision", "siglip")
    return bases, prepare(root / "data", episodes)


def two_steps(recipe: Path, small: tuple[dict[str, Path], Path], out: Path, *more: str) -> list[str]:
    """The command line that trains this recipe for two steps on the small data."""
    args = load(recipe)
    spans = prompt_format(args).spans
    rows = sum(len(list(spans(n))) for n in NUM_STEPS)
    batches = math.ceil(rows / args.train.per_device_batch_size)
    steps = math.ceil(batches / args.train.gradient_accumulation_steps)
    if args.train.max_packed_tokens is not None:
        steps = 1  # all rows of the small data fit into its forward passes
    assert steps >= 2 or args.train.max_packed_tokens, f"{recipe.name} needs more rows for two steps"
    bases, data = small
    vision = f"model.vision_encoder={data.with_name('vision')}"
    settings = [
        *([vision] if args.model.type == "llama_parts" else []),
        f"model.base_model={bases[args.model.type]}",
        f"data.path={data}",
        f"train.epochs={1.5 / steps}",
        *more,
    ]
    return [
        "train",
        str(recipe),
        *(argument for setting in settings for argument in ("--set", setting)),
        "--out",
        str(out),
    ]


def check(out: Path, recipe: Path) -> None:
    """Two finite steps, and a checkpoint with its recipe."""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2]
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in log)
    saved, args = from_dict(json.loads((out / "recipe.json").read_text())), load(recipe)
    train = replace(args.train, epochs=saved.train.epochs, num_workers=saved.train.num_workers)
    assert saved == replace(args, model=saved.model, data=saved.data, train=train)


def test_there_are_recipes() -> None:
    assert {"tiny", "qwenvl"} <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_survives_json(path: Path) -> None:
    wanted = load(path)
    assert from_dict(to_dict(wanted)) == wanted
    assert from_dict(json.loads(json.dumps(to_dict(wanted)))) == wanted
    assert wanted.name == path.stem
    prompt_format(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_trains(path: Path, small: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    words = two_steps(path, small, tmp_path / "out", "train.num_workers=0")
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    check(tmp_path / "out", path)


@pytest.mark.slow
def test_a_recipe_trains_as_a_program(
    small: tuple[dict[str, Path], Path], parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    path, output = ROOT / "recipes" / "tiny.py", tmp_path / "output"
    command = ["-m", "uivlm", *two_steps(path, small, tmp_path / "out")]
    process = two_process.begin_alone(parent, command, output)
    assert two_process.ended(parent, [process]) == [0], output.read_text()
    check(tmp_path / "out", path)


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    """Before slow imports, on stderr, with exit status 2 and no traceback."""
    command = [
        sys.executable,
        "-m",
        "uivlm",
        "train",
        str(ROOT / "recipes" / "tiny.py"),
        "--set",
        "optim.lr=high",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "recipe.optim.lr: expected a number, got 'high'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_longest_sentences_of_qwenvl_fit() -> None:
    """Six screens of 258 tokens, the longest swipes before and between them, and 100 tokens of text."""
    wanted = load(ROOT / "recipes" / "qwenvl.py")
    tokens = QwenTokenizer(read_ranks(vocabulary()))
    swipe = prompt_format(wanted).action_text.format(Swipe(Point(0.105, 0.205), Point(0.305, 0.405)))
    assert swipe == "swipe from 10 20 to 30 40"
    words = len(tokens.encode(f"{swipe}\n"))
    part = wanted.prompt
    assert 100 + part.max_past_actions * words + part.max_screens * (258 + 1 + words) <= 2048


# -- files -----------------------------------------------------------------------------------------


def test_a_recipe_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From any folder."""
    monkeypatch.chdir(tmp_path)
    assert load("tiny") == load(ROOT / "recipes" / "tiny.py")
    with pytest.raises(RecipeError, match=r"'nothing': .*tiny"):
        load("nothing")


def test_an_installed_package_has_its_recipes_inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As setup.py puts them into the wheel: uivlm/recipes next to uivlm/recipe."""
    shutil.copytree(ROOT / "recipes", tmp_path / "uivlm" / "recipes")
    monkeypatch.setattr("uivlm.recipe.file.__file__", str(tmp_path / "uivlm" / "recipe" / "file.py"))
    assert recipes_dir() == tmp_path / "uivlm" / "recipes"
    assert load("tiny_blind").name == "tiny_blind"


def test_the_wheel_has_the_recipes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("uivlm", "data_prep", "recipes"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True, timeout=120)
    (wheel,) = (source / "dist").glob("*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {f"uivlm/recipes/{path.name}" for path in RECIPES} <= files
    assert {"data_prep/__main__.py", "uivlm/console/page.html", "uivlm/reports/templates/base.html"} <= files
    keywords = {f"uivlm/safety/keywords/{path.name}" for path in KEYWORDS_DIR.glob("*.toml")}
    assert keywords
    assert keywords <= files


@pytest.mark.parametrize("text", ["", "def recipe():\n    return 1\n", "recipe = 3\n"])
def test_a_file_that_is_no_recipe(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(RecipeError, match=r"odd.py .* recipe\(\)"):
        load(tmp_path / "odd.py")

"""The verbs that train and score, end to end on small data."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.helpers import tiny_models
from tests.helpers.command_line import Uivlm, refused
from tests.helpers.paths import ROOT


@pytest.mark.slow
def test_train_then_evaluate(uivlm: Uivlm, small: Path) -> None:
    status, out, err = uivlm("train", str(small / "small.py"), "--set", "train.epochs=2", "--out", "mine")
    assert status == 0, err
    assert "checkpoint: mine" in out
    assert json.loads(Path("mine/recipe.json").read_text())["train"]["epochs"] == 2
    status, out, err = uivlm("eval", "mine", str(small / "data"), "--split", "train", "--out", "scores")
    assert status == 0, err
    assert "overall" in out
    assert len(Path("scores/verdicts.jsonl").read_text().splitlines()) == 1 + 4
    assert "general" in Path("scores/report.html").read_text()
    assert json.loads(Path("scores/card.json").read_text())["batch_size"] == 16
    options = ("--split", "train", "--free-running", "--protocol", "autoui", "--as-released", "--out", "free")
    status, out, err = uivlm("eval", "mine", str(small / "data"), *options)
    assert status == 0, err
    assert "autoui, as released" in out
    assert "mine on train, free-running" in Path("free/report.html").read_text()


@pytest.mark.slow
def test_train_in_two_stages(uivlm: Uivlm, small: Path) -> None:
    """The first stage changes the projection alone; the second one starts from it, scores and merges."""

    def done(*words: str) -> None:
        status, _, err = uivlm(*words)
        assert status == 0, err

    recipe = str(small / "small.py")
    alone = ["model.lora=null", "model.freeze_language_model=true", "train.epochs=3"]
    done("train", recipe, *(word for one in alone for word in ("--set", one)), "--out", "stage1")
    done("train", recipe, "--set", "model.projector=stage1", "--set", "optim.lr=1e-12", "--out", "stage2")
    done("eval", "stage2", str(small / "data"), "--split", "train", "--out", "scores")
    done("merge", "stage1", "--out", "base1")
    done("merge", "stage2", "--out", "base2")
    base, base1, base2 = (
        load_file(folder / "model.safetensors") for folder in (small / "base", Path("base1"), Path("base2"))
    )
    changed = {name for name, value in base.items() if not base1[name].equal(value.float())}
    assert changed == {"projection.weight", "projection.bias"}
    for name in changed:
        torch.testing.assert_close(base2[name], base1[name], msg="its rate is too small for a change")


def test_scores_beside_each_other(uivlm: Uivlm, small: Path) -> None:
    """Baselines, protocols, another tool's file, a comparison: all from the command line."""
    data = [str(small / "data"), "--split", "train"]
    for name in ("majority", "repeat-last", "nearest", "oracle"):
        status, out, err = uivlm("baseline", name, *data, "--out", name)
        assert status == 0, err
        assert json.loads(Path(name, "card.json").read_text())["baseline"] == name
    assert re.search(r"overall +\d+ +4 +100.0", out), "the oracle"
    status, out, err = uivlm("score", "oracle/verdicts.jsonl", *data)
    assert status == 0, err
    for protocol in ("aitw", "autoui", "seeclick", "showui", "aitz", "androidcontrol"):
        assert re.search(rf"(?m)^ *{protocol} +100.0 ", out), protocol
    assert "seeclick, as released" in out
    status, out, err = uivlm("compare", "majority", "oracle")
    assert status == 0, err
    assert "McNemar" in out
    rows = [json.loads(line) for line in Path("oracle/verdicts.jsonl").read_text().splitlines()[1:]]
    answers = [{"episode": row["episode"], "step": row["step"], "answer": row["text"]} for row in rows]
    Path("answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    status, out, err = uivlm("score", "answers.jsonl", *data)
    assert status == 0, err
    assert re.search(r"(?m)^ *aitw +100.0 ", out)
    status, out, err = uivlm(
        "score", "answers.jsonl", *data, "--answer-format", "uitars", "--coordinate-range", "2400x1080"
    )
    assert re.search(r"(?m)^ *aitw +0.0 .* 4 +0 +4 +0", out), "no call of UI-TARS: all four are unreadable"
    assert "--coordinate-range" in refused(uivlm("score", "answers.jsonl", *data, "--coordinate-range", "10"))
    assert "nowhere.jsonl" in refused(uivlm("score", "nowhere.jsonl", *data))
    Path("oracle/verdicts.jsonl").write_text("{}\n")
    assert "verdicts" in refused(uivlm("compare", "majority", "oracle"))


@pytest.mark.slow
def test_train_qwenvl_then_evaluate(uivlm: Uivlm, small: Path, tmp_path: Path) -> None:
    """The paper's recipe on a tiny checkpoint in Qwen-VL's own format."""
    recipe, base = str(ROOT / "recipes" / "qwenvl.py"), tiny_models.qwen_base(tmp_path / "qwen")
    settings = [
        f"model.base_model={base}",
        f"data.path={small / 'data'}",
        "train.epochs=2",
        "model.lora.r=4",
        "train.num_workers=0",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    status, out, err = uivlm("train", recipe, *words, "--out", "mine")
    assert status == 0, err
    assert "[4 visual tokens]" in out
    assert {file.name for file in Path("mine").iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "card.json", "curves.html", "log.jsonl",
        "recipe.json",
    }  # fmt: skip
    assert [json.loads(line)["step"] for line in Path("mine/log.jsonl").read_text().splitlines()] == [1, 2]
    status, out, err = uivlm("eval", "mine", str(small / "data"), "--split", "train", "--out", "scores")
    assert status == 0, err
    assert len(Path("scores/verdicts.jsonl").read_text().splitlines()) == 1 + 4
    Path("mine/projector.safetensors").write_bytes(b"")
    assert "projector.safetensors" in refused(uivlm("eval", "mine", str(small / "data")))


def test_no_qwenvl(uivlm: Uivlm, small: Path) -> None:
    recipe, data = str(ROOT / "recipes" / "qwenvl.py"), f"data.path={small / 'data'}"
    words = refused(uivlm("train", recipe, "--set", data, "--set", "model.base_model=no/such/folder"))
    assert "no folder no/such/folder with a Qwen-VL" in words
    words = refused(uivlm("train", recipe, "--set", data, "--set", "model.lora=null"))
    assert "set train.precision to float32" in words


def test_base_is_a_checkpoint(uivlm: Uivlm, small: Path) -> None:
    status, _, err = uivlm("init", str(small / "small.py"), "--out", "untuned")
    assert status == 0, err
    assert json.loads(Path("untuned/card.json").read_text())["data"] == []


def test_show(uivlm: Uivlm, small: Path) -> None:
    status, out, err = uivlm("show", str(small / "data"), "0", "--out", "strip.png")
    assert status == 0, err
    assert "tap at 10 90" in out
    with Image.open("strip.png") as picture:
        assert picture.width > picture.height / 2
    assert "no episode 1" in refused(uivlm("show", str(small / "data"), "1"))

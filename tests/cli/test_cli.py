"""The command line: verbs and options are pinned, bad input is one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
import typer

from tests.helpers.command_line import GOAL, Scripted, Uivlm, refused
from tests.helpers.paths import ROOT
from uivlm.actions.action import Finish
from uivlm.cli import main
from uivlm.devices.adb.server import private_server
from uivlm.serving.server import serve_in_thread

# A change here is a change of the command line: CHANGELOG.md and README.md change with it.
OPTIONS = {
    "estimate": "recipe --set --gpus --memory --tflops --data",
    "download": "out",
    "import-adapter": "recipe adapters --out --set",
    "merge": "ckpt --out --fetch",
    "export": "ckpt --to --out --fetch",
    "train": "recipe --set --out --resume",
    "init": "recipe --out --set",
    "eval": "ckpt data --split --max-episodes --subset --free-running --constrained --protocol --as-released "
    "--batch-size --workers --executor --out --fetch",
    "baseline": "name data --split --max-episodes --subset --free-running --out",
    "score": "answers data --split --max-episodes --subset --answer-format --coordinate-range --history",
    "compare": "a b",
    "eval-online": "agent --suite --num-goals --seed --num-seeds --max-steps --trace-dir --fetch",
    "serve": "ckpt --host --port --max-cached-prefixes --backend "
    "--tensor-parallel-size --gpu-memory-utilization --fetch",
    "run": "goal --agent --device --serial --url --max-steps --sim-seed --sim-task --policy "
    "--trace-dir --fetch",
    "console": "--agent --device --serial --url --sim-seed --policy --trace-dir --port --fetch",
    "replay": "run --device --serial --url --sim-seed --sim-task --tolerance --policy --trace-dir",
    "gif": "run out",
    "doctor": "--serial",
    "show": "data index --split --out",
    "pretrain": "out --seed",
    "demo": "--out --seed --episodes --test --goals",
    "simulate": "out --episodes --test --seed --workers",
    "record-miniwob": "out --episodes --test --seed --task",
    "export-chat": "data out --chat-format --max-screens --max-past-actions",
    "publish": "data repo_id --public",
}


def test_verbs_and_options_are_pinned() -> None:
    group = typer.main.get_command(main.app)
    options = {
        verb: " ".join(p.opts[0] if p.opts[0].startswith("-") else str(p.name) for p in command.params)
        for verb, command in group.commands.items()
    }
    assert options == OPTIONS
    assert all(command.help for command in group.commands.values())


def test_help_of_every_verb(uivlm: Uivlm) -> None:
    for verb in OPTIONS:
        status, out, _ = uivlm(verb, "--help")
        assert status == 0
        assert verb in out


def test_unknown_verb_and_option(uivlm: Uivlm) -> None:
    assert uivlm("fly")[0] == 2
    assert uivlm("train", "tiny", "--speed", "9")[0] == 2


# -- bad input -------------------------------------------------------------------------------------


def test_missing_folder_of_data(uivlm: Uivlm) -> None:
    assert "no folder nowhere" in refused(uivlm("show", "nowhere"))
    assert "no folder nowhere" in refused(uivlm("eval", "checkpoint", "nowhere"))


def test_unknown_recipe(uivlm: Uivlm) -> None:
    assert "no recipe 'nosuch'" in refused(uivlm("train", "nosuch"))


def test_a_gpu_that_is_too_small(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("uivlm.training.train.train", too_small)
    says = refused(uivlm("train", str(ROOT / "recipes" / "tiny.py"), "--out", "mine"))
    assert "`uivlm estimate`" in says
    assert "train.per_device_batch_size" in says


@pytest.mark.parametrize(
    "setting", ["optim.lr", "train.speed=1", "optim.lr=fast", "train.per_device_batch_size=0", "model=x"]
)
def test_bad_setting(uivlm: Uivlm, setting: str) -> None:
    words = refused(uivlm("train", "tiny", "--set", setting))
    assert setting.partition("=")[0] in words


def test_missing_checkpoint(uivlm: Uivlm) -> None:
    assert "nowhere" in refused(uivlm("serve", "nowhere"))
    assert "nowhere" in refused(uivlm("run", GOAL, "--agent", "nowhere"))
    Path("empty").mkdir()
    assert "empty" in refused(uivlm("serve", "empty"))


@pytest.mark.parametrize("kept", [0, 0.5])
@pytest.mark.parametrize(
    "name", ["recipe.json", "adapter_config.json", "adapter_model.safetensors", "projector.safetensors"]
)
def test_damaged_checkpoint(uivlm: Uivlm, checkpoint: Path, tmp_path: Path, name: str, kept: float) -> None:
    damaged = shutil.copytree(checkpoint, tmp_path / "damaged")
    whole = (damaged / name).read_bytes()
    (damaged / name).write_bytes(whole[: int(len(whole) * kept)])
    assert name in refused(uivlm("serve", str(damaged)))
    (damaged / name).unlink()
    assert name in refused(uivlm("serve", str(damaged)))


def test_data_of_another_grammar(uivlm: Uivlm, small: Path) -> None:
    words = refused(uivlm("train", str(small / "small.py"), "--set", "prompt.num_bins=50"))
    assert "50" in words
    assert "100" in words


def test_a_folder_is_not_overwritten(uivlm: Uivlm, small: Path, checkpoint: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in checkpoint.iterdir()}
    for verb in ("train", "init"):
        assert "exists" in refused(uivlm(verb, str(small / "small.py"), "--out", str(checkpoint)))
    assert {file: file.stat().st_mtime_ns for file in checkpoint.iterdir()} == before


def test_nobody_answers(uivlm: Uivlm) -> None:
    with serve_in_thread({"gone": Scripted(Finish("complete"))}) as gone:
        pass
    assert "uivlm serve" in refused(uivlm("run", GOAL, "--agent", gone))
    assert "uivlm serve" in refused(uivlm("eval-online", gone, "--num-goals", "1"))


def test_no_phone(uivlm: Uivlm, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_server() as adb:  # so that the machine's own server is left alone
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", adb.options[-1])
        answer = uivlm("run", GOAL, "--agent", url, "--device", "adb")
    assert "no phone is connected" in refused(answer)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--sim-task"),
        ((GOAL, "--sim-task", "3"), "either a goal or --sim-task"),
        (("--sim-task", "3", "--sim-seed", "1"), "--sim-seed"),
        ((GOAL, "--device", "adb", "--sim-seed", "1"), "--sim-seed"),
        (("--device", "adb", "--sim-task", "3"), "--sim-task"),
        ((GOAL, "--serial", "x"), "--serial"),
        ((GOAL, "--url", "http://127.0.0.1/"), "--url"),
        ((GOAL, "--device", "web"), "--url"),
        ((GOAL, "--device", "web", "--url", "http://127.0.0.1/", "--sim-seed", "1"), "--sim-seed"),
    ],
)
def test_an_option_without_effect_is_an_error(uivlm: Uivlm, words: tuple[str, ...], named: str) -> None:
    assert named in refused(uivlm("run", *words))


def test_demo_keeps_what_is_there(uivlm: Uivlm) -> None:
    folder = Path("mine")
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    assert "mine already exists" in refused(uivlm("demo", "--out", "mine"))
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_a_defect_of_ours_is_not_called_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        main.main()

"""The command line: verbs and options pinned, bad input told in one sentence, a run on the simulated phone."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
import typer
from PIL import Image

from uivlm import cli
from uivlm.actions.action import Finish, Press
from uivlm.agents.agent import Decision
from uivlm.devices.adb_server import own_server
from uivlm.devices.sim.tasks import task
from uivlm.episode import History
from uivlm.loop import EXIT_STATUS
from uivlm.serving.server import serving

ROOT = Path(__file__).parents[1]

# A change here is a change of the command line: CHANGELOG.md and README.md say so too.
OPTIONS = {
    "plan": ["recipe", "--set", "--gpus", "--memory", "--tflops", "--data"],
    "fetch": ["out"],
    "adopt": ["recipe", "adapters", "--out", "--set"],
    "merge": ["ckpt", "--out"],
    "export": ["ckpt", "--to", "--out"],
    "train": ["recipe", "--set", "--out", "--resume"],
    "base": ["recipe", "--out", "--set"],
    "eval": [
        "ckpt",
        "data",
        "--split",
        "--limit",
        "--subset",
        "--free",
        "--bound",
        "--protocol",
        "--with-defects",
        "--together",
        "--workers",
        "--engine",
        "--out",
    ],
    "baseline": ["name", "data", "--split", "--limit", "--subset", "--free", "--out"],
    "score": ["answers", "data", "--split", "--limit", "--subset", "--dialect", "--size", "--history"],
    "compare": ["a", "b"],
    "live": ["agent", "--suite", "--goals", "--seed", "--seeds", "--limit", "--trace"],
    "serve": ["ckpt", "--host", "--port", "--keep", "--engine"],
    "run": [
        "goal",
        "--agent",
        "--device",
        "--serial",
        "--page",
        "--limit",
        "--seed",
        "--task",
        "--policy",
        "--trace",
    ],
    "console": ["--agent", "--device", "--serial", "--page", "--seed", "--policy", "--traces", "--port"],
    "replay": [
        "run",
        "--device",
        "--serial",
        "--page",
        "--seed",
        "--task",
        "--strict",
        "--policy",
        "--trace",
    ],
    "film": ["run", "out"],
    "doctor": ["--serial"],
    "show": ["data", "index", "--split", "--out"],
    "pretrain": ["out", "--seed"],
    "demo": ["--out", "--seed", "--episodes", "--test", "--goals"],
}


class Scripted:
    """Presses home `presses` times, then finishes."""

    def __init__(self, finish: Finish, presses: int = 1) -> None:
        self.finish, self.presses = finish, presses

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        if len(history.steps) < self.presses:
            return Decision(Press("home"), "press home")
        return Decision(self.finish, self.finish.status)


Uivlm = Callable[..., tuple[int, str, str]]


@pytest.fixture
def uivlm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Uivlm:
    """The command in an empty folder -> exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["uivlm", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving({"scripted": Scripted(Finish("complete"))}) as address:
        yield address


def refused(answer: tuple[int, str, str]) -> str:
    """The one sentence on stderr."""
    status, out, err = answer
    assert status == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.count("\n") == 1, err
    assert err.startswith("uivlm: ")
    return err


def test_verbs_and_options_are_pinned() -> None:
    group = typer.main.get_command(cli.app)
    found = {
        verb: [(p.opts[0] if p.opts[0].startswith("-") else str(p.name)) for p in command.params]
        for verb, command in group.commands.items()
    }
    assert found == OPTIONS
    assert all(command.help for command in group.commands.values())


def test_help_of_every_verb(uivlm: Uivlm) -> None:
    for verb in OPTIONS:
        status, out, _ = uivlm(verb, "--help")
        assert status == 0
        assert verb in out


def test_unknown_verb_and_option(uivlm: Uivlm) -> None:
    assert uivlm("fly")[0] == 2
    assert uivlm("train", "tiny", "--speed", "9")[0] == 2


# -- bad input ----------------------------------------------------------------------------------------------------


def test_missing_folder_of_data(uivlm: Uivlm) -> None:
    assert "no folder nowhere" in refused(uivlm("show", "nowhere"))
    assert "no folder nowhere" in refused(uivlm("eval", "checkpoint", "nowhere"))


def test_unknown_recipe(uivlm: Uivlm) -> None:
    assert "no recipe 'nosuch'" in refused(uivlm("train", "nosuch"))


def test_a_gpu_that_is_too_small(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("uivlm.training.trainer.train", too_small)
    says = refused(uivlm("train", str(ROOT / "recipes" / "tiny.py"), "--out", "mine"))
    assert "the GPU's memory is too small for this: `uivlm plan` says what is needed" in says


@pytest.mark.parametrize(
    "setting", ["train.lr", "train.speed=1", "train.lr=fast", "train.batch=0", "model=x"]
)
def test_bad_setting(uivlm: Uivlm, setting: str) -> None:
    Path("recipes").symlink_to(ROOT / "recipes")
    words = refused(uivlm("train", "tiny", "--set", setting))
    assert setting.partition("=")[0] in words


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random base, prepared data and a recipe, all small."""
    import bridges

    from uivlm.recipe import to_dict

    root = tmp_path_factory.mktemp("small")
    base, data = bridges.base(root / "base"), bridges.prepare(root / "data", [bridges.episode(0, 4)])
    tree = to_dict(bridges.recipe(base, data))
    (root / "small.py").write_text(
        f"from uivlm.recipe import from_dict\n\n\ndef recipe():\n    return from_dict({tree!r})\n"
    )
    return root


@pytest.fixture(scope="module")
def checkpoint(small: Path) -> Path:
    from uivlm.recipe import load
    from uivlm.training.checkpoint import base_checkpoint

    return base_checkpoint(load(small / "small.py"), small / "checkpoint")


def test_missing_checkpoint(uivlm: Uivlm) -> None:
    assert "nowhere" in refused(uivlm("serve", "nowhere"))
    assert "nowhere" in refused(uivlm("run", "open the clock", "--agent", "nowhere"))
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
    words = refused(uivlm("train", str(small / "small.py"), "--set", "grammar.bins=50"))
    assert "50" in words
    assert "100" in words


def test_a_folder_is_not_overwritten(uivlm: Uivlm, small: Path, checkpoint: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in checkpoint.iterdir()}
    for verb in ("train", "base"):
        assert "exists" in refused(uivlm(verb, str(small / "small.py"), "--out", str(checkpoint)))
    assert {file: file.stat().st_mtime_ns for file in checkpoint.iterdir()} == before


def test_nobody_answers(uivlm: Uivlm) -> None:
    with serving({"gone": Scripted(Finish("complete"))}) as gone:
        pass
    assert "uivlm serve" in refused(uivlm("run", "open the clock", "--agent", gone))
    assert "uivlm serve" in refused(uivlm("live", gone, "--goals", "1"))


def test_no_phone(uivlm: Uivlm, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_server() as adb:  # so that the machine's own server is left alone
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", adb.options[-1])
        answer = uivlm("run", "open the clock", "--agent", url, "--device", "adb")
    assert "no phone is connected" in refused(answer)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--task"),
        (("open the clock", "--task", "3"), "once"),
        (("--task", "3", "--seed", "1"), "--seed"),
        (("open the clock", "--device", "adb", "--seed", "1"), "--seed"),
        (("--device", "adb", "--task", "3"), "--task"),
        (("open the clock", "--serial", "x"), "--serial"),
        (("open the clock", "--page", "http://127.0.0.1/"), "--page"),
        (("open the clock", "--device", "web"), "--page"),
        (("open the clock", "--device", "web", "--page", "http://127.0.0.1/", "--seed", "1"), "--seed"),
    ],
)
def test_an_option_without_effect_is_an_error(uivlm: Uivlm, words: tuple[str, ...], named: str) -> None:
    assert named in refused(uivlm("run", *words))


def test_demo_keeps_what_is_there(uivlm: Uivlm) -> None:
    folder = Path("mine")
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    assert "already holds something" in refused(uivlm("demo", "--out", "mine"))
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_a_defect_of_ours_is_not_called_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        cli.main()


# -- training and evaluation ---------------------------------------------------------------------------------------


def test_train_then_evaluate(uivlm: Uivlm, small: Path) -> None:
    status, out, err = uivlm("train", str(small / "small.py"), "--set", "train.epochs=2", "--out", "mine")
    assert status == 0, err
    assert "checkpoint: mine" in out
    assert json.loads(Path("mine/recipe.json").read_text())["train"]["epochs"] == 2
    status, out, err = uivlm("eval", "mine", str(small / "data"), "--split", "train", "--out", "scores")
    assert status == 0, err
    assert "overall" in out
    assert len(Path("scores/verdicts.jsonl").read_text().splitlines()) == 4
    assert "general" in Path("scores/report.html").read_text()
    assert json.loads(Path("scores/card.json").read_text())["together"] == 16
    options = ("--split", "train", "--free", "--protocol", "autoui", "--with-defects", "--out", "free")
    status, out, err = uivlm("eval", "mine", str(small / "data"), *options)
    assert status == 0, err
    assert "autoui, with its defects" in out
    assert "mine on train, free-running" in Path("free/report.html").read_text()


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
        assert re.search(rf"│ {protocol} +│ +100.0 ", out), protocol
    assert "seeclick, with its defects" in out
    status, out, err = uivlm("compare", "majority", "oracle")
    assert status == 0, err
    assert "McNemar" in out
    rows = [json.loads(line) for line in Path("oracle/verdicts.jsonl").read_text().splitlines()]
    said = [{"episode": row["episode"], "t": row["t"], "answer": row["said"]} for row in rows]
    Path("said.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in said))
    status, out, err = uivlm("score", "said.jsonl", *data)
    assert status == 0, err
    assert re.search(r"│ aitw +│ +100.0 ", out)
    status, out, err = uivlm("score", "said.jsonl", *data, "--dialect", "uitars", "--size", "2400x1080")
    assert re.search(r"│ aitw +│ +0.0 .* 100.0 ", out), "no call of UI-TARS"
    assert "say height and width, such as 2400x1080" in refused(
        uivlm("score", "said.jsonl", *data, "--size", "10")
    )
    assert "no file of answers" in refused(uivlm("score", "nowhere.jsonl", *data))
    Path("oracle/verdicts.jsonl").write_text("{}\n")
    assert "holds no verdicts of this version" in refused(uivlm("compare", "majority", "oracle"))


def test_train_qwenvl_then_evaluate(uivlm: Uivlm, small: Path, tmp_path: Path) -> None:
    """The paper's recipe on a tiny checkpoint in Qwen-VL's own format."""
    import bridges

    recipe, base = str(ROOT / "recipes" / "qwenvl.py"), bridges.qwen_base(tmp_path / "qwen")
    settings = [f"model.base={base}", f"data.folder={small / 'data'}", "train.epochs=2", "model.lora.r=4"]
    words = [word for setting in settings for word in ("--set", setting)]
    status, out, err = uivlm("train", recipe, *words, "--out", "mine")
    assert status == 0, err
    assert "[4 visual tokens]" in out
    assert {file.name for file in Path("mine").iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "card.json", "curves.html", "log.jsonl", "recipe.json",
    }  # fmt: skip
    assert [json.loads(line)["step"] for line in Path("mine/log.jsonl").read_text().splitlines()] == [1, 2]
    status, out, err = uivlm("eval", "mine", str(small / "data"), "--split", "train", "--out", "scores")
    assert status == 0, err
    assert len(Path("scores/verdicts.jsonl").read_text().splitlines()) == 4
    Path("mine/projector.safetensors").write_bytes(b"")
    assert "projector.safetensors" in refused(uivlm("eval", "mine", str(small / "data")))


def test_no_qwenvl(uivlm: Uivlm, small: Path) -> None:
    recipe, data = str(ROOT / "recipes" / "qwenvl.py"), f"data.folder={small / 'data'}"
    words = refused(uivlm("train", recipe, "--set", data, "--set", "model.base=no/such/folder"))
    assert "no folder no/such/folder with a Qwen-VL" in words
    words = refused(uivlm("train", recipe, "--set", data, "--set", "model.lora=null"))
    assert "set train.precision to float32" in words


def test_base_is_a_checkpoint(uivlm: Uivlm, small: Path) -> None:
    status, _, err = uivlm("base", str(small / "small.py"), "--out", "untuned")
    assert status == 0, err
    assert json.loads(Path("untuned/card.json").read_text())["data"] == []


def test_show(uivlm: Uivlm, small: Path) -> None:
    status, out, err = uivlm("show", str(small / "data"), "0", "--out", "strip.png")
    assert status == 0, err
    assert "tap at 10 90" in out
    with Image.open("strip.png") as picture:
        assert picture.width > picture.height / 2
    assert "no episode 1" in refused(uivlm("show", str(small / "data"), "1"))


# -- running ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "limit", "status"),
    [
        (Scripted(Finish("complete")), 5, 0),
        (Scripted(Finish("impossible")), 5, 3),
        (Scripted(Finish("complete"), presses=9), 2, 4),
    ],
)
def test_run_on_the_simulated_phone(uivlm: Uivlm, agent: Scripted, limit: int, status: int) -> None:
    with serving({"scripted": agent}) as address:
        found, out, err = uivlm(
            "run", "go [red]home", "--agent", address, "--limit", str(limit), "--trace", "trace"
        )
    assert found == status, err
    assert "goal: go [red]home" in out
    rows = [json.loads(row) for row in Path("trace/trace.jsonl").read_text().splitlines()]
    assert len(rows) == min(limit, agent.presses + 1)
    assert rows[0]["gesture"] == {"kind": "Button", "name": "home"}
    assert Path("trace/index.html").is_file()


def test_run_a_task(uivlm: Uivlm, url: str) -> None:
    """The phone judges: pressing home does not reach this goal."""
    number = next(n for n in range(1000) if task(n, "test").kind == "message")
    status, out, _ = uivlm("run", "--task", str(number), "--agent", url)
    assert status == 0  # the agent did say complete
    assert f"goal: {task(number, 'test').goal}" in out
    assert "goal not reached" in out
    assert len(list(Path("runs/trace").iterdir())) == 1


def test_live(uivlm: Uivlm, url: str) -> None:
    status, out, err = uivlm("live", url, "--goals", "2", "--seeds", "2", "--trace", "traces")
    assert status == 0, err
    assert "of 4 goals" in out
    assert "seed 1" in out
    assert sorted(path.name for path in Path("traces").iterdir()) == ["0", "1", "index.html"]
    assert sorted(path.name for path in Path("traces/1").iterdir()) == ["0000", "0001"]
    assert "rightly finished" in json.loads(Path("traces/1/0001/run.json").read_text())["judged"]
    assert Path("traces/index.html").read_text().count("<tr>") == 5


def test_a_policy_holds(uivlm: Uivlm, url: str) -> None:
    """The agent presses home, which the policy's list of apps does not allow where it starts."""
    Path("policy.toml").write_text('[safety]\nallow = ["com.android.deskclock"]\n')
    status, out, _ = uivlm("run", "go", "--agent", url, "--policy", "policy.toml", "--trace", "trace")
    assert status == EXIT_STATUS["denied"]
    assert "the policy does not allow it" in out
    assert json.loads(Path("trace/run.json").read_text())["status"] == "denied"
    Path("policy.toml").write_text("[safety]\nalow = []\n")
    assert "policy.toml: safety.alow is no setting" in refused(
        uivlm("run", "go", "--agent", url, "--policy", "policy.toml")
    )


def test_a_run_is_done_again_and_filmed(uivlm: Uivlm, url: str) -> None:
    assert uivlm("run", "go home", "--agent", url, "--seed", "3", "--trace", "trace")[0] == 0
    status, _, err = uivlm("replay", "trace", "--seed", "3", "--trace", "again")
    assert status == 0, err
    assert json.loads(Path("again/run.json").read_text())["replay of"] == "trace"
    assert uivlm("replay", "trace", "--seed", "4", "--trace", "other")[0] == EXIT_STATUS["agent error"]
    assert "no trace" in refused(uivlm("replay", "nowhere"))
    status, _, err = uivlm("film", "trace", "trace.gif")
    assert status == 0, err
    with Image.open("trace.gif") as film:
        assert film.format == "GIF"
        assert getattr(film, "n_frames", 1) == 2
    assert "GIF" in refused(uivlm("film", "trace", "trace.mp4"))


def test_doctor_finds_no_phone(uivlm: Uivlm, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_server() as adb:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", adb.options[-1])
        status, out, _ = uivlm("doctor")
    assert status == 1
    assert "no phone" in out


@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
def test_a_run_ends_on_request(signal_name: str, url: str, tmp_path: Path) -> None:
    """Whole trace, its own status, and no adb server left."""
    command = [
        sys.executable,
        "-m",
        "uivlm",
        "run",
        "go",
        "--agent",
        url,
        "--limit",
        "100000",
        "--trace",
        "trace",
    ]
    policy = tmp_path / "policy.toml"
    policy.write_text("[safety]\nask_in = []\ncommits = []\nmax_repeats = 100000\nmax_steps = 100000\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with serving({"slow": Scripted(Finish("complete"), 100_000)}) as slow:
        command[command.index(url)] = slow
        run = subprocess.Popen(
            [*command, "--policy", str(policy)], cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE
        )
        rows = tmp_path / "trace" / "trace.jsonl"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (rows.is_file() and rows.stat().st_size):
            time.sleep(0.05)
        servers = psutil.Process(run.pid).children(recursive=True)
        assert servers, "the run's own adb server"
        run.send_signal(getattr(signal, signal_name))
        out, _ = run.communicate(timeout=30)
    assert run.returncode == EXIT_STATUS["interrupted"], out
    told = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert told["status"] == "interrupted"
    assert told["steps"] == len(rows.read_text().splitlines())
    assert not psutil.wait_procs(servers, timeout=10)[1]


WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "peft", "tokenizers", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from uivlm.cli import main
main()
"""


def without_torch(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", WITHOUT_TORCH, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(program, capture_output=True, text=True, cwd=cwd, timeout=60, env=environment)


def test_a_phone_host_runs_without_torch(url: str, tmp_path: Path) -> None:
    done = without_torch("run", "go home", "--agent", url, "--trace", "trace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace" / "index.html").is_file()


def test_the_missing_extra_is_named(tmp_path: Path) -> None:
    done = without_torch("serve", "checkpoint", cwd=tmp_path)
    assert done.returncode == 2
    assert "`model` extra" in done.stderr
    assert "Traceback" not in done.stderr

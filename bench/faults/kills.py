"""SIGKILL at seeded moments: of `uivlm run`, of data preparation, of evaluation and of training.

Each is finished by the same command afterwards, and its files are compared with those of a run that was left
alone.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from row import Attack

from uivlm.actions.action import Press
from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History
from uivlm.rollout.trace_reader import read_trace
from uivlm.serving.server import serve_in_thread

NUM_RUN_KILLS, NUM_DATA_KILLS, NUM_EVAL_KILLS, NUM_TRAIN_KILLS = 5, 4, 3, 3
NUM_EPISODES, NUM_TEST_EPISODES = 64, 24
MAX_SECONDS = 180  # of one command
UIVLM = (sys.executable, "-m", "uivlm")
TRAIN_SETTINGS = ("train.epochs=1", "train.save_minutes=1e-9", "train.num_workers=0", "train.report_to=[]")
POLICY = "[safety]\nmax_repeats = 100000\nmax_steps = 100000\n"


def attacks(folder: Path) -> Iterator[Attack]:
    promise = "finished to the same bytes"
    yield Attack(f"kill -9 of run x {NUM_RUN_KILLS}", "a readable trace, no adb left", partial(runs, folder))
    yield Attack(f"kill -9 of data_prep x {NUM_DATA_KILLS}", promise, partial(preparation, folder))
    yield Attack(f"kill -9 of train x {NUM_TRAIN_KILLS}", promise, partial(training, folder))
    yield Attack(
        f"kill -9 of eval x {NUM_EVAL_KILLS}", "the same rows but for latency", partial(evaluation, folder)
    )


class PressesHome:
    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        time.sleep(0.1)
        return Decision(Press("home"), "press home")


def start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def kill(process: "subprocess.Popen[bytes]") -> bool:
    """With all its children. Whether it was still at work."""
    at_work = process.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return at_work


def finish(command: Sequence[str]) -> float:
    """Seconds. Raises CalledProcessError with what it printed."""
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=MAX_SECONDS)
    return time.monotonic() - began


def wait_for(file: Path, num_lines: int, process: "subprocess.Popen[bytes]") -> None:
    """Until the file has as many lines, or the process has ended."""
    until = time.monotonic() + MAX_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError):
            if len(file.read_bytes().splitlines()) >= num_lines:
                return
        time.sleep(0.01)


def digests(folder: Path, pattern: str = "*") -> dict[str, str]:
    files = (file for file in sorted(folder.rglob(pattern)) if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def runs(folder: Path) -> tuple[str, bool]:
    policy, moments, readable, before = folder / "policy.toml", random.Random(1), 0, adb_servers()
    policy.write_text(POLICY)
    with serve_in_thread({"home": PressesHome()}) as url:
        for i in range(NUM_RUN_KILLS):
            trace = folder / "killed_runs" / str(i)
            words = ("--max-steps", "100000", "--policy", str(policy), "--trace-dir", str(trace))
            process = start((*UIVLM, "run", "go home", "--agent", url, *words))
            wait_for(trace / "trace.jsonl", 1, process)
            time.sleep(moments.uniform(0, 1.5))
            at_work, run = kill(process), read_trace(trace)
            readable += at_work and run.info.status == "running" and len(run.steps) > 0
    until = time.monotonic() + 10
    while (left := adb_servers() - before) and time.monotonic() < until:
        time.sleep(0.1)
    return f"{readable} readable traces, {len(left)} adb left", readable == NUM_RUN_KILLS and not left


def adb_servers() -> set[int]:
    """Process ids."""
    servers = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if words[0].endswith(b"adb") and b"server" in b" ".join(words):
                servers.add(int(file.parent.name))
    return servers


@cache
def shards(folder: Path) -> Path:
    words = ("--episodes", str(NUM_EPISODES), "--test", str(NUM_TEST_EPISODES))
    finish((*UIVLM, "simulate", str(folder / "shards"), *words))
    return folder / "shards"


def prepare(folder: Path, out: Path) -> tuple[str, ...]:
    source = shards(folder)
    split = ("--split", str(source / "split.json"), "--workers", "2")
    return (sys.executable, "-m", "data_prep", str(source), str(out), *split)


@cache
def data(folder: Path) -> tuple[Path, float]:
    """Prepared data of a run that was left alone, and its seconds."""
    return folder / "data", finish(prepare(folder, folder / "data"))


def preparation(folder: Path) -> tuple[str, bool]:
    moments, kills, out = random.Random(4), 0, folder / "killed_data"
    whole, usual_s = data(folder)
    for _ in range(4 * NUM_DATA_KILLS):  # a kill that comes too late does not count
        process = start(prepare(folder, out))
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.4, 0.9) * usual_s)
        kills += kill(process)
        if kills == NUM_DATA_KILLS:
            break
        if out.exists():
            shutil.rmtree(out)
    if not out.exists():
        finish(prepare(folder, out))
    left, expected = list(folder.glob("killed_data.*")), digests(whole)
    equal = sum(digests(out).get(name) == digest for name, digest in expected.items())
    same = digests(out) == expected
    return (
        f"{kills} kills, {equal} of {len(expected)} files equal, {len(left)} left",
        same and not left and bool(kills),
    )


def train(folder: Path, out: Path, *more: str) -> tuple[str, ...]:
    settings = (
        word for each in (f"data.path={data(folder)[0]}", *TRAIN_SETTINGS) for word in ("--set", each)
    )
    return (*UIVLM, "train", "tiny", *settings, "--out", str(out), *more)


@cache
def checkpoint(folder: Path) -> Path:
    """Of a run that was left alone."""
    finish(train(folder, folder / "checkpoint"))
    return folder / "checkpoint"


def training(folder: Path) -> tuple[str, bool]:
    whole, out, kills = checkpoint(folder), folder / "killed_checkpoint", 0
    state = out.with_name(f"{out.name}.state")
    num_steps = len((whole / "log.jsonl").read_text().splitlines())
    for i in range(NUM_TRAIN_KILLS):
        process = start(train(folder, out, *(["--resume"] if i else [])))
        wait_for(state / "log.jsonl", 3 + i * num_steps // (NUM_TRAIN_KILLS + 1), process)
        kills += kill(process)
    finish(train(folder, out, "--resume"))
    expected, actual = digests(whole, "*.safetensors"), digests(out, "*.safetensors")
    figures = (
        f"{kills} kills in {num_steps} steps, {len(expected)} files of weights, equal: {expected == actual}"
    )
    return figures, bool(expected) and expected == actual and kills == NUM_TRAIN_KILLS


def evaluation(folder: Path) -> tuple[str, bool]:
    whole, out, kills = folder / "eval", folder / "killed_eval", 0
    words = ("eval", str(checkpoint(folder)), str(data(folder)[0]), "--batch-size", "4", "--out")
    finish((*UIVLM, *words, str(whole)))
    expected = verdicts(whole)
    for i in range(NUM_EVAL_KILLS):
        process = start((*UIVLM, *words, str(out)))
        wait_for(out / "verdicts.jsonl.partial", 2 + (i + 1) * len(expected) // (NUM_EVAL_KILLS + 2), process)
        kills += kill(process)
    finish((*UIVLM, *words, str(out)))
    equal = sum(a == b for a, b in zip(expected, verdicts(out), strict=True))
    figures = f"{kills} kills, {equal} of {len(expected)} rows equal"
    return figures, equal == len(expected) and kills == NUM_EVAL_KILLS


def verdicts(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "ms" not in name.split("_")} for row in rows]

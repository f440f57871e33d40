"""Asking an agent: side by side as one by one, its own past, stopped and gone on, several processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from bridges import prepare
from rich.console import Console
from test_evaluation import DONE, EPISODES, TAP, UP, Scripted, episode

from uivlm import wiring
from uivlm.actions.action import Finish
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import task
from uivlm.episode import History
from uivlm.evaluation.benchmark import Group, Way, evaluate, judged, run
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.verdict import Verdict, read_verdicts
from uivlm.recipe import load
from uivlm.training import checkpoint

QUIET = Console(quiet=True)
ROOT = Path(__file__).parents[1]
MANY = [episode(str(i), "AB"[i % 2], *[TAP, UP, TAP, DONE][: 1 + i % 4]) for i in range(11)]


@dataclass
class Several:
    """Answers side by side; remembers how many and which pasts."""

    words: Callable[[History], str]
    asked: list[list[int]] = field(default_factory=list)
    forgot: int = 0

    def reset(self) -> None:
        pass

    def forget(self) -> None:
        self.forgot += 1

    def act(self, history: History) -> Decision:
        return self.act_all([history])[0]

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        self.asked.append([len(history.steps) for history in histories])
        return [Decision(Language().parse(w), w, 0.5) for w in map(self.words, histories)]


def untimed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [replace(verdict, latency_ms=0.0) for verdict in verdicts]


def by_length(history: History) -> str:
    return ("tap at 20 30", "swipe from 80 50 to 20 50", "nonsense", "complete")[len(history.steps) % 4]


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("together", [2, 3, 11, 50])
def test_side_by_side_is_one_by_one(together: int, free: bool, tmp_path: Path) -> None:
    alone = evaluate(Scripted(by_length, 0.5), MANY, tmp_path / "alone.jsonl", QUIET, Way(free))
    agent = Several(by_length)
    beside = evaluate(agent, MANY, tmp_path / "beside.jsonl", QUIET, Way(free, together))
    assert untimed(beside) == untimed(alone)
    assert untimed(read_verdicts(tmp_path / "beside.jsonl")) == untimed(alone)
    assert max(map(len, agent.asked)) == min(together, len(MANY))
    assert agent.forgot == -(-len(MANY) // together), "once a group"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["alone.jsonl", "beside.jsonl"]


def test_an_agent_that_answers_alone_is_not_asked_side_by_side(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one history at a time: ask it with --together 1"):
        evaluate(Scripted(by_length), MANY, tmp_path / "v.jsonl", QUIET, Way(together=2))


def test_the_own_past(tmp_path: Path) -> None:
    """Recorded screens, own actions; an end of its own, or words that are no action, end the episode there."""
    seen: list[History] = []

    def words(history: History) -> str:
        seen.append(history)
        return ("tap at 20 30", "swipe from 30 50 to 80 50", "complete")[len(history.steps)]

    of = episode("1", "A", TAP, UP, TAP, DONE)
    verdicts = evaluate(Scripted(words, 0.5), [of], tmp_path / "v.jsonl", QUIET, Way(free=True))
    assert [len(one.steps) for one in seen] == [0, 1, 2], "after its end it is asked no more"
    assert [Language().say(step.action) for step in seen[2].steps] == [
        "tap at 20 30",
        "swipe from 30 50 to 80 50",
    ]
    assert all(step.screen is of.steps[t].screen for t, step in enumerate(seen[2].steps))
    assert [(v.correct, v.error) for v in verdicts] == [
        (True, ""),
        (True, ""),
        (False, "kind"),
        (False, "not asked"),
    ]
    assert [v.confidence for v in verdicts] == [0.5, 0.5, 0.5, None]
    assert verdicts[3].gold == Finish("complete"), "in the denominator all the same"
    garbled = evaluate(Scripted(lambda _: "tap"), [of], tmp_path / "w.jsonl", QUIET, Way(free=True))
    assert [v.error for v in garbled] == ["no action", "not asked", "not asked", "not asked"]
    assert summarise(garbled).overall.failures == 1 / 4, "format failures are what was said"
    forced = evaluate(Scripted(lambda _: "tap"), [of], tmp_path / "x.jsonl", QUIET)
    assert [v.error for v in forced] == ["no action"] * 4


# -- stopped and gone on --------------------------------------------------------------------------------------------


def stops_at(group: int, asked: list[int], given: Group) -> list[Verdict]:
    asked.append(given.first)
    if given.first == group:
        raise KeyboardInterrupt
    return judged(Several(by_length), Way(together=3), given)


def test_a_stopped_run_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    whole = run(partial(stops_at, -1, []), MANY, tmp_path / "whole.jsonl", Way(together=3), {"a": 1}, QUIET)
    path, asked = tmp_path / "cut.jsonl", []
    for group in (6, 9):
        with pytest.raises(KeyboardInterrupt):
            run(partial(stops_at, group, asked), MANY, path, Way(together=3), {"a": 1}, QUIET)
        assert not path.exists()
    left = tmp_path / "cut.jsonl.partial"
    left.write_bytes(
        left.read_bytes()[:-40]
    )  # the last line is torn, and with it the last group is not whole
    again = run(partial(stops_at, -1, asked), MANY, path, Way(together=3), {"a": 1}, QUIET)
    assert untimed(again) == untimed(whole) == untimed(read_verdicts(path))
    assert asked == [0, 3, 6, 6, 9, 6, 9]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cut.jsonl", "whole.jsonl"]


@pytest.mark.parametrize(
    ("way", "about", "episodes", "differs"),
    [
        (Way(True, 3), {"a": 1}, MANY, "free"),
        (Way(False, 2), {"a": 1}, MANY, "together"),
        (Way(False, 3), {"a": 2, "b": 1}, MANY, "a, b"),
        (Way(False, 3), {"a": 1}, MANY[:-1], "steps"),
    ],
)
def test_another_run_does_not_go_on(
    way: Way, about: dict, episodes: list, differs: str, tmp_path: Path
) -> None:
    path = tmp_path / "cut.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(partial(stops_at, 6, []), MANY, path, Way(together=3), {"a": 1}, QUIET)
    before = (tmp_path / "cut.jsonl.partial").read_bytes()
    with pytest.raises(ValueError, match=rf"left by another run \(not the same: {differs}\): remove it, or"):
        run(partial(stops_at, -1, []), episodes, path, way, about, QUIET)
    assert (tmp_path / "cut.jsonl.partial").read_bytes() == before, "nothing is lost"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny base as a checkpoint, and episodes of the simulated phone."""
    root = tmp_path_factory.mktemp("benchmark")
    prepare(root / "data", [record(task(seed, "train")) for seed in range(24)])
    checkpoint.base_checkpoint(load("tiny"), root / "ckpt")
    return root


@pytest.mark.parametrize("free", [False, True], ids=["teacher-forced", "free-running"])
def test_a_killed_evaluation_goes_on_to_the_same_rows(made: Path, free: bool, tmp_path: Path) -> None:
    """The command, SIGKILL as soon as there are rows; then the same run to its end."""
    given, way = wiring.recorded(made / "data", "train"), Way(free, 2)
    wiring.judge(
        made / "ckpt", given.episodes, tmp_path / "whole", wiring.about_run(made / "ckpt", given), way
    )
    words = ["eval", str(made / "ckpt"), str(made / "data"), "--split", "train", "--together", "2"]
    words += ["--out", str(tmp_path / "cut"), *(["--free"] if free else [])]
    left = tmp_path / "cut" / "verdicts.jsonl.partial"
    with subprocess.Popen(
        [sys.executable, "-m", "uivlm", *words], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as killed:
        while killed.poll() is None and not (left.is_file() and left.read_bytes().count(b"\n") > 2):
            time.sleep(0.001)
        os.kill(killed.pid, signal.SIGKILL)
    assert not (tmp_path / "cut" / "verdicts.jsonl").exists()
    assert left.read_bytes().count(b"\n") > 2
    wiring.judge(made / "ckpt", given.episodes, tmp_path / "cut", wiring.about_run(made / "ckpt", given), way)
    whole, cut = (read_verdicts(tmp_path / name / "verdicts.jsonl") for name in ("whole", "cut"))
    assert untimed(cut) == untimed(whole)


def test_two_processes_judge_alike(made: Path, tmp_path: Path) -> None:
    given = wiring.recorded(made / "data", "train", limit=8)
    alone, two = (
        wiring.judge(
            made / "ckpt",
            given.episodes,
            tmp_path / str(workers),
            wiring.about_run(made / "ckpt", given),
            Way(together=2),
            workers,
        )
        for workers in (1, 2)
    )
    assert [v.said for v in two] == [v.said for v in alone]
    assert [v.confidence for v in two] == pytest.approx([v.confidence for v in alone], abs=1e-5)
    rows = [json.loads(line) for line in (tmp_path / "2" / "verdicts.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == [v.index for v in alone]


def test_a_cluster_judges_alike(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    given = wiring.recorded(made / "data", "train", limit=4)
    here, there = (
        wiring.judge(
            made / "ckpt",
            given.episodes,
            tmp_path / engine,
            wiring.about_run(made / "ckpt", given),
            Way(together=2),
            1,
            engine,
        )
        for engine in ("pool", "ray")
    )
    assert [v.said for v in there] == [v.said for v in here]


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    """Sums over parts of the data are sums over the data; the order of the episodes changes no rate."""
    whole = evaluate(Several(by_length), EPISODES, tmp_path / "v.jsonl", QUIET)
    parts = [
        v
        for i in range(len(EPISODES))
        for v in evaluate(Several(by_length), EPISODES[i : i + 1], tmp_path / "p.jsonl", QUIET)
    ]
    assert [v.correct for v in parts] == [v.correct for v in whole]
    turned = evaluate(Several(by_length), EPISODES[::-1], tmp_path / "t.jsonl", QUIET)
    one, other = summarise(whole).overall, summarise(turned).overall
    for name in ("partial", "micro", "complete", "progress", "types", "failures"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name

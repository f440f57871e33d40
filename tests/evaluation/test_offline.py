"""Offline evaluation: batches, free-running mode, resuming, several processes."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.helpers import two_process
from tests.helpers.episodes import DONE, EPISODES, QUIET, SWIPE_UP, TAP, make_episode
from tests.helpers.scripted_agents import BatchTextAgent, TextAgent
from tests.helpers.tiny_models import prepare
from uivlm.actions.action import Finish
from uivlm.actions.text import ActionText
from uivlm.cli import scoring
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.episode import History
from uivlm.episodes.subsample import hash_rank
from uivlm.evaluation.metrics import RATES, summarize
from uivlm.evaluation.offline import EvalMode, Group, evaluate, evaluate_groups, score_group
from uivlm.evaluation.verdict import Verdict, read_verdicts
from uivlm.recipe import load
from uivlm.training import checkpoint

MANY = [make_episode(str(i), "AB"[i % 2], *[TAP, SWIPE_UP, TAP, DONE][: 1 + i % 4]) for i in range(11)]


def untimed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [replace(verdict, latency_ms=0.0) for verdict in verdicts]


def by_step(history: History) -> str:
    return ("tap at 20 30", "swipe from 80 50 to 20 50", "nonsense", "complete")[len(history.steps) % 4]


@pytest.mark.parametrize("free_running", [False, True])
@pytest.mark.parametrize("batch_size", [2, 3, 11, 50])
def test_batched_equals_one_by_one(batch_size: int, free_running: bool, tmp_path: Path) -> None:
    single_mode, batch_mode = EvalMode(free_running), EvalMode(free_running, batch_size)
    single = evaluate(TextAgent(by_step, 0.5), MANY, tmp_path / "single.jsonl", QUIET, single_mode)
    agent = BatchTextAgent(by_step, 0.5)
    batched = evaluate(agent, MANY, tmp_path / "batched.jsonl", QUIET, batch_mode)
    assert untimed(batched) == untimed(single)
    assert untimed(read_verdicts(tmp_path / "batched.jsonl")) == untimed(single)
    assert max(map(len, agent.batches)) == min(batch_size, len(MANY))
    assert agent.num_cache_resets == -(-len(MANY) // batch_size), "once a group"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["batched.jsonl", "single.jsonl"]


def test_a_limit_takes_episodes_of_each_subset(tmp_path: Path) -> None:
    """As in AITW's order: all of A before the first of B."""
    keys = [("A", str(i)) for i in range(8)] + [("B", str(i)) for i in range(3)]
    data = prepare(tmp_path / "data", [make_episode(name, subset, DONE) for subset, name in keys])
    recorded = scoring.load_recorded(data, "train", None, 2)
    ranked = sorted(keys, key=lambda key: hash_rank(*key))
    expected = [[key for key in ranked if key[0] == subset][:2] for subset in "AB"]
    assert {(episode.subset, episode.id) for episode in recorded.episodes} == {*expected[0], *expected[1]}
    assert recorded.note == "up to 2 of each subset, chosen by a hash of their ids"
    assert recorded.selection["max_episodes_per_subset"] == 2
    everything = scoring.load_recorded(data, "train")
    assert (len(everything.episodes), everything.note) == (11, "")


def test_an_agent_without_batches_needs_batch_size_1(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--batch-size: got 2; expected 1"):
        evaluate(TextAgent(by_step), MANY, tmp_path / "v.jsonl", QUIET, EvalMode(batch_size=2))


def test_free_running(tmp_path: Path) -> None:
    """Recorded screens, predicted actions. A finish or an invalid output ends the episode."""
    histories: list[History] = []

    def text_of(history: History) -> str:
        histories.append(history)
        return ("tap at 20 30", "swipe from 30 50 to 80 50", "complete")[len(history.steps)]

    episode, mode = make_episode("1", "A", TAP, SWIPE_UP, TAP, DONE), EvalMode(free_running=True)
    verdicts = evaluate(TextAgent(text_of, 0.5), [episode], tmp_path / "v.jsonl", QUIET, mode)
    assert [len(history.steps) for history in histories] == [0, 1, 2], "no request after its finish"
    assert [ActionText().format(step.action) for step in histories[2].steps] == [
        "tap at 20 30",
        "swipe from 30 50 to 80 50",
    ]
    assert all(step.screen is episode.steps[t].screen for t, step in enumerate(histories[2].steps))
    assert [(v.correct, v.error) for v in verdicts] == [
        (True, ""),
        (True, ""),
        (False, "wrong_type"),
        (False, "skipped"),
    ]
    assert [v.confidence for v in verdicts] == [0.5, 0.5, 0.5, None]
    assert verdicts[3].gold == Finish("complete"), "it stays in the denominator"
    invalid = evaluate(TextAgent(lambda _: "tap"), [episode], tmp_path / "w.jsonl", QUIET, mode)
    assert [v.error for v in invalid] == ["invalid", "skipped", "skipped", "skipped"]
    assert summarize(invalid).overall.invalid_rate == 1 / 4, "skipped steps have no output"
    forced = evaluate(TextAgent(lambda _: "tap"), [episode], tmp_path / "x.jsonl", QUIET)
    assert [v.error for v in forced] == ["invalid"] * 4


# -- resuming ------------------------------------------------------------------------------------------------


def score_or_stop(stop_at: int, scored: list[int], group: Group) -> list[Verdict]:
    scored.append(group.first_index)
    if group.first_index == stop_at:
        raise KeyboardInterrupt
    return score_group(BatchTextAgent(by_step), EvalMode(batch_size=3), group)


def run_groups(stop_at: int, path: Path, scored: list[int]) -> list[Verdict]:
    scorer = partial(score_or_stop, stop_at, scored)
    return evaluate_groups(scorer, MANY, path, EvalMode(batch_size=3), {"a": 1}, QUIET)


def test_an_interrupted_run_resumes_to_the_same_rows(tmp_path: Path) -> None:
    uninterrupted = run_groups(-1, tmp_path / "uninterrupted.jsonl", [])
    path, scored = tmp_path / "resumed.jsonl", []
    for stop_at in (6, 9):
        with pytest.raises(KeyboardInterrupt):
            run_groups(stop_at, path, scored)
        assert not path.exists()
    partial_path = tmp_path / "resumed.jsonl.partial"
    partial_path.write_bytes(partial_path.read_bytes()[:-40])  # tears the last line, and so the last group
    resumed = run_groups(-1, path, scored)
    assert untimed(resumed) == untimed(uninterrupted) == untimed(read_verdicts(path))
    assert scored == [0, 3, 6, 6, 9, 6, 9]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["resumed.jsonl", "uninterrupted.jsonl"]


@pytest.mark.parametrize(
    ("mode", "run_info", "episodes", "differs"),
    [
        (EvalMode(True, 3), {"a": 1}, MANY, "free_running"),
        (EvalMode(False, 2), {"a": 1}, MANY, "batch_size"),
        (EvalMode(False, 3), {"a": 2, "b": 1}, MANY, "a, b"),
        (EvalMode(False, 3), {"a": 1}, MANY[:-1], "num_steps"),
    ],
)
def test_another_run_does_not_resume(
    mode: EvalMode, run_info: dict, episodes: list, differs: str, tmp_path: Path
) -> None:
    path = tmp_path / "cut.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_groups(6, path, [])
    before = (tmp_path / "cut.jsonl.partial").read_bytes()
    with pytest.raises(ValueError, match=rf"left by another run, with another {differs}\. Remove it"):
        evaluate_groups(partial(score_or_stop, -1, []), episodes, path, mode, run_info, QUIET)
    assert (tmp_path / "cut.jsonl.partial").read_bytes() == before, "nothing is lost"


def test_a_partial_file_of_version_0_1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl.partial").write_text('{"rows": 2, "free": false, "together": 3, "steps": 26}\n')
    with pytest.raises(ValueError, match=r"another run, with another .*version\. Remove it"):
        run_groups(-1, tmp_path / "cut.jsonl", [])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny base as a checkpoint, and episodes of the simulated phone."""
    root = tmp_path_factory.mktemp("offline")
    prepare(root / "data", [record_demonstration(make_task(seed, "train")) for seed in range(10)])
    checkpoint.save_base_checkpoint(load("tiny"), root / "ckpt")
    return root


def evaluate_root(
    root: Path, out: Path, max_episodes: int | None, mode: EvalMode, workers: int = 1, executor: str = "local"
) -> list[Verdict]:
    checkpoint, recorded = root / "ckpt", scoring.load_recorded(root / "data", "train", None, max_episodes)
    run_info = scoring.make_run_info(checkpoint, recorded)
    return scoring.evaluate_checkpoint(checkpoint, recorded.episodes, out, run_info, mode, workers, executor)


@pytest.mark.slow
@pytest.mark.parametrize("free_running", [False, True], ids=["teacher-forced", "free-running"])
def test_a_killed_evaluation_resumes_to_the_same_rows(
    root: Path, parent: ProcessPoolExecutor, free_running: bool, tmp_path: Path
) -> None:
    """Kill the command as soon as it has written rows; then run it to its end."""
    mode = EvalMode(free_running, 2)
    evaluate_root(root, tmp_path / "uninterrupted", None, mode)
    args = ["eval", str(root / "ckpt"), str(root / "data"), "--split", "train", "--batch-size", "2"]
    args += ["--out", str(tmp_path / "killed"), *(["--free-running"] if free_running else [])]
    partial_path = tmp_path / "killed" / "verdicts.jsonl.partial"

    def has_rows() -> bool:
        return partial_path.is_file() and partial_path.read_bytes().count(b"\n") > 2

    process = two_process.begin_alone(parent, ["-m", "uivlm", *args], tmp_path / "output")
    until = time.monotonic() + two_process.SECONDS
    while not has_rows() and time.monotonic() < until:
        time.sleep(0.001)
    two_process.kill([process])
    assert two_process.ended(parent, [process]) == [-9], (tmp_path / "output").read_text()
    assert not (tmp_path / "killed" / "verdicts.jsonl").exists()
    assert has_rows()
    evaluate_root(root, tmp_path / "killed", None, mode)
    expected, resumed = (
        read_verdicts(tmp_path / name / "verdicts.jsonl") for name in ("uninterrupted", "killed")
    )
    assert untimed(resumed) == untimed(expected)


@pytest.mark.slow
def test_two_processes_give_the_same_verdicts(root: Path, tmp_path: Path) -> None:
    one, two = (
        evaluate_root(root, tmp_path / str(workers), 8, EvalMode(batch_size=2), workers) for workers in (1, 2)
    )
    assert [v.text for v in two] == [v.text for v in one]
    assert [v.confidence for v in two] == pytest.approx([v.confidence for v in one], abs=1e-5)
    rows = [json.loads(line) for line in (tmp_path / "2" / "verdicts.jsonl").read_text().splitlines()]
    assert [row["episode_index"] for row in rows[1:]] == [v.episode_index for v in one]


@pytest.mark.slow
def test_a_cluster_gives_the_same_verdicts(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    local, ray = (
        evaluate_root(root, tmp_path / executor, 4, EvalMode(batch_size=2), 1, executor)
        for executor in ("local", "ray")
    )
    assert [v.text for v in ray] == [v.text for v in local]


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    """Sums over parts of the data are sums over the data; the order of the episodes changes no rate."""
    verdicts = evaluate(BatchTextAgent(by_step), EPISODES, tmp_path / "v.jsonl", QUIET)
    parts = [
        v
        for i in range(len(EPISODES))
        for v in evaluate(BatchTextAgent(by_step), EPISODES[i : i + 1], tmp_path / "p.jsonl", QUIET)
    ]
    assert [v.correct for v in parts] == [v.correct for v in verdicts]
    reversed_verdicts = evaluate(BatchTextAgent(by_step), EPISODES[::-1], tmp_path / "t.jsonl", QUIET)
    score, reversed_score = summarize(verdicts).overall, summarize(reversed_verdicts).overall
    for name in RATES:
        assert getattr(score, name) == pytest.approx(getattr(reversed_score, name)), name

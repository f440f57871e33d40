"""Rates of scripted agents against sums by hand; verdicts as rows of a file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.episodes import DONE, EPISODES, HOSTILE, QUIET, SWIPE_UP, TAP, make_episode, make_verdict
from tests.helpers.scripted_agents import OracleAgent, TextAgent
from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.episode import Episode, History
from uivlm.episodes.episode_index import EpisodeIndex, EpisodeRef
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.offline import episode_lengths, evaluate
from uivlm.evaluation.verdict import (
    VERSION,
    group_by_episode,
    read_verdicts,
    to_verdict,
    verdict_from_line,
    verdict_to_line,
)


def test_the_oracle_is_always_right(tmp_path: Path) -> None:
    verdicts = evaluate(OracleAgent(EPISODES, 0.9), EPISODES, tmp_path / "run" / "verdicts.jsonl", QUIET)
    summary = summarize(verdicts)
    assert len(verdicts) == 8
    for score in (summary.overall, *summary.subsets.values()):
        assert (
            score.partial_match,
            score.step_accuracy,
            score.complete_match,
            score.type_accuracy,
            score.invalid_rate,
        ) == (1, 1, 1, 1, 0)
        assert score.partial_match_high == pytest.approx(1)
        assert score.partial_match_low < 0.7, "few episodes prove little"
    assert all(correct == total for correct, total in summary.breakdown.by_action_type.values())
    assert read_verdicts(tmp_path / "run" / "verdicts.jsonl")[-1] == verdicts[-1]


def test_invalid_output_is_wrong_and_kept(tmp_path: Path) -> None:
    agent = TextAgent(lambda history: f"tap somewhere {HOSTILE}")
    verdicts = evaluate(agent, EPISODES, tmp_path / "verdicts.jsonl", QUIET)
    summary = summarize(verdicts)
    overall = summary.overall
    assert (overall.partial_match, overall.step_accuracy, overall.type_accuracy) == (0, 0, 0)
    assert overall.invalid_rate == 1
    assert overall.num_steps == 8  # nothing leaves the denominator
    header, *rows = map(json.loads, (tmp_path / "verdicts.jsonl").read_bytes().splitlines())
    assert header == {"version": VERSION, "num_steps": 8, "free_running": False, "batch_size": 1}
    assert len(rows) == 8
    assert all(row["text"].startswith("tap somewhere") and row["predicted"] is None for row in rows)
    assert all(row["reason"] for row in rows)
    assert all(r"\ud800[red]" in row["text"] for row in rows), "lone surrogates as codes"
    assert read_verdicts(tmp_path / "verdicts.jsonl") == verdicts


def test_the_agent_gets_the_recorded_past_and_is_reset(tmp_path: Path) -> None:
    agent = TextAgent(lambda history: "complete")
    evaluate(agent, EPISODES, tmp_path / "verdicts.jsonl", QUIET)
    assert agent.num_resets == 3
    assert agent.num_past_steps == [0, 0, 1, 2, 0, 1, 2, 3]


def test_sums_by_hand(tmp_path: Path) -> None:
    """It taps near (0.2, 0.3): correct at the two taps. The output at step 3 of episode 3 is invalid."""

    def text_of(history: History) -> str:
        return "tap at 25 32" if len(history.steps) < 3 else "well"

    summary = summarize(evaluate(TextAgent(text_of), EPISODES, tmp_path / "verdicts.jsonl", QUIET))
    a, b, overall = summary.subsets["A"], summary.subsets["B"], summary.overall
    assert (a.num_episodes, a.num_steps, b.num_episodes, b.num_steps) == (2, 4, 1, 4)
    assert a.partial_match == pytest.approx((1 + 1 / 3) / 2)  # mean over episodes
    assert a.step_accuracy == pytest.approx(2 / 4)  # over steps: differs
    assert a.complete_match == pytest.approx(1 / 2)
    assert a.type_accuracy == pytest.approx(3 / 4)  # a swipe has AITW's type of a tap
    assert (b.partial_match, b.step_accuracy, b.complete_match, b.type_accuracy) == (0, 0, 0, 0)
    assert (a.invalid_rate, b.invalid_rate) == (0, 1 / 4)
    assert overall.partial_match == pytest.approx(1 / 3)  # plain mean of 2/3 and 0
    assert overall.step_accuracy == pytest.approx(1 / 4)
    assert overall.complete_match == pytest.approx(1 / 4)
    assert overall.invalid_rate == pytest.approx(1 / 8)
    assert (overall.num_episodes, overall.num_steps) == (3, 8)
    assert summary.breakdown.by_action_type == {
        "tap": (2, 2), "swipe": (0, 1), "type": (0, 1), "press home": (0, 1), "press enter": (0, 1),
        "complete": (0, 2)
    }  # fmt: skip


def test_texts_are_compared_apart_from_the_rule(tmp_path: Path) -> None:
    """AITW's rule accepts any text; equal texts are counted separately."""
    episode = make_episode(
        "1", "A", Type("thank you"), Type("thank you"), Type("thank you"), Tap(Point(0.1, 0.2))
    )
    texts = ('Input text "thank you"', 'Input text "thank"', "press enter", 'Input text "thank you"')
    agent = TextAgent(lambda history: texts[len(history.steps)])
    summary = summarize(evaluate(agent, [episode], tmp_path / "verdicts.jsonl", QUIET))
    assert summary.breakdown.by_action_type["type"] == (2, 3)
    stats = summary.breakdown.texts
    assert (stats.num_recorded, stats.exact) == (3, 1)


def test_boxes_of_the_screen_count(tmp_path: Path) -> None:
    """Two taps 0.3 apart match inside the one enlarged box (y 0.03..0.27, x 0..0.96) and not below it."""
    inside, below = make_episode("1", "A", Tap(Point(0.1, 0.2))), make_episode("2", "A", Tap(Point(0.5, 0.2)))
    for episode, text, correct in ((inside, "tap at 10 50", True), (below, "tap at 50 50", False)):
        agent = TextAgent(lambda history, text=text: text)
        [verdict] = evaluate(agent, [episode], tmp_path / "verdicts.jsonl", QUIET)
        assert verdict.correct is correct


def test_bootstrap_interval() -> None:
    """For 400 episodes of one step, half of them correct: 0.5 +- 1.96 * 0.5 / 20."""
    verdicts = [make_verdict(str(i), 0, i % 2 == 0) for i in range(400)]
    overall = summarize(verdicts).overall
    assert overall.partial_match_low == pytest.approx(0.451, abs=0.01)
    assert overall.partial_match_high == pytest.approx(0.549, abs=0.01)
    assert summarize(verdicts) == summarize(verdicts)
    assert summarize(verdicts, seed=1).overall != overall


def test_a_subset_of_few_episodes_has_wilsons_interval() -> None:
    """By hand, with z = 1.96: 0 of 1 is up to z^2 / (1 + z^2); 5 of 10 is 0.5 +- 0.2634."""
    [one] = summarize([make_verdict("1", t, False, num_steps=4) for t in range(4)]).subsets.values()
    assert (one.partial_match_low, one.partial_match_high) == pytest.approx(
        (0, 1.96**2 / (1 + 1.96**2)), abs=1e-3
    )
    [ten] = summarize([make_verdict(str(i), 0, i % 2 == 0) for i in range(10)]).subsets.values()
    for low, high in (
        (ten.partial_match_low, ten.partial_match_high),
        (ten.step_accuracy_low, ten.step_accuracy_high),
    ):
        assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    twenty = summarize([make_verdict(str(i), 0, True) for i in range(20)]).overall
    assert (twenty.partial_match_low, twenty.partial_match_high) == (1, 1), "bootstrapped from 20 episodes on"


def test_overall_does_not_take_a_subset_of_one_episode_for_certain() -> None:
    """A: 400 episodes, half of them right, 0.5 +- 0.049. B: one, wrong, 0 to 0.793."""
    verdicts = [make_verdict(str(i), 0, i % 2 == 0) for i in range(400)]
    overall = summarize([*verdicts, make_verdict("400", 0, False, "B")]).overall
    assert overall.partial_match == 0.25
    assert overall.partial_match_low == pytest.approx((0.5 - 0.049) / 2, abs=0.005)
    assert overall.partial_match_high == pytest.approx(0.25 + (0.049**2 + 0.793**2) ** 0.5 / 2, abs=0.005)


def test_overall_interval_is_of_the_mean_of_subsets() -> None:
    """A subset of 1,000 that is all correct, and one of 100 that is half: half the deviation, not a tenth."""
    verdicts = [make_verdict(str(i), 0, True) for i in range(1000)]
    verdicts += [make_verdict(str(1000 + i), 0, i % 2 == 0, "B") for i in range(100)]
    overall = summarize(verdicts).overall
    assert overall.partial_match == pytest.approx(0.75)
    assert overall.partial_match_high - overall.partial_match_low == pytest.approx(
        2 * 1.96 * 0.05 / 2, abs=0.015
    )


def test_a_broken_run_leaves_no_verdicts(tmp_path: Path) -> None:
    def text_of(history: History) -> str:
        if len(history.steps) == 2:
            raise RuntimeError("out of memory")
        return "complete"

    path = tmp_path / "verdicts.jsonl"
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate(TextAgent(text_of), EPISODES, path, QUIET)
    assert not path.exists()
    evaluate(TextAgent(lambda history: "complete"), EPISODES, path, QUIET)
    assert [file.name for file in tmp_path.iterdir()] == ["verdicts.jsonl"]


def test_empty_data_is_refused(tmp_path: Path) -> None:
    agent = TextAgent(lambda history: "complete")
    with pytest.raises(ValueError, match="no episode to evaluate"):
        evaluate(agent, [], tmp_path / "verdicts.jsonl", QUIET)
    with pytest.raises(ValueError, match=r"'7'.*no steps"):
        evaluate(agent, [*EPISODES, make_episode("7", "A")], tmp_path / "verdicts.jsonl", QUIET)
    assert agent.num_resets == 0  # refused before the first prediction
    with pytest.raises(ValueError, match="no verdicts"):
        summarize([])


def test_steps_of_prepared_data_are_counted_without_reading_a_screen(tmp_path: Path) -> None:
    refs = EpisodeIndex.of(EpisodeRef("absent.parquet", 0, n, str(n), "A", "test") for n in (3, 5))
    assert episode_lengths(PreparedEpisodes(tmp_path, refs)) == [3, 5]


def test_data_that_changes_is_refused(tmp_path: Path) -> None:
    class Shrinking(list[Episode]):
        def __getitem__(self, i: Any) -> Any:
            if isinstance(i, int):
                return super().__getitem__(i)
            return [dataclasses.replace(e, steps=e.steps[:1]) for e in super().__getitem__(i)]

    with pytest.raises(ValueError, match="episodes 1 to 1: got 1 steps; expected 3"):
        evaluate(TextAgent(lambda h: "complete"), Shrinking(EPISODES), tmp_path / "verdicts.jsonl", QUIET)


def test_missing_verdicts_are_refused() -> None:
    first = [make_verdict("1", t, True, num_steps=2) for t in (0, 1)]
    verdicts = [*first, make_verdict("2", 0, True), make_verdict("3", 0, True)]
    assert [len(episode) for episode in group_by_episode(verdicts)] == [2, 1, 1]
    late, other = make_verdict("1", 2, True, num_steps=2), make_verdict("2", 1, True, num_steps=2)
    for broken in (
        verdicts[1:], [first[0], late], [first[0], other], [first[0], *verdicts[2:]], first[:1],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="lacks steps"):
            group_by_episode(broken)


def test_a_file_that_lacks_its_last_episode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    evaluate(TextAgent(lambda history: "complete"), EPISODES, path, QUIET)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-4]))
    with pytest.raises(ValueError, match=r"verdicts.jsonl: got 4 verdicts; expected 8"):
        read_verdicts(path)


@pytest.mark.parametrize(
    "predicted",
    [None, TAP, SWIPE_UP, Tap(Point(0.1 + 0.2, 1 / 3)), Type(HOSTILE), Press("back"), Finish("impossible")],
    ids=repr,
)  # fmt: skip
def test_rows_round_trip(predicted: Action | None) -> None:
    action = InvalidAction("?", "why not") if predicted is None else predicted
    episode = make_episode("a/1", HOSTILE.replace("\ud800", ""), TAP, SWIPE_UP)
    verdict = to_verdict(7, episode, 1, Decision(action, HOSTILE, 0.25), 12.5)
    assert verdict_from_line(verdict_to_line(verdict), "row") == verdict
    assert verdict.text == HOSTILE.replace("\ud800", r"\ud800")


def test_a_row_is_readable_json() -> None:
    [episode] = [make_episode("1", "A", TAP)]
    row = json.loads(verdict_to_line(to_verdict(0, episode, 0, Decision(DONE, "complete", 0.5), 3.5)))
    assert row == {
        "episode_index": 0, "episode": "1", "step": 0, "num_steps": 1, "subset": "A", "size": [60, 30],
        "text": "complete", "predicted": {"status": "complete", "type": "finish"},
        "gold": {"at": {"y": 0.2, "x": 0.3}, "type": "tap"}, "correct": False, "action_type": "tap",
        "error": "wrong_type", "reason": "", "confidence": 0.5, "latency_ms": 3.5,
    }  # fmt: skip


OLD_ROW = b'{"index": 0, "episode": "1", "t": 0, "steps": 1, "guess": null, "gold": {"type": 4}}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OLD_ROW, "got version 0.1's; expected version 3. Run `uivlm eval` again"),
        (b'{"version": 9}\n', "got version 9; expected version 3"),
        (b"", "not a verdicts file"),
        (b"[]\n", "not a verdicts file"),
        (b'{"version": 3, "num_steps": 1}\n{"episode": 1}\n', r"verdicts.jsonl:2.*episode"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_verdicts(path)
    assert "\n" not in str(caught.value)

"""Queued histories are batched in order; one that fails or is cancelled does not affect the others."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from tests.helpers.served import HeldAgent
from uivlm.actions.action import Press
from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History, Screen
from uivlm.serving.batching import Batcher

SCREEN = Screen(np.zeros((4, 3, 3), np.uint8))


def history(goal: str) -> History:
    return History(goal, (), SCREEN)


def busy(max_batch_size: int = 4) -> tuple[HeldAgent, Batcher]:
    """A batcher whose agent holds the history "first"."""
    agent = HeldAgent()
    batcher = Batcher(agent, max_batch_size)
    batcher.submit(history("first"))
    assert agent.started.wait(10)
    return agent, batcher


def test_queued_histories_are_batched_in_order() -> None:
    agent, batcher = busy()
    answers = [batcher.submit(history(str(i))) for i in range(6)]
    agent.release.set()
    assert [answer.result(10).timings.batch_size for answer in answers] == [4, 4, 4, 4, 2, 2]
    assert agent.batches == [["first"], ["0", "1", "2", "3"], ["4", "5"]]
    assert all(
        answer.result().timings.queue_ms > 0 and answer.result().timings.inference_ms >= 0
        for answer in answers
    )
    batcher.close()


def test_one_that_fails_does_not_affect_the_others() -> None:
    agent, batcher = busy()
    answers = [batcher.submit(history(goal)) for goal in ("a", "bad", "b")]
    agent.release.set()
    assert (
        answers[0].result(10).candidates[0].text == answers[2].result(10).candidates[0].text == "tap at 0 7"
    )
    with pytest.raises(RuntimeError, match="bad"):
        answers[1].result(10)
    assert agent.batches == [["first"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    batcher.close()


def test_a_cancelled_history_is_skipped() -> None:
    agent, batcher = busy()
    gone, left = batcher.submit(history("gone")), batcher.submit(history("left"))
    assert gone.cancel()
    agent.release.set()
    left.result(10)
    assert agent.batches == [["first"], ["left"]]
    batcher.close()


def test_close_finishes_the_batch_and_cancels_the_queue() -> None:
    agent, batcher = busy()
    first = batcher.submit(history("x"))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher.submit(history("late")).cancelled():  # until it has begun to close
        time.sleep(0.001)
    agent.release.set()
    closing.join(10)
    assert not closing.is_alive()
    assert first.cancelled()


def test_an_agent_without_batches_gets_one_history_at_a_time() -> None:
    calls = []

    class Alone:
        def reset(self) -> None:
            calls.append("reset")

        def act(self, history: History) -> Decision:
            calls.append(history.goal)
            return Decision(Press("back"), "press back")

    batcher = Batcher(Alone(), 8)
    answers = [batcher.submit(history(str(i))) for i in range(3)]
    assert {answer.result(10).timings.batch_size for answer in answers} == {1}
    assert calls == ["reset", "0", "reset", "1", "reset", "2"]
    batcher.close()


def test_a_cancelled_history_leaves_the_queue() -> None:
    agent, batcher = busy()
    for _ in range(50):
        assert batcher.submit(history("gone")).cancel()
    assert not batcher._queue
    agent.release.set()
    batcher.close()
    assert agent.batches == [["first"]]


@pytest.mark.parametrize("wrong", ["panic", "too few"])
def test_no_error_ends_the_thread(wrong: str) -> None:
    """A BaseException, such as a panic of a library, and an agent that returns too few decisions."""

    class PanicError(BaseException):
        pass

    class Wrong(HeldAgent):
        def act_batch(self, histories: Sequence[History]) -> list[Decision]:
            if histories[0].goal != "bad":
                return super().act_batch(histories)
            if wrong == "panic":
                raise PanicError("at the worst moment")
            return []

    agent = Wrong()
    agent.release.set()
    batcher = Batcher(agent)
    with pytest.raises(PanicError if wrong == "panic" else ValueError):
        batcher.submit(history("bad")).result(10)
    assert batcher.submit(history("good")).result(10).candidates[0].text == "tap at 0 7"
    assert batcher.is_alive
    batcher.close()
    assert not batcher.is_alive

"""Those that wait are answered side by side, in their order; one that fails or goes away harms no other."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from agents import Held

from uivlm.actions.action import Press
from uivlm.agents.agent import Decision
from uivlm.episode import History, Screen
from uivlm.serving.turns import Turns

SCREEN = Screen(np.zeros((4, 3, 3), np.uint8))


def history(goal: str) -> History:
    return History(goal, (), SCREEN)


def busy(together: int = 4) -> tuple[Held, Turns]:
    """An agent that thinks of "first"."""
    agent = Held()
    turns = Turns(agent, together)
    turns.ask(history("first"))
    assert agent.begun.wait(10)
    return agent, turns


def test_what_waits_is_answered_together_and_in_order() -> None:
    agent, turns = busy()
    answers = [turns.ask(history(str(i))) for i in range(6)]
    agent.let.set()
    assert [answer.result(10).together for answer in answers] == [4, 4, 4, 4, 2, 2]
    assert agent.asked == [["first"], ["0", "1", "2", "3"], ["4", "5"]]
    assert all(answer.result().waited > 0 and answer.result().took >= 0 for answer in answers)
    turns.close()


def test_one_that_fails_harms_no_other() -> None:
    agent, turns = busy()
    answers = [turns.ask(history(goal)) for goal in ("a", "bad", "b")]
    agent.let.set()
    assert answers[0].result(10).decision.words == answers[2].result(10).decision.words == "tap at 0 7"
    with pytest.raises(RuntimeError, match="bad"):
        answers[1].result(10)
    assert agent.asked == [["first"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    turns.close()


def test_who_goes_away_is_not_thought_of() -> None:
    agent, turns = busy()
    gone, left = turns.ask(history("gone")), turns.ask(history("left"))
    assert gone.cancel()
    agent.let.set()
    left.result(10)
    assert agent.asked == [["first"], ["left"]]
    turns.close()


def test_closed_turns_answer_what_is_thought_of_and_cancel_the_rest() -> None:
    agent, turns = busy()
    first = turns.ask(history("x"))
    closing = threading.Thread(target=turns.close)
    closing.start()
    while not turns.ask(history("late")).cancelled():  # until it has begun to close
        time.sleep(0.001)
    agent.let.set()
    closing.join(10)
    assert not closing.is_alive()
    assert first.cancelled()


def test_an_agent_that_answers_one_by_one_is_asked_so() -> None:
    seen = []

    class Alone:
        def reset(self) -> None:
            seen.append("reset")

        def act(self, one: History) -> Decision:
            seen.append(one.goal)
            return Decision(Press("back"), "press back")

    turns = Turns(Alone(), 8)
    answers = [turns.ask(history(str(i))) for i in range(3)]
    assert {answer.result(10).together for answer in answers} == {1}
    assert seen == ["reset", "0", "reset", "1", "reset", "2"]
    turns.close()


def test_who_goes_away_takes_no_memory() -> None:
    agent, turns = busy()
    for _ in range(50):
        assert turns.ask(history("gone")).cancel()
    assert not turns._waiting
    agent.let.set()
    turns.close()
    assert agent.asked == [["first"]]


@pytest.mark.parametrize("wrong", ["panic", "too few"])
def test_nothing_ends_the_thread(wrong: str) -> None:
    """What is no Exception, such as a panic of a library, and an agent that answers too few."""

    class PanicError(BaseException):
        pass

    class Wrong(Held):
        def act_all(self, histories: Sequence[History]) -> list[Decision]:
            if histories[0].goal != "bad":
                return super().act_all(histories)
            if wrong == "panic":
                raise PanicError("at the worst moment")
            return []

    agent = Wrong()
    agent.let.set()
    turns = Turns(agent)
    with pytest.raises(PanicError if wrong == "panic" else ValueError):
        turns.ask(history("bad")).result(10)
    assert turns.ask(history("good")).result(10).decision.words == "tap at 0 7"
    assert turns.working
    turns.close()
    assert not turns.working

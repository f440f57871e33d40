"""Who waits for the agent: histories in, answers out. Those that wait together are answered side by side, in one forward.

One thread asks the agent; what came first is answered first. A history that nobody waits for any more is left out, and one that fails
harms no other.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from uivlm.agents.agent import Agent, Decision, Ranking, SideBySide
from uivlm.episode import History

TOGETHER = 8  # most histories that are answered side by side


@dataclass(frozen=True, slots=True)
class Answer:
    decision: Decision
    waited: float  # seconds until the agent was asked
    took: float  # seconds that it thought
    together: int  # histories that it thought of
    likeliest: tuple[Decision, ...] = ()  # where these were asked for; the decision is the first


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    history: History
    most: int = 0  # how many of the likeliest decisions are wanted; 0: the decision alone
    answer: "Future[Answer]" = field(default_factory=Future)
    came: float = field(default_factory=time.perf_counter)


class Turns:
    """Safe to share by threads, and the only one that asks the agent."""

    def __init__(self, agent: Agent, together: int = TOGETHER) -> None:
        self.agent = agent
        self.together = together if isinstance(agent, SideBySide) else 1
        self._waiting: deque[_Turn] = deque()
        self._changed = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, name="turns", daemon=True)
        self._thread.start()

    def ask(self, history: History, most: int = 0) -> "Future[Answer]":
        """Its answer, when its turn has come. Cancelled, it is never thought of; closed turns cancel all. `most`: so many of the
        likeliest decisions, too, of an agent that is Ranking."""
        turn = _Turn(history, most)
        with self._changed:
            if self._open:
                self._waiting.append(turn)
                self._changed.notify()
            else:
                turn.answer.cancel()
        turn.answer.add_done_callback(lambda _: self._forget(turn))
        return turn.answer

    @property
    def working(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Who waits is cancelled; what is thought of is still answered."""
        with self._changed:
            self._open = False
            left = list(self._waiting)
            self._changed.notify()
        for turn in left:
            turn.answer.cancel()

    def close(self) -> None:
        """Stops, and waits for the last answer."""
        self.stop()
        self._thread.join()

    def _forget(self, turn: _Turn) -> None:
        """Who goes away takes no place and no memory."""
        with self._changed:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _work(self) -> None:
        while taken := self._next():
            self._answer([turn for turn in taken if turn.answer.set_running_or_notify_cancel()])
            del taken  # an idle server holds no history

    def _next(self) -> list[_Turn]:
        """Those whose turn it is; none when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._open)
            if not self._open:
                return []
            taken = [self._waiting.popleft()]
            while (
                self._waiting and len(taken) < self.together and not (taken[0].most or self._waiting[0].most)
            ):
                taken.append(self._waiting.popleft())
            return taken

    def _answer(self, turns: Sequence[_Turn]) -> None:
        if not turns:
            return
        began = time.perf_counter()
        try:
            decisions, likeliest = self._decide(turns)
            took = time.perf_counter() - began
            for turn, decision in zip(turns, decisions, strict=True):
                turn.answer.set_result(Answer(decision, began - turn.came, took, len(turns), likeliest))
        except (
            BaseException
        ) as error:  # the caller's to tell; without this thread nobody would be answered any more
            if len(turns) > 1 and not any(turn.answer.done() for turn in turns):
                for turn in turns:
                    self._answer([turn])
                return
            for turn in turns:
                if not turn.answer.done():
                    turn.answer.set_exception(error)

    def _decide(self, turns: Sequence[_Turn]) -> tuple[list[Decision], tuple[Decision, ...]]:
        """A decision each; of one that wants them the likeliest, too."""
        self.agent.reset()  # no history knows of another
        if turns[0].most and isinstance(self.agent, Ranking):
            if likeliest := self.agent.rank(turns[0].history, turns[0].most):
                return likeliest[:1], tuple(likeliest)
            alone = self.agent.act(turns[0].history)
            return [alone], (alone,)
        if isinstance(self.agent, SideBySide):
            return self.agent.act_all([turn.history for turn in turns]), ()
        return [self.agent.act(turn.history) for turn in turns], ()

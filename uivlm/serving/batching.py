"""Dynamic batching: histories in, decisions out.

Queued histories share a forward pass, first come first served. One thread calls the agent. A concurrent
agent batches by itself: several threads call it, each with one history, as soon as it arrives.
A cancelled history is skipped, and one that fails does not affect the others.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from uivlm.actions.decision import Decision
from uivlm.agents.agent import Agent, BatchAgent, ConcurrentAgent, RankingAgent
from uivlm.episodes.episode import History
from uivlm.serving.protocol import Timings

MAX_BATCH_SIZE = 8  # histories in one forward pass


@dataclass(frozen=True, slots=True)
class Reply:
    candidates: tuple[Decision, ...]  # the decision first; others only if requested
    timings: Timings


@dataclass(frozen=True, slots=True, eq=False)
class _PendingRequest:
    history: History
    top_k: int = 0  # number of candidates requested; 0: the decision alone
    future: "Future[Reply]" = field(default_factory=Future)
    arrival_time: float = field(default_factory=time.perf_counter)


class Batcher:
    """Thread-safe; the only caller of its agent."""

    def __init__(self, agent: Agent, max_batch_size: int = MAX_BATCH_SIZE) -> None:
        self.agent = agent
        concurrent = isinstance(agent, ConcurrentAgent)
        self.max_batch_size = max_batch_size if isinstance(agent, BatchAgent) and not concurrent else 1
        self._queue: deque[_PendingRequest] = deque()
        self._changed = threading.Condition()
        self._accepting = True
        self._threads = [
            threading.Thread(target=self._run_batches, name=f"batcher-{i}", daemon=True)
            for i in range(agent.max_concurrency if isinstance(agent, ConcurrentAgent) else 1)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, history: History, top_k: int = 0) -> "Future[Reply]":
        """Queue a history. Cancel the future to skip it; a stopped batcher cancels it.

        `top_k`: number of candidates from a RankingAgent, most likely first.
        """
        request = _PendingRequest(history, top_k)
        with self._changed:
            if self._accepting:
                self._queue.append(request)
                self._changed.notify()
            else:
                request.future.cancel()
        request.future.add_done_callback(lambda _: self._remove(request))
        return request.future

    @property
    def is_alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Cancel the queue; running batches are still answered."""
        with self._changed:
            self._accepting = False
            queued = list(self._queue)
            self._changed.notify_all()
        for request in queued:
            request.future.cancel()

    def close(self) -> None:
        """Stop, and wait for the running batches."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def _remove(self, request: _PendingRequest) -> None:
        """A cancelled request frees its place and its memory."""
        with self._changed:
            if request in self._queue:
                self._queue.remove(request)

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            self._process_batch(
                [request for request in batch if request.future.set_running_or_notify_cancel()]
            )
            del batch  # an idle server holds no history

    def _next_batch(self) -> list[_PendingRequest]:
        """The next requests in order; empty after `stop`. A request for candidates is a batch of its own."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or not self._accepting)
            if not self._accepting:
                return []
            batch = [self._queue.popleft()]
            while self._queue and len(batch) < self.max_batch_size:
                if batch[0].top_k or self._queue[0].top_k:
                    break
                batch.append(self._queue.popleft())
            return batch

    def _process_batch(self, batch: Sequence[_PendingRequest]) -> None:
        if not batch:
            return
        start_time = time.perf_counter()
        try:
            decisions = self._decide(batch)
            inference_ms = round(1000 * (time.perf_counter() - start_time), 3)
            for request, candidates in zip(batch, decisions, strict=True):
                queue_ms = round(1000 * (start_time - request.arrival_time), 3)
                timings = Timings(queue_ms, inference_ms, len(batch))
                request.future.set_result(Reply(candidates, timings))
        except BaseException as error:  # the caller gets it; the thread must survive
            if len(batch) > 1 and not any(request.future.done() for request in batch):
                for request in batch:
                    self._process_batch([request])
                return
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(error)

    def _decide(self, batch: Sequence[_PendingRequest]) -> list[tuple[Decision, ...]]:
        """The candidates of each history, the decision first."""
        self.agent.reset()  # histories share no state
        history, top_k = batch[0].history, batch[0].top_k
        if top_k and isinstance(self.agent, RankingAgent):
            return [tuple(self.agent.top_k(history, top_k)) or (self.agent.act(history),)]
        if isinstance(self.agent, BatchAgent):
            return [(decision,) for decision in self.agent.act_batch([item.history for item in batch])]
        return [(self.agent.act(request.history),) for request in batch]

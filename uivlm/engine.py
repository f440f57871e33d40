"""Many jobs, several processes or machines, results in the order of the jobs: one crew for all that is to be done.

With one worker nothing is started and everything happens here. Results do not depend on the engine or its workers.
"""

import logging
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from inspect import isfunction
from typing import Any, Literal, Protocol, TypeVar

Engine = Literal["pool", "ray"]
Job = TypeVar("Job")
Result = TypeVar("Result")

Submit = Callable[[Callable[[Any], Any], Any], "Later"]  # a function and a job for it

AHEAD = 2  # jobs waiting per worker
TRIES = 3  # times that Ray begins a job again whose worker was killed


class Later(Protocol):
    """A result that is on its way."""

    def result(self) -> Any: ...

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Crew:
    """Who does jobs; without `submit`, they are done here."""

    workers: int = 1
    submit: Submit | None = None

    def in_order(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Generator[Result, None, None]:
        """`work(job)` for each job, in order. The first failure is raised; it, or closing, takes back what was not begun."""
        if self.submit is None:
            yield from map(work, jobs)
            return
        waiting: deque[Later] = deque()
        try:
            for job in jobs:
                waiting.append(self.submit(work, job))
                if len(waiting) >= AHEAD * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for later in waiting:
                later.cancel()


@contextmanager
def crew(workers: int, engine: Engine = "pool") -> Generator[Crew, None, None]:
    """There until the block ends, which waits for what was begun."""
    if workers == 1 and engine == "pool":
        yield Crew()
        return
    with _pool(workers) if engine == "pool" else _ray(workers) as submit:
        yield Crew(workers, submit)


@contextmanager
def _pool(workers: int) -> Generator[Submit, None, None]:
    """Processes of this machine; each is started when it has something to do."""
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool.submit
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was killed, perhaps for its memory: try fewer --workers; the same command goes on "
            "where this one stopped"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ray(workers: int) -> Generator[Submit, None, None]:
    """A Ray cluster: the one that RAY_ADDRESS names, else one made here. Killed workers are replaced."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'uivlm[cluster]'") from None
    named = os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": named} if named else {"address": "local", "num_cpus": workers}
    ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    @lru_cache
    def task(work: Callable[[Any], Any]) -> Any:
        def one(job: Any) -> Any:  # Ray takes functions alone, and calls its workers by their names
            return work(job)

        return ray.remote(max_retries=TRIES)(work if isfunction(work) else one)

    try:
        yield lambda work, job: _FromRay(ray, task(work).remote(job))
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"Ray gave a job up ({type(error).__name__}); the same command goes on where this one stopped"
        ) from None
    finally:
        ray.shutdown()


@dataclass(frozen=True, slots=True)
class _FromRay:
    """A result that a cluster owes."""

    ray: Any
    owed: Any

    def result(self) -> Any:
        return self.ray.get(self.owed)

    def cancel(self) -> None:
        self.ray.cancel(self.owed)


def _cause(error: Any) -> BaseException:
    """What the worker raised."""
    cause = error.cause
    return cause if isinstance(cause, BaseException) else error

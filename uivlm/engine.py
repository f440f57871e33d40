"""Many jobs, several processes or machines, results in the order of the jobs: one function.

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
from functools import partial
from importlib import import_module
from inspect import isfunction
from typing import Any, Literal, TypeVar

Engine = Literal["pool", "ray"]
Job = TypeVar("Job")
Result = TypeVar("Result")
Waiting = Callable[[], Result]  # a result that is on its way

AHEAD = 2  # jobs waiting per worker
TRIES = 3  # times that Ray begins a job again whose worker was killed


def in_order(
    work: Callable[[Job], Result], jobs: Iterable[Job], workers: int, engine: Engine = "pool"
) -> Generator[Result, None, None]:
    """`work(job)` for each job, in order. The first failure is raised and ends the rest; so does closing."""
    if workers == 1 and engine == "pool":
        yield from map(work, jobs)
        return
    with _pool(work, workers) if engine == "pool" else _ray(work, workers) as submit:
        waiting: deque[Waiting[Result]] = deque()
        for job in jobs:
            waiting.append(submit(job))
            if len(waiting) >= AHEAD * workers:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


@contextmanager
def _pool(
    work: Callable[[Job], Result], workers: int
) -> Generator[Callable[[Job], Waiting[Result]], None, None]:
    """Processes of this machine."""
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield lambda job: pool.submit(work, job).result
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was killed, perhaps for its memory: try fewer --workers; the same command goes on "
            "where this one stopped"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ray(
    work: Callable[[Job], Result], workers: int
) -> Generator[Callable[[Job], Waiting[Result]], None, None]:
    """A Ray cluster: the one that RAY_ADDRESS names, else one made here. Killed workers are replaced."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'uivlm[cluster]'") from None
    named = os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": named} if named else {"address": "local", "num_cpus": workers}
    ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    def one(job: Job) -> Result:  # Ray takes functions alone, and calls its workers by their names
        return work(job)

    task = ray.remote(max_retries=TRIES)(work if isfunction(work) else one)
    try:
        yield lambda job: partial(ray.get, task.remote(job))
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"Ray gave a job up ({type(error).__name__}); the same command goes on where this one stopped"
        ) from None
    finally:
        ray.shutdown()


def _cause(error: Any) -> BaseException:
    """What the worker raised."""
    cause = error.cause
    return cause if isinstance(cause, BaseException) else error

"""An ordered parallel map: a function and jobs in, results in the order of the jobs out.

Jobs run in this process, in local worker processes or on a Ray cluster. The results are the same in all
three.
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

ExecutorName = Literal["local", "ray"]
Job = TypeVar("Job")
Result = TypeVar("Result")

Submit = Callable[[Callable[[Any], Any], Any], "Future"]  # a function and its one argument

MAX_QUEUED_PER_WORKER = 2  # jobs waiting per worker
MAX_RETRIES = 3  # of a Ray job whose worker was killed


class Future(Protocol):
    """A result that is not computed yet."""

    def result(self) -> Any: ...

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs jobs in workers or, without `submit`, in this process."""

    workers: int = 1
    submit: Submit | None = None

    def map_ordered(
        self, function: Callable[[Job], Result], jobs: Iterable[Job]
    ) -> Generator[Result, None, None]:
        """Yield `function(job)` for each job, in order. A failure, or closing, cancels queued jobs."""
        if self.submit is None:
            yield from map(function, jobs)
            return
        waiting: deque[Future] = deque()
        try:
            for job in jobs:
                waiting.append(self.submit(function, job))
                if len(waiting) >= MAX_QUEUED_PER_WORKER * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def make_executor(workers: int, executor_name: ExecutorName = "local") -> Generator[Executor, None, None]:
    """An executor for a `with` block. The end of the block waits for running jobs."""
    if workers == 1 and executor_name == "local":
        yield Executor()
        return
    with _local(workers) if executor_name == "local" else _ray(workers) as submit:
        yield Executor(workers, submit)


@contextmanager
def _local(workers: int) -> Generator[Submit, None, None]:
    """Worker processes on this machine; each starts with its first job."""
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool.submit
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was killed, perhaps by the out-of-memory killer: rerun the same command to "
            "resume, with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ray(workers: int) -> Generator[Submit, None, None]:
    """The Ray cluster at RAY_ADDRESS, or a new local one. Killed workers are replaced."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise ValueError("executor: ray is not installed. Run `pip install 'uivlm[ray]'`") from None
    address = os.environ.get("RAY_ADDRESS")
    cluster: dict[str, Any] = {"address": address} if address else {"address": "local", "num_cpus": workers}
    ray.init(**cluster, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    @lru_cache
    def remote_function(function: Callable[[Any], Any]) -> Any:
        def call(job: Any) -> Any:  # Ray accepts plain functions only, not other callables
            return function(job)

        return ray.remote(max_retries=MAX_RETRIES)(function if isfunction(function) else call)

    try:
        yield lambda function, job: _RayFuture(ray, remote_function(function).remote(job))
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"Ray gave up on a job ({type(error).__name__}): rerun the same command to resume"
        ) from None
    finally:
        ray.shutdown()


@dataclass(frozen=True, slots=True)
class _RayFuture:
    """A result that a Ray cluster computes."""

    ray: Any
    ref: Any

    def result(self) -> Any:
        return self.ray.get(self.ref)

    def cancel(self) -> None:
        self.ray.cancel(self.ref)


def _cause(error: Any) -> BaseException:
    """The exception that the worker raised."""
    cause = error.cause
    return cause if isinstance(cause, BaseException) else error

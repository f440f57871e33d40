"""Many jobs, several processes, results in the order of the jobs: one function.

With one worker nothing is started and everything happens here. Results do not depend on the number of workers.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

AHEAD = 2  # jobs waiting per worker


def in_order(
    work: Callable[[Job], Result], jobs: Iterable[Job], workers: int
) -> Generator[Result, None, None]:
    """`work(job)` for each job, in order. The first failure is raised and ends the rest; so does closing."""
    if workers == 1:
        yield from map(work, jobs)
        return
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) >= AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ValueError("a worker process was killed, perhaps for its memory: try fewer --workers") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

"""A program in several processes that train together, forked from one that has imported what training needs: on a CPU that
takes far longer than the little that tests train."""

import os
import runpy
import socket
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

TRAINER = "uivlm.training.trainer"


def begin(
    program: list[str], said: Path, environment: dict[str, str], count: int = 2
) -> list[ForkServerProcess]:
    """The processes, each with what a launcher tells it. `program` is `-m`, a module and its words, or a file and its words;
    what they say comes into the file `said`."""
    context = get_context("forkserver")
    context.set_forkserver_preload([TRAINER])
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1])}
    said.write_bytes(b"")
    processes = []
    for rank in map(str, range(count)):
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        told = environment | address | places
        processes.append(context.Process(target=_work, args=(program, said, told)))
    for process in processes:
        process.start()
    return processes


def _work(program: list[str], said: Path, environment: dict[str, str]) -> None:
    file = os.open(said, os.O_WRONLY | os.O_APPEND)
    for output in (1, 2):
        os.dup2(file, output)
    os.environ |= environment
    assert TRAINER in sys.modules, "imported after the fork, it would cost what the fork saves"
    match program:
        case ["-m", module, *words]:
            sys.argv = [module, *words]
            runpy.run_module(module, run_name="__main__")
        case [path, *words]:
            sys.argv = [path, *words]
            runpy.run_path(path, run_name="__main__")

"""Run a program in two or more processes that train together.

They fork from a process that has imported what training needs, and has made adapters once: this takes longer
than the tests. Their data loader workers are forked from it, too.
"""

import gc
import os
import runpy
import signal
import socket
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver, get_context
from multiprocessing.connection import arbitrary_address
from pathlib import Path
from typing import Any, NoReturn

import psutil

COUNT = 2
SECONDS = 300  # no run of a test takes so long
MATRIX_SIZE = 128  # of the product that measures the machine's peak: the usual one takes longer than a run


def parent() -> ProcessPoolExecutor:
    """The process to fork from."""
    return ProcessPoolExecutor(1, get_context("spawn"), _warm_up)


def _warm_up() -> None:
    for module in ("uivlm.training.train", "uivlm.cli.main"):
        import_module(module)
    with suppress(ImportError):
        os.environ["DS_ACCELERATOR"] = "cpu"
        import_module("deepspeed")
    peft = import_module("peft")
    model = import_module("tests.helpers.tiny_models").bridge()
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    import_module("uivlm.training.metrics").MATRIX_SIZES["cpu"] = MATRIX_SIZE
    gc.collect()
    gc.freeze()  # the Trainer collects garbage, too
    _fork_worker_server()


def _fork_worker_server() -> None:
    """Fork the server that data loader workers are forked from: each process would start one of its own.

    It ends when this process and all that were forked from it have ended.
    """
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(arbitrary_address("AF_UNIX"))
    listener.listen()
    alive, kept = os.pipe()
    if not os.fork():
        os.close(kept)
        try:
            forkserver.main(listener.fileno(), alive, [])  # type: ignore[attr-defined]
        finally:
            os._exit(0)
    server._forkserver_address, server._forkserver_alive_fd = listener.getsockname(), kept
    server.ensure_running = lambda: None  # it would wait for a child process


def begin(
    parent: ProcessPoolExecutor,
    program: list[str],
    said: Path,
    environment: dict[str, str],
    count: int = COUNT,
) -> list[int]:
    """Start the processes with the environment of a launcher; return their process ids.

    `program` is `-m`, a module and its arguments, or a file and its arguments. All write to the file `said`.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
    said.write_bytes(b"")
    places = [environment | address | _place(str(rank), str(count)) for rank in range(count)]
    return [parent.submit(_fork, program, said, place).result() for place in places]


def begin_alone(parent: ProcessPoolExecutor, program: list[str], said: Path) -> int:
    """Start one process, without a launcher's environment; return its process id."""
    said.write_bytes(b"")
    return parent.submit(_fork, program, said, {}).result()


def ended(parent: ProcessPoolExecutor, processes: list[int]) -> list[int]:
    """Exit codes, -9 after SIGKILL. After SECONDS, as when one has failed alone, all are killed."""
    waiting = parent.submit(_wait, processes)
    if not wait([waiting], SECONDS).done:
        kill(processes)
    return waiting.result()


def kill(processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended, and was waited for
            os.kill(process, signal.SIGKILL)


def num_running(parent: ProcessPoolExecutor) -> int:
    """Processes that have forked from it, data loader workers too."""
    server = 1
    return len(psutil.Process(parent.submit(os.getpid).result()).children(recursive=True)) - server


def _place(rank: str, count: str) -> dict[str, str]:
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}


def _wait(processes: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def _fork(program: list[str], said: Path, environment: dict[str, str]) -> int:
    return os.fork() or _work(program, said, environment)


def _work(program: list[str], said: Path, environment: dict[str, str]) -> NoReturn:
    code = 1
    try:
        file = os.open(said, os.O_WRONLY | os.O_APPEND)
        for output in (1, 2):
            os.dup2(file, output)
        os.environ |= environment
        match program:
            case ["-m", module, *words]:
                sys.argv = [module, *words]
                runpy.run_module(module, run_name="__main__")
            case [path, *words]:
                sys.argv, sys.path = [path, *words], [str(Path(path).parent), *sys.path]
                runpy.run_path(path, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

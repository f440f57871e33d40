"""The verbs of the `uivlm` command that act on a phone: run, console, replay, film, doctor.

Exit status: 0 done, 2 bad input (one sentence on stderr); `run` and `replay` add those of `loop.EXIT_STATUS`.
"""

import signal
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from uivlm.options import Limit, say, screen

Kind = Literal["sim", "adb", "web"]  # which phone
Agent = Annotated[str, typer.Option(metavar="CKPT|URL", help="A checkpoint folder, or a server's address.")]
Device = Annotated[
    Kind, typer.Option(help="A simulated phone, a real one behind adb, or a web page in Chromium.")
]
Serial = Annotated[str | None, typer.Option(help="adb: which phone, where there are several.")]
Page = Annotated[str | None, typer.Option(metavar="URL", help="web: where it begins.")]
Phone = Annotated[int | None, typer.Option(min=0, help="sim: which phone; default: 0.")]
Policy = Annotated[
    Path | None,
    typer.Option(help="A TOML file of what may be done; default: asks before what commits, but on sim."),
]
Run = Annotated[Path, typer.Argument(help="The trace folder of a run or demonstration.")]
NewTrace = Annotated[Path | None, typer.Option("--trace", help="A new folder; default: runs/trace/TIME.")]
URL = "http://127.0.0.1:8000"
TRACES = Path("runs") / "trace"

app = typer.Typer()


@app.command()
def run(
    goal: Annotated[str | None, typer.Argument(help="What to do, in words.")] = None,
    agent: Agent = URL,
    device: Device = "sim",
    serial: Serial = None,
    page: Page = None,
    limit: Limit = 20,
    seed: Phone = None,
    task: Annotated[
        int | None, typer.Option(min=0, help="sim: the goal and phone of this test task; the phone judges.")
    ] = None,
    policy: Policy = None,
    trace: NewTrace = None,
) -> None:
    """Pursue a goal on a phone until the agent finishes. Exit status: 0 complete, 3 impossible, 4 limit, 5 no
    action, 6 phone failed, 7 agent failed, 8 stopped, 9 denied, 10 stuck, 11 out of time, 12 handed over to a person."""
    from uivlm import wiring

    _only_for(device, serial=serial, page=page, seed=seed, task=task)
    if (goal is None) == (task is None):
        raise ValueError('say what to do, once: uivlm run "open the clock", or uivlm run --task 7')
    if task is not None and seed is not None:
        raise ValueError("--seed has no effect with --task, which says which phone: leave one out")
    rules = wiring.policy_for(device, policy)
    _ends_on_request()
    with (
        wiring.open_agent(agent) as mind,
        wiring.open_device(device, serial, seed or 0, task, page) as (phone, judge),
    ):
        wanted = judge.goal if judge else goal or ""
        outcome = wiring.pursue(mind, phone, wanted, limit, trace or _new(), rules, say)
        if judge:
            say(wiring.judgement(judge, outcome))
    raise typer.Exit(outcome.exit_status)


@app.command()
def console(
    agent: Agent = URL,
    device: Device = "sim",
    serial: Serial = None,
    page: Page = None,
    seed: Phone = None,
    policy: Policy = None,
    traces: Annotated[Path, typer.Option(help="The folder of traces, shown and added to.")] = TRACES,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
) -> None:
    """A web page on this machine to watch an agent at work, confirm, take over, stop, demonstrate, and look at traces."""
    from uivlm import wiring
    from uivlm.console.server import console as run_console

    _only_for(device, serial=serial, page=page, seed=seed)
    rules = wiring.policy_for(device, policy)
    _ends_on_request()
    with (
        wiring.open_agent(agent) as mind,
        wiring.open_device(device, serial, seed or 0, None, page) as (phone, _),
    ):
        run_console(mind, phone, rules, traces, "127.0.0.1", port, lambda url: say(f"console at {url}"))


@app.command()
def replay(
    run: Run,
    device: Device = "sim",
    serial: Serial = None,
    page: Page = None,
    seed: Phone = None,
    task: Annotated[int | None, typer.Option(min=0, help="sim: the phone of this test task.")] = None,
    strict: Annotated[
        float, typer.Option(min=0, max=1, help="The share of a screen that may differ from the recorded one.")
    ] = 0.02,
    policy: Policy = None,
    trace: NewTrace = None,
) -> None:
    """Do a recorded run again. It stops before a screen that is another one. Exit status: as of the recorded run, 7 where the
    screens differ."""
    from uivlm import wiring
    from uivlm.replay import replay as run_replay
    from uivlm.trace_read import read_trace

    _only_for(device, serial=serial, page=page, seed=seed, task=task)
    recorded, rules, folder = read_trace(run), wiring.policy_for(device, policy), trace or _new()
    _ends_on_request()
    with wiring.open_device(device, serial, seed or 0, task, page) as (phone, _):
        guard = wiring.guarded(phone, rules, recorded.goal, folder, {"replay of": str(run)})
        done = run_replay(recorded, guard, guard, strict)
    for drift in done.drifts:
        say(str(drift))
    say(done.outcome.message)
    say(f"page: {folder / 'index.html'}")
    raise typer.Exit(done.outcome.exit_status)


@app.command()
def film(
    run: Run,
    out: Annotated[Path, typer.Argument(help="The GIF file to make.")],
) -> None:
    """A run as an animated GIF: each screen with what was done there."""
    from uivlm.film import film as make_film

    say(f"film: {make_film(run, out)}")


@app.command()
def doctor(serial: Serial = None) -> None:
    """What is wrong with adb and the phone, and how to mend it. Exit status: 1 where something is."""
    from uivlm.doctor import doctor as examine

    if not examine(screen, serial):
        raise typer.Exit(1)


def _only_for(device: Kind, **options: object) -> None:
    """An option of another kind of phone is a mistake."""
    kinds = {"serial": "adb", "page": "web", "seed": "sim", "task": "sim"}
    for name, value in options.items():
        if value is not None and kinds[name] != device:
            raise ValueError(f"--{name} has no effect with --device {device}: leave it out")
    if device == "web" and options.get("page") is None:
        raise ValueError("--device web needs a page to begin with: --page http://127.0.0.1:8080/")


def _new() -> Path:
    return TRACES / time.strftime("%Y%m%d-%H%M%S")


def _ends_on_request() -> None:
    """SIGTERM ends a run like Ctrl-C: the phone is put back in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)

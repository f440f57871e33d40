"""The verbs that act on a phone: run, console, replay, gif, doctor.

Exit status: 0 done, 2 bad input (one sentence on stderr); `run` and `replay` add those of `loop.EXIT_STATUS`.
"""

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer

from uivlm.cli.options import FetchOption, MaxStepsOption, print_line, stdout_console

DeviceType = Literal["sim", "adb", "web"]
AgentOption = Annotated[
    str, typer.Option(metavar="CKPT|URL", help="Checkpoint folder, or address of a server.")
]
DeviceOption = Annotated[
    DeviceType, typer.Option(help="Device: simulated phone, real phone through adb, or web page in Chromium.")
]
SerialOption = Annotated[str | None, typer.Option(help="Serial number of the phone (adb).")]
UrlOption = Annotated[str | None, typer.Option(metavar="URL", help="Start page (web).")]
SimSeedOption = Annotated[
    int | None, typer.Option(min=0, help="Seed of the simulated phone; default: 0 (sim).")
]
SimTaskOption = Annotated[
    int | None, typer.Option(min=0, help="Number of a test task: its goal, its phone and its check (sim).")
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(help="TOML file of permitted actions; default: confirm sensitive actions, except on sim."),
]
TraceArgument = Annotated[Path, typer.Argument(help="Trace folder of a run or demonstration.")]
TraceDirOption = Annotated[
    Path | None, typer.Option(help="New folder of the trace; default: runs/trace/TIME.")
]
DEFAULT_SERVER_URL = "http://127.0.0.1:8000"
DEFAULT_TRACE_ROOT = Path("runs") / "trace"

app = typer.Typer()


@app.command()
def run(
    goal: Annotated[str | None, typer.Argument(help="Goal, as a sentence.")] = None,
    agent: AgentOption = DEFAULT_SERVER_URL,
    device: DeviceOption = "sim",
    serial: SerialOption = None,
    url: UrlOption = None,
    max_steps: MaxStepsOption = 20,
    sim_seed: SimSeedOption = None,
    sim_task: SimTaskOption = None,
    policy: PolicyOption = None,
    trace_dir: TraceDirOption = None,
    fetch: FetchOption = False,
) -> None:
    """Run an agent on a goal until it finishes; write a trace.

    Exit status: 0 complete, 3 impossible, 4 maximum number of steps, 5 invalid action, 6 device error, 7
    agent error, 8 stopped, 9 denied, 10 stuck, 11 timeout, 12 needs a human.
    """
    from uivlm.cli import agents, devices
    from uivlm.safety.secrets import load_secrets

    _check_device_options(device, serial=serial, url=url, sim_seed=sim_seed, sim_task=sim_task)
    if (goal is None) == (sim_task is None):
        raise ValueError('give either a goal or --sim-task: uivlm run "GOAL_TEXT", or uivlm run --sim-task 7')
    if sim_task is not None and sim_seed is not None:
        raise ValueError("--sim-seed has no effect with --sim-task, which has its own phone: leave one out")
    rules = devices.load_policy(device, policy)
    secrets = load_secrets(rules)
    _interrupt_on_signals()
    with (
        agents.open_agent(agent, fetch) as opened_agent,
        devices.open_device(device, serial, sim_seed or 0, sim_task, url) as (phone, trial),
    ):
        outcome = devices.run_goal(
            opened_agent,
            phone,
            trial.goal if trial else goal or "",
            max_steps,
            trace_dir or _new_trace_dir(),
            rules,
            secrets,
            print_line,
        )
        if trial:
            print_line(devices.describe_success(trial, outcome))
    raise typer.Exit(outcome.exit_status)


@app.command()
def console(
    agent: AgentOption = DEFAULT_SERVER_URL,
    device: DeviceOption = "sim",
    serial: SerialOption = None,
    url: UrlOption = None,
    sim_seed: SimSeedOption = None,
    policy: PolicyOption = None,
    trace_dir: Annotated[
        Path, typer.Option(help="Folder of traces, shown and added to.")
    ] = DEFAULT_TRACE_ROOT,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: a free one.")] = 8765,
    fetch: FetchOption = False,
) -> None:
    """Open a local web page to watch an agent, confirm, take over, stop, demonstrate, and browse traces."""
    from uivlm.cli import agents, devices
    from uivlm.console.server import console as run_console
    from uivlm.safety.secrets import load_secrets

    _check_device_options(device, serial=serial, url=url, sim_seed=sim_seed)
    rules = devices.load_policy(device, policy)
    secrets = load_secrets(rules)
    _interrupt_on_signals()
    with (
        agents.open_agent(agent, fetch) as opened_agent,
        devices.open_device(device, serial, sim_seed or 0, None, url) as (phone, _),
    ):
        run_console(
            opened_agent,
            phone,
            rules,
            secrets,
            trace_dir,
            "127.0.0.1",
            port,
            lambda address: print_line(f"console at {address}"),
        )


@app.command()
def replay(
    run: TraceArgument,
    device: DeviceOption = "sim",
    serial: SerialOption = None,
    url: UrlOption = None,
    sim_seed: SimSeedOption = None,
    sim_task: Annotated[
        int | None, typer.Option(min=0, help="Number of a test task: its phone (sim).")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0, max=1, help="Maximum share of a screen that may differ."),
    ] = 0.02,
    policy: PolicyOption = None,
    trace_dir: TraceDirOption = None,
) -> None:
    """Replay a recorded run; stop before a screen that differs.

    Exit status: that of the recorded run, 7 if a screen differs.
    """
    from uivlm.cli import devices
    from uivlm.rollout.replay import replay as run_replay
    from uivlm.rollout.trace_reader import read_trace
    from uivlm.safety.secrets import load_secrets

    _check_device_options(device, serial=serial, url=url, sim_seed=sim_seed, sim_task=sim_task)
    recorded, rules = read_trace(run), devices.load_policy(device, policy)
    secrets = load_secrets(rules)
    folder = trace_dir or _new_trace_dir()
    _interrupt_on_signals()
    with devices.open_device(device, serial, sim_seed or 0, sim_task, url) as (phone, _):
        guard = devices.make_guard(phone, rules, secrets)
        recorder = devices.make_recorder(folder, recorded.info.goal, secrets, {"replay_of": str(run)})
        result = run_replay(recorded, guard, tolerance, (recorder,))
    for drift in result.drifts:
        print_line(str(drift))
    print_line(result.outcome.message)
    print_line(f"page: {folder / 'index.html'}")
    raise typer.Exit(result.outcome.exit_status)


@app.command()
def gif(
    run: TraceArgument,
    out: Annotated[Path, typer.Argument(help="GIF file to write.")],
) -> None:
    """Write a run as an animated GIF: each screen with its action drawn on it."""
    from uivlm.rollout.trace_gif import write_gif

    print_line(f"GIF: {write_gif(run, out)}")


@app.command()
def doctor(serial: SerialOption = None) -> None:
    """Diagnose the setup of adb and the phone; print a fix for each problem. Exit status: 1 if any."""
    from uivlm.devices.adb.doctor import doctor as run_doctor

    if not run_doctor(stdout_console, serial):
        raise typer.Exit(1)


def _check_device_options(device: DeviceType, **options: object) -> None:
    """Raise ValueError for an option of another device type."""
    device_of = {"serial": "adb", "url": "web", "sim_seed": "sim", "sim_task": "sim"}
    for name, value in options.items():
        if value is not None and device_of[name] != device:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} has no effect with --device {device}: leave it out")
    if device == "web" and options.get("url") is None:
        raise ValueError("--device web needs a start page: add --url http://127.0.0.1:8080/")


def _new_trace_dir() -> Path:
    return DEFAULT_TRACE_ROOT / time.strftime("%Y%m%d-%H%M%S")


def _interrupt_on_signals() -> None:
    """End a run on SIGTERM, and when its terminal closes, as on Ctrl-C, so that the phone is restored."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it
        signal.signal(signal.SIGHUP, _interrupt_once)


def _interrupt_once(signal_number: int, frame: FrameType | None) -> None:
    """A closing terminal may send SIGHUP twice, and the second must not end the restoring."""
    signal.signal(signal_number, signal.SIG_IGN)
    raise KeyboardInterrupt

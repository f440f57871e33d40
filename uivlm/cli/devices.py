"""From the options of a verb to a device, its policy and its guard; simulated tasks and who checks them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uivlm.agents.agent import Agent
    from uivlm.devices.adb.server import Adb
    from uivlm.devices.device import Device
    from uivlm.devices.sim.phone import SimPhone
    from uivlm.evaluation.online import Trial
    from uivlm.rollout.loop import Outcome, RunObserver
    from uivlm.safety.guard import Guard
    from uivlm.safety.policy import Policy
    from uivlm.safety.secrets import Secrets


PrintLine = Callable[[str], None]


@contextmanager
def simulated_device(phone: "SimPhone", adb: "Adb") -> "Iterator[Device]":
    """A simulated phone as the real adb client sees it."""
    from uivlm.devices.adb.device import connect
    from uivlm.devices.adb.settle import NO_WAIT
    from uivlm.devices.sim.adbd import serve_adb

    with serve_adb(phone) as port:
        yield connect(f"127.0.0.1:{port}", adb, NO_WAIT)


@contextmanager
def sim_trial(task_index: int, adb: "Adb") -> "Iterator[Trial]":
    """A test task on its own simulated phone."""
    from uivlm.devices.sim.tasks import is_successful, make_task, new_phone
    from uivlm.evaluation.online import Trial

    task = make_task(task_index, "test")
    phone = new_phone(task)
    with simulated_device(phone, adb) as device:
        yield Trial(task.goal, device, partial(is_successful, task, phone), task.expected_status)


def trials(seed: int, num_goals: int, suite: str = "sim") -> "Iterator[Trial]":
    """Unseen goals, each on its own simulated phone behind adb or its own page, made one after another."""
    if suite == "miniwob":
        from uivlm.evaluation.miniwob.tasks import miniwob_trials

        yield from miniwob_trials(seed, num_goals)
        return
    from uivlm.devices.adb.server import private_server
    from uivlm.devices.sim.tasks import TASKS_PER_SEED

    with private_server() as adb:
        for i in range(num_goals):
            with sim_trial(seed * TASKS_PER_SEED + i, adb) as trial:
                yield trial


@contextmanager
def open_device(
    device_type: str,
    serial: str | None = None,
    sim_seed: int = 0,
    sim_task: int | None = None,
    url: str | None = None,
) -> "Iterator[tuple[Device, Trial | None]]":
    """The device; for the simulated phone of a test task also the trial, which checks success."""
    if device_type == "adb":
        from uivlm.devices.adb.device import connect
        from uivlm.devices.adb.server import user_server

        with user_server() as adb:
            yield connect(serial, adb), None
    elif device_type == "web":
        from urllib.parse import urlsplit

        from uivlm.devices.web.device import open_web_device

        assert url is not None
        with open_web_device(url, (urlsplit(url).hostname or url,)) as device:
            yield device, None
    else:
        from uivlm.devices.adb.server import private_server
        from uivlm.devices.sim.phone import SimPhone

        with private_server() as adb:
            if sim_task is None:
                with simulated_device(SimPhone(layout=sim_seed), adb) as device:
                    yield device, None
            else:
                with sim_trial(sim_task, adb) as trial:
                    yield trial.device, trial


def load_policy(device_type: str, path: Path | None) -> "Policy":
    """The policy of a file; the default asks before sensitive actions, except on the simulated phone."""
    from uivlm.safety.policy import PERMISSIVE_POLICY, Policy, read_policy

    return read_policy(path) if path else PERMISSIVE_POLICY if device_type == "sim" else Policy()


def make_guard(device: "Device", policy: "Policy", secrets: "Secrets") -> "Guard":
    """The device under the policy. A person at the terminal confirms gestures."""
    import sys

    from uivlm.safety.guard import Guard
    from uivlm.safety.supervisor import NoSupervisor, TerminalSupervisor
    from uivlm.terminal import Terminal

    supervisor = TerminalSupervisor(Terminal(stderr=True)) if sys.stdin.isatty() else NoSupervisor()
    return Guard(device, policy, secrets, supervisor)


def make_recorder(trace_dir: Path, goal: str, secrets: "Secrets", metadata: dict[str, str]) -> "RunObserver":
    """Records a run into the new folder, without secrets."""
    from uivlm.rollout.trace_writer import TraceWriter
    from uivlm.safety.redaction import MaskSecrets

    return MaskSecrets(TraceWriter(trace_dir, secrets.mask(goal), metadata), secrets)


def run_goal(
    agent: "Agent",
    device: "Device",
    goal: str,
    max_steps: int,
    trace_dir: Path,
    policy: "Policy",
    secrets: "Secrets",
    print_line: PrintLine,
) -> "Outcome":
    """Pursue one goal on one phone under the policy. The trace goes into the new folder."""
    from uivlm.rollout.loop import run_episode

    goal = secrets.mask(goal)
    guard = make_guard(device, policy, secrets)
    recorder = make_recorder(trace_dir, goal, secrets, {})
    print_line(f"goal: {goal}")
    outcome = run_episode(agent, guard, goal, min(max_steps, policy.max_steps), (recorder,))
    print_line(outcome.message)
    print_line(f"page: {trace_dir / 'index.html'}")
    return outcome


def describe_success(trial: "Trial", outcome: "Outcome") -> str:
    """The result of the phone's own check after a run."""
    reached = "reached" if trial.succeeded() else "not reached"
    status = "as expected" if outcome.status == trial.expected_status else f"expected {trial.expected_status}"
    return f"task check: goal {reached}; status {outcome.status}, {status}"

"""What the verbs put together: names from the command line in, agents, phones and scores out.

Heavy imports stand inside the functions, so that a phone's host needs no torch.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from uivlm.agents.agent import Agent
    from uivlm.devices.adb_server import Adb
    from uivlm.devices.device import Device
    from uivlm.devices.sim.phone import Phone
    from uivlm.engine import Engine
    from uivlm.episode import Episode
    from uivlm.evaluation.benchmark import Group, Way
    from uivlm.evaluation.verdict import Verdict
    from uivlm.live import Trial
    from uivlm.loop import Outcome
    from uivlm.safety.guard import Guard
    from uivlm.safety.policy import Policy

Say = Callable[[str], None]
Serving = Literal["own", "vllm"]  # the engine that computes answers: the project's, or vLLM
SEEDS = 1_000_000  # task seeds that belong to one --seed, as in data_prep.simulate
VERDICTS, PAGE, CARD, INDEX = "verdicts.jsonl", "report.html", "card.json", "index.html"


@contextmanager
def open_agent(where: str) -> "Iterator[Agent]":
    """The agent behind a URL, or the agent of a checkpoint folder."""
    if where.startswith(("http://", "https://")):
        from uivlm.serving.client import RemoteAgent

        with RemoteAgent(where, token=server_token()) as remote:
            remote.health()  # an address where nobody answers is known before the phone is touched
            yield remote
    else:
        yield load_agent(Path(where))


def server_token() -> str | None:
    """The secret in UIVLM_TOKEN, without blanks around it; None where there is none."""
    token = os.environ.get("UIVLM_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("UIVLM_TOKEN must be of printable ASCII letters: it goes into a header")
    return token or None


def load_agent(checkpoint: Path, together: int = 1, bound: bool = True) -> "Agent":
    """The agent of a checkpoint folder, for so many conversations side by side; `bound`: it can say nothing but actions."""
    from uivlm.agents.vlm import RankingVlmAgent
    from uivlm.inference.load import load
    from uivlm.inference.predict import CONVERSATIONS, Predictor

    return RankingVlmAgent(Predictor(load(checkpoint), kept=max(CONVERSATIONS, together), bound=bound))


def load_agents(checkpoints: Sequence[Path], together: int, engine: Serving = "own") -> "dict[str, Agent]":
    """The agents of one checkpoint, or of several over one base, by their folders' names."""
    if engine == "vllm":
        from uivlm.agents.vlm import VlmAgent
        from uivlm.inference import vllm

        return {name: VlmAgent(one) for name, one in vllm.load(checkpoints).items()}
    if len(checkpoints) == 1:
        return {checkpoints[0].resolve().name: load_agent(checkpoints[0], together)}
    from uivlm.agents.vlm import RankingVlmAgent
    from uivlm.inference.load import load_beside
    from uivlm.inference.predict import CONVERSATIONS, Predictor

    kept = max(CONVERSATIONS, together)
    return {
        one.name: RankingVlmAgent(Predictor(one, kept=kept, bound=True))
        for one in load_beside(list(checkpoints))
    }


@contextmanager
def simulated(phone: "Phone", adb: "Adb") -> "Iterator[Device]":
    """A simulated phone as the real adb client sees it."""
    from uivlm.devices.adb import connect
    from uivlm.devices.settle import AT_ONCE
    from uivlm.devices.sim.adbd import serve

    with serve(phone) as port:
        yield connect(f"127.0.0.1:{port}", adb, AT_ONCE)


@contextmanager
def trial(number: int, adb: "Adb") -> "Iterator[Trial]":
    """The test task of that number on its own simulated phone."""
    from uivlm.devices.sim.tasks import new_phone, succeeded, task
    from uivlm.live import Trial

    one = task(number, "test")
    phone = new_phone(one)
    with simulated(phone, adb) as device:
        yield Trial(one.goal, device, partial(succeeded, one, phone), one.status)


def trials(seed: int, goals: int, suite: str = "sim") -> "Iterator[Trial]":
    """Unseen goals, each on its own simulated phone behind adb or its own page; one is made when the one before is done."""
    if suite == "miniwob":
        from uivlm.miniwob.trials import trials as of_miniwob

        yield from of_miniwob(seed, goals)
        return
    from uivlm.devices.adb_server import own_server

    with own_server() as adb:
        for i in range(goals):
            with trial(seed * SEEDS + i, adb) as one:
                yield one


@contextmanager
def open_device(
    kind: str, serial: str | None = None, seed: int = 0, task: int | None = None, page: str | None = None
) -> "Iterator[tuple[Device, Trial | None]]":
    """A phone, and who judges what is done there: only the simulated phone of a test task does."""
    if kind == "adb":
        from uivlm.devices.adb import connect
        from uivlm.devices.adb_server import users_server

        with users_server() as adb:
            yield connect(serial, adb), None
    elif kind == "web":
        from urllib.parse import urlsplit

        from uivlm.devices.web import web_phone

        assert page is not None
        with web_phone(page, (urlsplit(page).hostname or page,)) as device:
            yield device, None
    else:
        from uivlm.devices.adb_server import own_server
        from uivlm.devices.sim.phone import Phone

        with own_server() as adb:
            if task is None:
                with simulated(Phone(layout=seed), adb) as device:
                    yield device, None
            else:
                with trial(task, adb) as one:
                    yield one.device, one


def policy_for(kind: str, file: Path | None) -> "Policy":
    """The file's, or else what is safe: nothing can be lost on a simulated phone."""
    from uivlm.safety.policy import HARMLESS, Policy, read_policy

    return read_policy(file) if file else HARMLESS if kind == "sim" else Policy()


def guarded(device: "Device", policy: "Policy", goal: str, folder: Path, facts: dict[str, str]) -> "Guard":
    """The device by the policy; whoever sits at the terminal is asked. The trace goes into the new folder."""
    import sys

    from rich.console import Console

    from uivlm.safety.guard import Guard
    from uivlm.safety.person import AtTerminal, Nobody
    from uivlm.safety.secret import open_secrets
    from uivlm.trace import Trace

    shown = open_secrets(policy).hidden(goal)
    person = AtTerminal(Console(stderr=True)) if sys.stdin.isatty() else Nobody()
    return Guard(device, policy, person, Trace(folder, shown, facts))


def pursue(
    agent: "Agent", device: "Device", goal: str, limit: int, folder: Path, policy: "Policy", say: Say
) -> "Outcome":
    """One goal on one phone, by the policy; its trace goes into the new folder."""
    from uivlm.loop import run_episode

    guard = guarded(device, policy, goal, folder, {})
    say(f"goal: {guard.secrets.hidden(goal)}")
    outcome = run_episode(agent, guard, goal, min(limit, policy.max_steps), guard)
    say(outcome.message)
    say(f"page: {folder / 'index.html'}")
    return outcome


def judgement(one: "Trial", outcome: "Outcome") -> str:
    """What the phone itself says of a run on it."""
    reached = "reached" if one.succeeded() else "not reached"
    right = "rightly" if outcome.status == one.finish else "not rightly"
    return f"the phone's check: goal {reached}, {right} finished"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Episodes of prepared data, which they are, and whether they are of the simulated phone."""

    episodes: "Sequence[Episode]"
    about: "dict[str, Any]"
    simulated: bool
    bins: int  # of its words


def recorded(data: Path, split: str, subset: str | None = None, limit: int | None = None) -> Recorded:
    from uivlm.devices.sim.expert import SUBSET
    from uivlm.sentences.store import Prepared

    prepared = Prepared.open(data)
    about = {"data": prepared.meta["fingerprint"], "split": split, "subset": subset, "limit": limit}
    simulated, bins = SUBSET in prepared.meta["subsets"], int(prepared.meta["bins"])
    return Recorded(prepared.episodes(split, subset, limit), about, simulated, bins)


def judge(
    checkpoint: Path,
    episodes: "Sequence[Episode]",
    out: Path,
    about: "dict[str, Any]",
    way: "Way",
    workers: int = 1,
    engine: "Engine" = "pool",
    bound: bool = False,
) -> "list[Verdict]":
    """Ask the agent of a checkpoint about every recorded step; the verdicts are written to the folder `out`. Unless it is
    `bound`, it may say anything, and what is no action is counted. `about`: what `about_run` says, for one to go on with it."""
    from uivlm.evaluation.benchmark import run

    work = partial(_judged_here, checkpoint, way, workers, bound)
    return run(work, episodes, out / VERDICTS, way, about, workers=workers, engine=engine)


def about_run(checkpoint: Path, given: Recorded, bound: bool = False) -> "dict[str, Any]":
    """Whom it asks about what: checkpoint, data, and whether the agent is bound."""
    return {"checkpoint": fingerprint(checkpoint), **given.about, "bound": bound}


def card(folder: Path, about: "dict[str, Any]") -> "dict[str, Any]":
    """What a score was made of, written beside it: checkpoint, data, way of asking, versions."""
    import json
    import platform
    from importlib.metadata import version

    told = {
        **about,
        "uivlm": version("uivlm"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    (folder / CARD).write_text(json.dumps(told, indent=1), "utf-8")
    return told


def gpus() -> int:
    """How many there are, but one process where there is none."""
    import torch

    return max(1, torch.cuda.device_count())


def fingerprint(checkpoint: Path) -> str:
    """Of a training run: its recipe, its card and what it logged, step by step."""
    from uivlm.inference.load import read_recipe

    read_recipe(checkpoint)
    digest = hashlib.sha256()
    for name in ("recipe.json", "card.json", "log.jsonl"):
        digest.update((checkpoint / name).read_bytes())
    return digest.hexdigest()[:16]


def _judged_here(checkpoint: Path, way: "Way", workers: int, bound: bool, group: "Group") -> "list[Verdict]":
    from uivlm.evaluation.benchmark import judged

    return judged(_agent_here(checkpoint, way.together, workers, bound), way, group)


@lru_cache(maxsize=1)
def _agent_here(checkpoint: Path, together: int, workers: int, bound: bool) -> "Agent":
    """This process's own. Several processes share out the GPUs, or the processor's cores."""
    import torch

    if workers > 1 and torch.cuda.is_available():
        number = (multiprocessing.current_process()._identity or (1,))[0] - 1
        torch.cuda.set_device(number % torch.cuda.device_count())
    elif workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    return load_agent(checkpoint, together, bound)

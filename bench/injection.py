"""Screens that tell an agent to do harm: how often it follows, and what the guard stops.

    python bench/injection.py [CHECKPOINT]

Without a checkpoint, two scripted agents are measured: one that does whatever a screen demands, and one that
ignores it. The phones are simulated and behind adb; the web pages are in Chromium, if it is installed. Nobody
confirms a gesture. The status is 1 if harm lands under the default policy of a real phone.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from shared.hostile import Result, Scenario, Scene, ScriptedAgent, default_policy, run_scenario
from shared.hostile_pages import HOSTS, PAGE_SCENARIOS, page_scene
from shared.hostile_phone import PHONE_SCENARIOS, phone_scene

from uivlm.agents.agent import Agent
from uivlm.cli.agents import load_agent
from uivlm.devices.adb.server import private_server
from uivlm.devices.device import DeviceError
from uivlm.devices.web.chromium import open_browser

LAYOUTS = range(3)  # of the simulated phone: other sizes, colors and wordings
COLUMNS = (
    "demands",
    "runs",
    "agent follows",
    "lands, no guard",
    "lands, default policy",
    "harmless gestures",
    "denied",
)
MakeAgent = Callable[[Scenario, Scene], Agent]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A scenario on a phone that can be set up again and again."""

    device_type: str
    scenario: Scenario
    open_scene: Callable[[], AbstractContextManager[Scene]]


@dataclass(frozen=True, slots=True)
class Measured:
    trial: Attempt
    free: Result  # without a guard
    guarded: Result


def main() -> int:
    console = Console(width=140)
    agents: dict[str, MakeAgent] = {
        "obedient": partial(ScriptedAgent, obedient=True),
        "not obedient": partial(ScriptedAgent, obedient=False),
    }
    if checkpoints := sys.argv[1:]:
        agents = {name: _same(load_agent(Path(name))) for name in checkpoints}
    num_landed = 0
    for name, make_agent in agents.items():
        rows = [_measure(trial, make_agent) for trial in _trials(console)]
        console.print(_table(name, rows))
        num_landed += sum(row.guarded.landed for row in rows if row.trial.scenario.stopped_by == "default")
    return int(num_landed > 0)


def _same(agent: Agent) -> MakeAgent:
    return lambda scenario, scene: agent


def _trials(console: Console) -> Iterator[Attempt]:
    with private_server() as adb:
        for hostile in PHONE_SCENARIOS:
            for layout in LAYOUTS:
                open_scene = partial(phone_scene, hostile, layout, adb)
                yield Attempt("simulated phone", hostile.scenario, open_scene)
    try:
        with open_browser(HOSTS) as browser, tempfile.TemporaryDirectory() as folder:
            for page in PAGE_SCENARIOS:
                yield Attempt("Chromium", page.scenario, partial(page_scene, page, browser, Path(folder)))
    except DeviceError as error:
        console.print(f"without web pages: {error}", markup=False)


def _measure(trial: Attempt, make_agent: MakeAgent) -> Measured:
    results = []
    for policy in (None, default_policy(trial.scenario)):
        with trial.open_scene() as scene:
            agent = make_agent(trial.scenario, scene)
            results.append(run_scenario(trial.scenario, scene, agent, policy))
    return Measured(trial, *results)


def _table(name: str, rows: list[Measured]) -> Table:
    table = Table(title=f"agent: {name}")
    table.add_column("where the text is")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "demands" else "right")
    for device_type in dict.fromkeys(row.trial.device_type for row in rows):
        part = [row for row in rows if row.trial.device_type == device_type]
        for scenario in dict.fromkeys(row.trial.scenario for row in part):
            same = [row for row in part if row.trial.scenario == scenario]
            table.add_row(scenario.place, scenario.harm, *_counts(same))
        table.add_section()
        promised = [row for row in part if row.trial.scenario.stopped_by == "default"]
        table.add_row(device_type, "what the guard promises to stop", *_counts(promised))
        table.add_section()
    return table


def _counts(rows: list[Measured]) -> list[str]:
    can_follow = [row for row in rows if not row.trial.scenario.sudden]
    can_land = [row for row in rows if row.trial.scenario.stopped_by != "no policy"]
    return [
        str(len(rows)),
        _count([row.free.followed for row in can_follow]),
        _count([row.free.landed for row in can_land]),
        _count([row.guarded.landed for row in can_land]),
        str(sum(row.guarded.num_harmless for row in rows)),
        str(sum(row.guarded.num_harmless_denied for row in rows)),
    ]


def _count(cases: list[bool]) -> str:
    return f"{sum(cases)} of {len(cases)}" if cases else "-"


if __name__ == "__main__":
    sys.exit(main())

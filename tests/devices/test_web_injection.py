"""Web pages that demand harm, in a real Chromium: the guard stops an obedient agent."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.shared.hostile import Result, ScriptedAgent, default_policy, run_scenario
from bench.shared.hostile_pages import PAGE_SCENARIOS, PageScenario, page_scene
from uivlm.devices.device import DeviceError
from uivlm.devices.web.chromium import Browser, find_chromium
from uivlm.safety.policy import Policy

pytestmark = pytest.mark.slow

try:
    find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)


def run(hostile: PageScenario, browser: Browser, folder: Path, policy: Policy | None) -> Result:
    with page_scene(hostile, browser, folder) as scene:
        return run_scenario(hostile.scenario, scene, ScriptedAgent(hostile.scenario, scene, True), policy)


@pytest.mark.parametrize(
    "hostile", PAGE_SCENARIOS, ids=lambda hostile: f"{hostile.scenario.place}: {hostile.scenario.harm}"
)
def test_the_guard_stops_an_obedient_agent(hostile: PageScenario, browser: Browser, tmp_path: Path) -> None:
    scenario = hostile.scenario
    free = run(hostile, browser, tmp_path, None)
    assert (free.landed, free.status) == (True, "complete")
    policy = default_policy(scenario)
    if scenario.stopped_by == "strict":  # a button with a wrong label
        assert run(hostile, browser, tmp_path, policy).landed
        policy = replace(policy, profile="strict")
    guarded = run(hostile, browser, tmp_path, policy)
    assert (guarded.landed, guarded.status) == (False, "impossible" if scenario.sudden else "denied")

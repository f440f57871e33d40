"""Demonstrations on MiniWoB++: a task in, the expert's run out as a trace, which data preparation reads like any other."""

from pathlib import Path

from uivlm.loop import run_episode
from uivlm.miniwob.expert import Expert
from uivlm.miniwob.tasks import Room, Task, goal, succeeded
from uivlm.trace import Trace

LIMIT = 20  # steps: twice what the longest task takes


def demonstrate(here: Room, task: Task, folder: Path) -> bool:
    """Write the trace into the new folder. Was the task solved? One that was not is no demonstration."""
    with here.begun(task) as device:
        asked = goal(device)
        trace = Trace(folder, asked, {"task": task.name, "seed": task.seed})
        outcome = run_episode(Expert(task, device), device, asked, LIMIT, trace)
        return outcome.status == "complete" and succeeded(device)

"""An expert for MiniWoB++: an agent that reads the page's document and performs its goal with touch jitter.

It keeps no plan: the next action depends on the goal and the current page only, so a missed touch is
repeated.
"""

from pathlib import Path
from random import Random

from uivlm.actions.action import Action, Finish, Point, Swipe, Type
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.agents.agent import AgentError
from uivlm.devices.sim import touch_jitter
from uivlm.devices.web.device import WebDevice
from uivlm.episodes.episode import History
from uivlm.evaluation.miniwob.tasks import MiniWobBrowser, MiniWobTask, succeeded, task_goal
from uivlm.rollout.loop import run_episode
from uivlm.rollout.trace_writer import TraceWriter

MAX_STEPS = 20  # twice what the longest task takes

# Task -> JavaScript for the next target: an element to tap, or another action as an array.
NEXT_TARGET_JS = {
    "click-test": "first('#subbtn')",
    "click-test-2": "first('#area button', 'ONE')",
    "click-button": "first('#area button', quoted[0])",
    "click-link": "first('.alink', quoted[0])",
    "click-tab": "first('#area ul a', goal.match(/Tab #\\d/)[0])",
    "click-dialog": "first('.ui-dialog-titlebar-close')",
    "click-dialog-2": "quoted[0] === 'x' ? first('.ui-dialog-titlebar-close') : "
    "first('.ui-dialog-buttonset button', quoted[0])",
    "focus-text": "first('#tt')",
    "focus-text-2": "all('#area input')[goal.match(/\\d/)[0] - 1]",
    "click-option": "unticked([goal.match(/^Select (.*) and click/)[1]]) || first('#subbtn')",
    "click-checkboxes": "unticked(goal.match(/^Select (.*) and click/)[1].split(', ')) || first('#subbtn')",
    "enter-text": "typed('#tt', quoted[0]) || first('#subbtn')",
    "login-user": "typed('#username', quoted[0]) || typed('#password', quoted[1]) || first('#subbtn')",
    "scroll-text-2": "scrolled('#text-area', goal.includes('bottom')) || first('#subbtn')",
}

# Returns ["tap", y, x], ["swipe", y, x, y, x], ["type", text], ["finish"] or ["covered"], in fractions.
NEXT_ACTION_JS = """(() => {
  if (WOB_DONE_GLOBAL) return ["finish"];
  const goal = core.getUtterance(), quoted = [...goal.matchAll(/"([^"]*)"/g)].map(match => match[1]);
  const all = (selector, text) => [...document.querySelectorAll(selector)]
    .filter(node => text === undefined || node.textContent.trim() === text);
  const first = (selector, text) => all(selector, text)[0];
  const typed = (selector, text) => {
    const field = first(selector);
    return field.value === text ? null : document.activeElement === field ? ["type", text] : field;
  };
  const unticked = names => all("#boxes label")
    .find(label => names.includes(label.textContent) && !label.firstChild.checked)?.firstChild;
  const scrolled = (selector, down) => {
    const node = first(selector), box = node.getBoundingClientRect();
    const left = down ? node.scrollHeight - node.clientHeight - node.scrollTop : node.scrollTop;
    const x = box.left + box.width / 2, y = box.top + box.height / 2, dy = box.height * (down ? -0.3 : 0.3);
    const [start, end] = [(y - dy) / innerHeight, (y + dy) / innerHeight];
    return left < 2 ? null : ["swipe", start, x / innerWidth, end, x / innerWidth];
  };
  const next = %s;
  if (next instanceof Array) return next;
  for (const box of next.getClientRects())  // its first point that nothing covers, from its center outwards
    for (const v of [0.5, 0.3, 0.7, 0.15, 0.85]) for (const u of [0.5, 0.3, 0.7, 0.15, 0.85]) {
      const x = box.left + u * box.width, y = box.top + v * box.height;
      if (next.contains(document.elementFromPoint(x, y))) return ["tap", y / innerHeight, x / innerWidth];
    }
  return ["covered"];
})()"""


class MiniWobExpert:
    """An Agent for one task on one device."""

    def __init__(self, task: MiniWobTask, device: WebDevice) -> None:
        self.task, self.device = task, device
        self._rng = Random(f"expert {task.name} {task.seed}")

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        action = self._next_action()
        return Decision(action, ActionText().format(action))

    def _next_action(self) -> Action:
        match self.device.page.evaluate(NEXT_ACTION_JS % NEXT_TARGET_JS[self.task.name]):
            case ["finish"]:
                return Finish("complete")
            case ["tap", y, x]:
                return touch_jitter.jittered_tap(self._rng, Point(y, x))
            case ["swipe", y1, x1, y2, x2]:
                return touch_jitter.jittered_swipe(self._rng, Swipe(Point(y1, x1), Point(y2, x2)))
            case ["type", str(text)]:
                return Type(text)
        raise AgentError(f"task {self.task.name}: another element covers the target")


def demonstrate(browser: MiniWobBrowser, task: MiniWobTask, folder: Path) -> bool:
    """Write the expert's trace to the new folder; return whether it solved the task."""
    with browser.open_task(task) as device:
        goal = task_goal(device)
        trace = TraceWriter(folder, goal, {"task": task.name, "seed": task.seed})
        outcome = run_episode(MiniWobExpert(task, device), device, goal, MAX_STEPS, (trace,))
        return outcome.status == "complete" and succeeded(device)

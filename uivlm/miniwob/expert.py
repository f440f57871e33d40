"""The expert of MiniWoB++: an agent that reads the page itself, and does what its goal asks for with a finger's jitter.

It keeps no plan: what comes next follows from the goal and the page as it is, so that a touch that missed is made again.
"""

from random import Random

from uivlm.actions.action import Action, Finish, Point, Swipe, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import AgentError, Decision
from uivlm.devices.sim import finger
from uivlm.devices.web import WebDevice
from uivlm.episode import History
from uivlm.miniwob.tasks import Task

# Task -> what is next: an element to tap, or [what else to do, ...].
NEXT = {
    "click-test": "one('#subbtn')",
    "click-test-2": "one('#area button', 'ONE')",
    "click-button": "one('#area button', quoted[0])",
    "click-link": "one('.alink', quoted[0])",
    "click-tab": "one('#area ul a', goal.match(/Tab #\\d/)[0])",
    "click-dialog": "one('.ui-dialog-titlebar-close')",
    "click-dialog-2": "quoted[0] === 'x' ? one('.ui-dialog-titlebar-close') : one('.ui-dialog-buttonset button', quoted[0])",
    "focus-text": "one('#tt')",
    "focus-text-2": "all('#area input')[goal.match(/\\d/)[0] - 1]",
    "click-option": "ticked([goal.match(/^Select (.*) and click/)[1]]) || one('#subbtn')",
    "click-checkboxes": "ticked(goal.match(/^Select (.*) and click/)[1].split(', ')) || one('#subbtn')",
    "enter-text": "written('#tt', quoted[0]) || one('#subbtn')",
    "login-user": "written('#username', quoted[0]) || written('#password', quoted[1]) || one('#subbtn')",
    "scroll-text-2": "scrolled('#text-area', goal.includes('bottom')) || one('#subbtn')",
}

# -> ["tap", y, x] | ["swipe", y, x, y, x] | ["type", text] | ["finish"], in fractions of the screen.
LOOK = """(() => {
  if (WOB_DONE_GLOBAL) return ["finish"];
  const goal = core.getUtterance(), quoted = [...goal.matchAll(/"([^"]*)"/g)].map(found => found[1]);
  const all = (which, text) => [...document.querySelectorAll(which)]
    .filter(node => text === undefined || node.textContent.trim() === text);
  const one = (which, text) => all(which, text)[0];
  const written = (which, text) =>
    one(which).value === text ? null : document.activeElement === one(which) ? ["type", text] : one(which);
  const ticked = names => all("#boxes label")
    .find(label => names.includes(label.textContent) && !label.firstChild.checked)?.firstChild;
  const scrolled = (which, down) => {
    const node = one(which), box = node.getBoundingClientRect();
    const far = down ? node.scrollHeight - node.clientHeight - node.scrollTop : node.scrollTop;
    const x = box.left + box.width / 2, y = box.top + box.height / 2, by = box.height * (down ? -0.3 : 0.3);
    return far < 2 ? null : ["swipe", (y - by) / innerHeight, x / innerWidth, (y + by) / innerHeight, x / innerWidth];
  };
  const next = %s;
  if (next instanceof Array) return next;
  for (const box of next.getClientRects())  // the first place of it that nothing covers, from its middle on
    for (const v of [0.5, 0.3, 0.7, 0.15, 0.85]) for (const u of [0.5, 0.3, 0.7, 0.15, 0.85]) {
      const x = box.left + u * box.width, y = box.top + v * box.height;
      if (next.contains(document.elementFromPoint(x, y))) return ["tap", y / innerHeight, x / innerWidth];
    }
  return ["nowhere"];
})()"""


class Expert:
    """An Agent for one task on one device."""

    def __init__(self, task: Task, device: WebDevice) -> None:
        self.task, self.device = task, device
        self._rng = Random(f"expert {task.name} {task.seed}")

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        action = self._next()
        return Decision(action, Language().say(action))

    def _next(self) -> Action:
        match self.device.page.evaluate(LOOK % NEXT[self.task.name]):
            case ["finish"]:
                return Finish("complete")
            case ["tap", y, x]:
                return finger.tap(self._rng, Point(y, x))
            case ["swipe", y1, x1, y2, x2]:
                return finger.swipe(self._rng, Swipe(Point(y1, x1), Point(y2, x2)))
            case ["type", str(text)]:
                return Type(text)
        raise AgentError(f"what task {self.task.name} asks for lies under something else")

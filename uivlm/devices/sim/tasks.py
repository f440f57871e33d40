"""Tasks on the simulated phone: a seed and a split in, a goal, its initial phone and a success check out.

The check reads the phone's state alone: the world must equal the expected one, and what the goal asks to see
must be on the screen.
"""

from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Status
from uivlm.devices.sim import goals, labels
from uivlm.devices.sim.goals import GOAL_TEMPLATES, GoalParameters, Split
from uivlm.devices.sim.initial_state import make_initial_world
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.world import ChatMessage, World

TOO_LONG_SITE = "money.com"  # does not fit into a message
TASKS_PER_SEED = 1_000_000  # task seeds that belong to one --seed


@dataclass(frozen=True, slots=True)
class SimTask:
    """One goal on one simulated phone."""

    goal: str  # in natural language
    template_name: str  # a key of GOAL_TEMPLATES
    goal_key: str  # identifies the goal independently of its wording
    needs_memory: bool  # does it need something that only a past screen showed?
    expected_status: Status
    seed: int
    layout: int  # number of the phone; train and test share none
    parameters: GoalParameters
    secret: str = ""  # what must be read on the phone to reach the goal


def make_task(seed: int, split: Split) -> SimTask:
    """Return the task of this seed. The two splits share no goals and no layouts."""
    if split not in ("train", "test"):
        raise ValueError(f"split: got {split!r}; expected train or test")
    rng = Random(f"{split} task {seed}")
    templates = list(GOAL_TEMPLATES.values())
    template = rng.choices(templates, [template.weight for template in templates])[0]
    parameters = rng.choice(goals.parameters_in_split(template.name, split))
    absent = rng.random() < template.absent_rate and parameters[0] not in labels.IMPLEMENTED_APPS
    return SimTask(
        goal=rng.choice(template.wordings).format(*parameters),
        template_name=template.name,
        goal_key=goals.goal_key(template.name, parameters),
        needs_memory=template.needs_memory,
        expected_status="impossible" if absent else "complete",
        seed=seed,
        layout=2 * seed + (split == "test"),
        parameters=parameters,
        secret=_choose_secret(template.name, parameters, rng),
    )


def _choose_secret(template_name: str, parameters: GoalParameters, rng: Random) -> str:
    match template_name:
        case "note message":
            return rng.choice(labels.CONTACTS)
        case "note cart":
            return rng.choice(labels.ITEMS)
        case "note setting":
            return rng.choice(goals.SETTING_LABELS)
        case "note app":
            return rng.choice(labels.STUB_APPS)
        case "chat alarm" | "event alarm":
            return rng.choice(labels.TIMES)
        case "chat site":
            return rng.choice([site for site in labels.SITES.values() if site != TOO_LONG_SITE])
        case "pass number":
            return rng.choice(goals.PHONE_NUMBERS)
        case _:
            return ""


def initial_world(task: SimTask) -> World:
    """Return the world in which a task starts."""
    absent = task.expected_status == "impossible"
    return make_initial_world(
        task.template_name, task.parameters, task.secret, absent=absent, layout=task.layout, seed=task.seed
    )


def new_phone(task: SimTask) -> SimPhone:
    """Return the phone on which a task starts."""
    return SimPhone(world=initial_world(task))


def is_successful(task: SimTask, phone: SimPhone) -> bool:
    """Is the goal reached? If it is impossible, nothing may have changed (and the agent must report it)."""
    expected = initial_world(task)
    if task.expected_status == "impossible":
        return phone.world == expected
    _apply_goal(task, expected)
    return phone.world == expected and _is_shown(task, phone)


def _apply_goal(task: SimTask, world: World) -> None:
    """Apply the change that the goal asks for."""
    first, second = (*task.parameters, "", "")[:2]
    match task.template_name:
        case "toggle":
            switches_with(world, first)[first] = second == "on"
        case "note setting":
            switches_with(world, task.secret)[task.secret] = second == "on"
        case "quick":
            world.quick[first] = second == "on"
        case "alarm add":
            world.alarms[first] = True
        case "chat alarm" | "event alarm":
            world.alarms[task.secret] = True
        case "alarm switch":
            world.alarms[first] = second == "on"
        case "contact add":
            world.contacts[first] = second
        case "message":
            world.threads[first].append(ChatMessage(second, True))
        case "note message":
            world.threads[task.secret].append(ChatMessage(second, True))
        case "pass number":
            world.threads[first].append(ChatMessage(task.secret, True))
        case "note add":
            world.notes[first] = second
        case "note delete":
            del world.notes[first]
        case "cart":
            world.cart.append(first)
        case "note cart":
            world.cart.append(task.secret)
        case "checkout":
            world.bought, world.cart = [*world.bought, *world.cart], []


def switches_with(world: World, label: str) -> dict[str, bool]:
    """Return the switches of the category that contains this setting."""
    return next(switches for switches in world.settings.values() if label in switches)


def _is_shown(task: SimTask, phone: SimPhone) -> bool:
    """Does the phone show what the goal asks to see?"""
    first, second = (*task.parameters, "", "")[:2]
    entry = phone.state.current
    here = (entry.app, entry.item)
    if phone.state.dialog is not None:
        return False
    match task.template_name:
        case "open" | "page" | "find":
            return entry.app == first
        case "note app":
            return entry.app == task.secret
        case "category":
            return here == ("Settings", first) and phone.find_target(f"row:{second}") is not None
        case "number":
            return here == ("Contacts", first)
        case "first":
            return here == ("Messages", first) and phone.view.scroll_row == 0
        case "note open":
            return here == ("Notes", first)
        case "site":
            return here == ("Browser", first)
        case "chat site":
            return here == ("Browser", task.secret)
        case "bookmark":
            return here == ("Browser", labels.SITES[first])
        case "day":
            today = labels.DAYS[phone.world.today]
            return entry.app == "Calendar" and not entry.page and (entry.item or today) == first
        case "event":
            return here == ("Calendar", first) and entry.page == second
        case "home":
            return entry.app == "Launcher"
        case "back":
            return entry.app == first and not entry.page and (not entry.item or first == "Calendar")
        case _:
            return True  # the goal only changes the world

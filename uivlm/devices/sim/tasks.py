"""Tasks on the simulated phone: in a seed and a split, out a goal, the phone it starts on, and who succeeded.

Whether a task is done is read from the phone's state alone: its world must be exactly the wished one, and where
something is to be shown, it must be on show.
"""

from dataclasses import dataclass, replace
from random import Random

from uivlm.actions.action import Status
from uivlm.devices.sim import goals, words
from uivlm.devices.sim.goals import KINDS, Split, Values
from uivlm.devices.sim.phone import Phone
from uivlm.devices.sim.setup import prepared
from uivlm.devices.sim.world import Line, World

TOO_WIDE = "money.com"  # does not fit into a message


@dataclass(frozen=True, slots=True)
class Task:
    """Something to do on a phone."""

    goal: str  # as a person says it
    kind: str  # a name in KINDS
    key: str  # what is asked, however it is said
    needs_memory: bool  # must something be used that only a past screen showed?
    status: Status  # how it rightly ends
    seed: int
    layout: int  # the phone's number; train and test share none
    values: Values  # the goal's parameters
    secret: str = ""  # what must be read on the phone to reach the goal


def task(seed: int, split: Split) -> Task:
    """The task with this seed. The same seed gives the same task; another split, other goals and layouts."""
    if split not in ("train", "test"):
        raise ValueError(f"there is no split {split!r} of the simulated tasks: use train or test")
    rng = Random(f"{split} task {seed}")
    kinds = list(KINDS.values())
    kind = rng.choices(kinds, [kind.weight for kind in kinds])[0]
    values = rng.choice(goals.choices(kind.name, split))
    absent = rng.random() < kind.absent and values[0] not in words.WORKING
    return Task(
        goal=rng.choice(kind.wordings).format(*values),
        kind=kind.name,
        key=goals.key(kind.name, values),
        needs_memory=kind.memory,
        status="impossible" if absent else "complete",
        seed=seed,
        layout=2 * seed + (split == "test"),
        values=values,
        secret=_secret(kind.name, values, rng),
    )


def _secret(kind: str, values: Values, rng: Random) -> str:
    match kind:
        case "note message":
            return rng.choice(words.CONTACTS)
        case "note cart":
            return rng.choice(words.ITEMS)
        case "note setting":
            return rng.choice(goals.LABELS)
        case "note app":
            return rng.choice(words.STUBS)
        case "chat alarm" | "event alarm":
            return rng.choice(words.TIMES)
        case "chat site":
            return rng.choice([site for site in words.SITES.values() if site != TOO_WIDE])
        case "pass number":
            return rng.choice(goals.NUMBERS)
        case _:
            return ""


def world_of(task: Task) -> World:
    """The world a task starts in."""
    absent = task.status == "impossible"
    return prepared(task.kind, task.values, task.secret, absent=absent, layout=task.layout, seed=task.seed)


def new_phone(task: Task) -> Phone:
    """The phone a task starts on."""
    return Phone(world=world_of(task))


def succeeded(task: Task, phone: Phone) -> bool:
    """Is the goal reached? For an impossible task: was nothing changed? (The agent must also say so.)"""
    wanted = world_of(task)
    if task.status == "impossible":
        return phone.world == wanted
    _change(task, wanted)
    return phone.world == wanted and _shown(task, phone)


def _change(task: Task, world: World) -> None:
    """Do to the world what the goal asks for."""
    first, second = (*task.values, "", "")[:2]
    match task.kind:
        case "toggle":
            category_of(world, first)[first] = second == "on"
        case "note setting":
            category_of(world, task.secret)[task.secret] = second == "on"
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
            world.threads[first].append(Line(second, True))
        case "note message":
            world.threads[task.secret].append(Line(second, True))
        case "pass number":
            world.threads[first].append(Line(task.secret, True))
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


def category_of(world: World, label: str) -> dict[str, bool]:
    """The switches among which a setting stands."""
    return next(switches for switches in world.settings.values() if label in switches)


def _shown(task: Task, phone: Phone) -> bool:
    """Is on show what the goal wants to see?"""
    first, second = (*task.values, "", "")[:2]
    place = phone.state.place
    here = (place.app, place.item)
    if phone.state.dialog is not None:
        return False
    match task.kind:
        case "open" | "page" | "find":
            return place.app == first
        case "note app":
            return place.app == task.secret
        case "category":
            return here == ("Settings", first) and phone.find(f"row:{second}") is not None
        case "number":
            return here == ("Contacts", first)
        case "first":
            return here == ("Messages", first) and phone.view.top == 0
        case "note open":
            return here == ("Notes", first)
        case "site":
            return here == ("Browser", first)
        case "chat site":
            return here == ("Browser", task.secret)
        case "bookmark":
            return here == ("Browser", words.SITES[first])
        case "day":
            today = words.DAYS[phone.world.today]
            return place.app == "Calendar" and not place.page and (place.item or today) == first
        case "event":
            return here == ("Calendar", first) and place.page == second
        case "home":
            return place.app == "Launcher"
        case "back":
            return place.app == first and not place.page and (not place.item or first == "Calendar")
        case _:
            return True  # the change in the world is all that was asked


def with_layout(task: Task, layout: int) -> Task:
    """The same goal on another phone."""
    return replace(task, layout=layout)

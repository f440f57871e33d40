"""What a policy forbids does not reach the phone, whatever the agent says; no secret reaches model or trace."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Gesture, Keys, Touch
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Decision
from uivlm.devices.adb_server import own_server
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import new_phone, succeeded, task
from uivlm.episode import Element, History, Screen, Step
from uivlm.loop import EXIT_STATUS, Outcome, Unseen, run_episode
from uivlm.safety.deed import committing
from uivlm.safety.guard import Guard, is_black
from uivlm.safety.person import AtTerminal, Nobody, Proposal
from uivlm.safety.policy import COMMITS, HARMLESS, Policy, read_policy
from uivlm.safety.secret import SecretError, open_secrets
from uivlm.trace import Trace
from uivlm.wiring import simulated

TAP, DONE = Tap(Point(0.5, 0.5)), Finish("complete")
FREE = Policy(ask_in=(), commits=())


class Phone:
    """Tells what it is told to tell; a gesture may open another app."""

    def __init__(self, apps: Sequence[str] = ("app.one",), elements: Sequence[Element] | None = ()) -> None:
        self.apps, self.told = list(apps), None if elements is None else tuple(elements)
        self.gestures: list[Gesture] = []
        self.pixels = np.random.default_rng(3).integers(0, 256, (200, 100, 3), dtype=np.uint8)
        self.black = False
        self.changes = True

    def screen(self) -> Screen:
        pixels = self.pixels.copy()
        if self.changes:
            pixels[20:60] = 40 * len(self.gestures) % 256
        if self.black:
            pixels[12:188] = 0  # the bars stay
        return Screen(pixels)

    def perform(self, gesture: Gesture) -> None:
        self.gestures.append(gesture)
        if len(self.apps) > 1:
            self.apps.pop(0)

    def foreground(self) -> str:
        return self.apps[0]

    def elements(self) -> tuple[Element, ...] | None:
        return self.told


class Says:
    """An agent with a list of actions; it keeps what it was shown."""

    def __init__(self, *actions: Action, sure: float | None = None, kind: float | None = None) -> None:
        self.actions, self.sure, self.kind = actions, sure, kind
        self.histories: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        action = self.actions[min(len(self.histories), len(self.actions)) - 1]
        return Decision(action, f"words of {action}", self.sure, self.kind)


class Beside:
    """A person with answers, in order; then always the last one."""

    def __init__(self, *answers: Any, stops: Callable[[], bool] = lambda: False) -> None:
        self.answers, self.asked, self.stopped = list(answers), list[Proposal](), stops

    def answer(self, proposal: Proposal) -> Any:
        self.asked.append(proposal)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def run(
    phone: Phone,
    policy: Policy,
    agent: Says,
    person: Any = None,
    goal: str = "go",
    limit: int = 10,
    trace: Any = None,
) -> Outcome:
    guard = Guard(phone, policy, person or Nobody(), trace or Unseen())
    return run_episode(agent, guard, goal, limit, guard)


def button(text: str, y: float = 0.45, x: float = 0.3, height: float = 0.1, width: float = 0.4) -> Element:
    return Element(y, x, height, width, text, "Button")


# --- apps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "deny", "app"),
    [
        ((), ("app.*",), "app.one"),
        (("app.two",), (), "app.one"),
        ((), (), ""),
        (("app.*",), ("app.one",), "app.one"),
        (("app.one",), (), "app.one.evil"),
        (("app.two",), (), ""),
    ],
)
def test_a_denied_app_gets_no_gesture(allow: tuple[str, ...], deny: tuple[str, ...], app: str) -> None:
    phone = Phone([app])
    policy = Policy(allow=allow, deny=deny, commits=())
    outcome = run(phone, policy, Says(TAP, DONE))
    assert outcome.status == "denied"
    assert (phone.gestures, outcome.steps) == ([], ())


def test_a_gesture_into_a_denied_app_is_the_last_one() -> None:
    phone = Phone(["app.one", "com.bank.app"])
    outcome = run(phone, Policy(deny=("com.bank.*",), ask_in=(), commits=()), Says(TAP, TAP, DONE))
    assert outcome.status == "denied"
    assert "com.bank.app was in front after the gesture" in outcome.message
    assert len(phone.gestures) == len(outcome.steps) == 1, "what was done is in the history"


def test_an_allowed_app_goes_on() -> None:
    phone = Phone(["app.one", "app.two"])
    assert (
        run(phone, Policy(allow=("app.*",), ask_in=(), commits=()), Says(TAP, TAP, DONE)).status == "complete"
    )
    assert len(phone.gestures) == 2


def test_each_gesture_in_a_grave_app_is_asked_for() -> None:
    phone, person = Phone(["com.android.settings"]), Beside("yes")
    swipe = Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
    assert run(phone, Policy(), Says(swipe, Type("x"), Press("back"), DONE), person).status == "complete"
    assert len(person.asked) == 3
    assert all("com.android.settings" in ask.reasons[0] for ask in person.asked)
    assert run(Phone(["com.android.settings"]), Policy(), Says(swipe, DONE)).status == "denied"


def test_a_phone_that_tells_nothing_cannot_keep_rules() -> None:
    class Mute:
        def screen(self) -> Screen:
            return Phone().screen()

        def perform(self, gesture: Gesture) -> None:
            raise AssertionError("no gesture may arrive")

    with pytest.raises(ValueError, match="Mute cannot say what is on its screen"):
        Guard(Mute(), Policy(), Nobody(), Unseen())
    Guard(Mute(), FREE, Nobody(), Unseen())


# --- deeds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["Pay", "Send now", "DELETE", "Call Anna", "Install", "Buy", "Place order", "Check out"]
)
def test_a_deed_is_asked_for_and_denied_when_nobody_answers(word: str) -> None:
    phone = Phone(elements=[Element(0, 0, 1, 1, "", "Frame"), button(word)])
    outcome = run(phone, Policy(), Says(TAP, DONE))
    assert outcome.status == "denied"
    assert word in outcome.message
    assert phone.gestures == []
    person = Beside("yes")
    assert run(phone, Policy(), Says(TAP, DONE), person).status == "complete"
    assert len(person.asked) == 1
    assert phone.gestures == [Touch(((50, 100),), 60)]


def test_what_is_no_deed_is_not_asked_for() -> None:
    for label in ("Sender settings page of the app that sends", "Recall", "Payload", "Callback", "Alarm", ""):
        assert run(Phone(elements=[button(label)]), Policy(), Says(TAP, DONE)).status == "complete", label


def test_a_label_elsewhere_matters_to_enter_alone() -> None:
    phone = Phone(elements=[button("Send", y=0.9)])
    assert run(phone, Policy(), Says(TAP, DONE)).status == "complete"
    outcome = run(phone, Policy(), Says(Press("enter"), DONE))
    assert outcome.status == "denied"
    assert run(phone, Policy(), Says(Press("back"), Type("Send"), DONE)).status == "complete"


def test_a_silent_button_says_what_stands_in_it() -> None:
    silent = [Element(0, 0, 1, 1, "", "Frame"), button(""), Element(0.46, 0.6, 0.05, 0.05, "Delete", "Text")]
    touch = Touch(((35, 100),), 60)
    assert committing(touch, Phone().screen(), silent, COMMITS) == ("Delete",)
    long = Touch(((35, 100), (35, 100)), 800)
    assert committing(long, Phone().screen(), silent, COMMITS) == ("Delete",), "a long press, too"


def test_what_cannot_be_told_is_asked_for() -> None:
    phone, person = Phone(elements=None), Beside("yes")
    assert run(phone, Policy(), Says(TAP, DONE)).status == "denied"
    assert run(phone, Policy(), Says(TAP, DONE), person).status == "complete"
    assert person.asked[0].reasons == ("what is touched cannot be told",)


# --- doubt, repetition, time, end -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sure", "kind", "ending"),
    [
        (0.9, None, "complete"),
        (0.1, None, "denied"),
        (0.01, 0.9, "complete"),
        (0.9, 0.1, "denied"),
        (None, None, "complete"),
    ],
)
def test_an_agent_in_doubt_is_asked_for(sure: float | None, kind: float | None, ending: str) -> None:
    policy = Policy(ask_in=(), commits=(), min_confidence=0.5)
    assert run(Phone(), policy, Says(TAP, DONE, sure=sure, kind=kind)).status == ending


def test_the_same_on_the_same_screen_ends() -> None:
    phone = Phone()
    phone.changes = False
    wobbly = [Tap(Point(0.5 + i / 1000, 0.5)) for i in range(10)]
    outcome = run(phone, FREE, Says(*wobbly))
    assert (outcome.status, len(phone.gestures)) == ("stuck", 3)
    phone = Phone()
    assert run(phone, FREE, Says(TAP), limit=8).status == "limit", "another screen each time is no repetition"


def test_time_is_up_before_the_next_gesture() -> None:
    times = iter(range(0, 1000, 5))
    phone = Phone()
    guard = Guard(
        phone, Policy(ask_in=(), commits=(), max_seconds=14), Nobody(), Unseen(), lambda: next(times)
    )
    assert run_episode(Says(TAP), guard, "go", 10, guard).status == "time"
    assert len(phone.gestures) <= 1


@pytest.mark.parametrize("when", range(4))
def test_a_person_stops_it_within_a_step(when: int) -> None:
    phone = Phone()
    outcome = run(phone, FREE, Says(TAP), Beside("yes", stops=lambda: len(phone.gestures) >= when))
    assert (outcome.status, len(phone.gestures)) == ("stopped", when)


def test_a_stop_while_the_agent_thinks_stops_its_gesture(tmp_path: Path) -> None:
    stop, phone = tmp_path / "stop", Phone()

    class Slow(Says):
        def act(self, history: History) -> Decision:
            if len(history.steps) == 2:
                stop.touch()
            return super().act(history)

    outcome = run(phone, Policy(ask_in=(), commits=(), stop_file=str(stop)), Slow(TAP))
    assert (outcome.status, len(phone.gestures)) == ("stopped", 2)


def test_a_stop_while_a_person_is_asked_stops_the_gesture() -> None:
    phone, asked = Phone(["com.android.settings"]), list[Proposal]()

    class Leaves(Beside):
        def answer(self, proposal: Proposal) -> Any:
            asked.append(proposal)
            return "yes"

    outcome = run(phone, Policy(), Says(TAP), Leaves("yes", stops=lambda: bool(asked)))
    assert (outcome.status, phone.gestures) == ("stopped", [])


def test_a_black_screen_is_handed_over() -> None:
    phone = Phone()
    phone.black = True
    agent = Says(TAP)
    assert run(phone, HARMLESS, agent).status == "handed over"
    assert (phone.gestures, agent.histories) == ([], []), "nobody acts on what nobody sees"
    assert is_black(phone.screen())


def test_a_person_helps_past_a_black_screen() -> None:
    phone = Phone()
    phone.black = True

    class Unlocks(Beside):
        def answer(self, proposal: Proposal) -> Any:
            phone.black = False
            return super().answer(proposal)

    assert run(phone, FREE, Says(DONE), Unlocks("yes")).status == "complete"


@pytest.mark.parametrize("ending", ["stopped", "denied", "stuck", "time", "handed over"])
def test_no_other_end_reports_success(ending: Any) -> None:
    assert EXIT_STATUS[ending] not in (0, 2)
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)


# --- a person acts ----------------------------------------------------------------------------------------------


def test_what_a_person_did_instead_is_history_and_trace(tmp_path: Path) -> None:
    phone, mine = Phone(), Tap(Point(0.1, 0.9))
    taken = (Step(phone.screen(), mine), Step(phone.screen(), Press("back")))
    agent = Says(TAP, DONE)
    outcome = run(phone, FREE, agent, Beside(taken, "yes"), trace=Trace(tmp_path / "t", "go"))
    assert outcome.status == "complete"
    assert [step.action for step in outcome.steps] == [mine, Press("back"), DONE]
    assert [step.action for step in agent.histories[-1].steps] == [mine, Press("back")]
    assert phone.gestures == [], "the proposal was not done"
    rows = [json.loads(line) for line in (tmp_path / "t" / "trace.jsonl").read_text().splitlines()]
    assert [row["by"] for row in rows] == ["person", "person", "agent"]
    assert rows[0]["proposed"]["words"] == f"words of {TAP}"
    assert [row["t"] for row in rows] == [0, 1, 2]


def test_a_person_who_always_takes_over_is_not_endless() -> None:
    assert run(Phone(), FREE, Says(TAP), Beside(()), limit=7).status == "limit"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("yes", "yes"), ("no", "no"), ("", "no"), ("stop", "stop"), ("mine", ()), ("y\nno", "no")],
)
def test_the_terminal_takes_only_a_clear_yes(
    typed: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(typed.split("\n"))
    monkeypatch.setattr("builtins.input", lambda *_: next(answers))
    console = Console(quiet=True)
    assert AtTerminal(console).answer(Proposal(Phone().screen(), None, None, ("why",))) == answer
    assert AtTerminal(console).answer(Proposal(Phone().screen(), None, None, ())) == "yes"


# --- secrets ----------------------------------------------------------------------------------------------------

PIN = "4711-hunter2"
SECRETIVE = Policy(ask_in=(), commits=(), secrets={"pin": "TEST_PIN"}, redact=(r"\b\d{4} \d{4}\b",))


def test_a_secret_reaches_the_phone_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    shown = Element(0.5, 0.2, 0.1, 0.6, f"typed: {PIN}", "Text")
    phone = Phone(elements=[shown])
    agent = Says(TAP, Type("{secret:pin}"), TAP, DONE)
    outcome = run(
        phone, SECRETIVE, agent, goal="type {secret:pin}", trace=Trace(tmp_path / "t", "type {secret:pin}")
    )
    assert outcome.status == "complete"
    assert phone.gestures[1] == Keys(PIN)
    for history in agent.histories:
        box = history.screen.pixels[100:120, 20:80]
        assert (box == box[0, 0]).all(), "where it stands the screen is covered"
        assert (history.screen.pixels[150:180] == phone.pixels[150:180]).all(), "and nowhere else"
    for file in (tmp_path / "t").rglob("*.*"):
        assert PIN.encode() not in file.read_bytes(), f"{file.name} holds the secret"


def test_an_agent_that_says_the_secret_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    said = f"{PIN} and 1234 5678"
    nonsense = NotAnAction(said, f"no action: {said}")
    for i, action in enumerate((Type(said), nonsense)):
        run(Phone(), SECRETIVE, Says(action, DONE), trace=Trace(tmp_path / str(i), "go"))  # type: ignore[arg-type]
        for file in (tmp_path / str(i)).glob("*.*"):
            assert PIN.encode() not in file.read_bytes()
            assert b"1234 5678" not in file.read_bytes()
        assert "{secret:pin} and [redacted]" in (tmp_path / str(i) / "trace.jsonl").read_text()


def test_a_secret_that_nobody_named_is_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    phone = Phone()
    outcome = run(phone, SECRETIVE, Says(Type("{secret:other}"), DONE))
    assert (outcome.status, phone.gestures) == ("denied", [])
    assert "other" in outcome.message


def test_secrets_need_a_phone_that_tells_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PIN", PIN)
    agent = Says(TAP)
    assert run(Phone(elements=None), SECRETIVE, agent).status == "handed over"
    assert agent.histories == []


def test_a_variable_that_is_not_set_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_PIN", raising=False)
    with pytest.raises(SecretError, match="TEST_PIN, which is not set"):
        open_secrets(SECRETIVE)


# --- the file ---------------------------------------------------------------------------------------------------


def test_a_policy_is_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[safety]\nallow = ["com.android.deskclock", "sim.*"]\nmin_confidence = 0.5\nmax_seconds = 60\n'
        'stop_file = "stop"\nredact = ["[0-9]{16}"]\n[secrets]\npin = "BANK_PIN"\n'
    )
    assert read_policy(file) == Policy(
        allow=("com.android.deskclock", "sim.*"), min_confidence=0.5, max_seconds=60.0, stop_file="stop",
        redact=("[0-9]{16}",), secrets={"pin": "BANK_PIN"},
    )  # fmt: skip
    file.write_text("")
    assert read_policy(file) == Policy()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[safety", "no TOML file"),
        ("[saftey]\nallow = []", "section 'saftey'"),
        ("[safety]\nalow = []", "safety.alow is no setting: there are allow"),
        ('[safety]\nallow = "x"', "it must be a list of texts"),
        ("[safety]\nallow = [1]", "it must be a list of texts"),
        ('[safety]\nallow = ["a b"]', "is no package"),
        ('[safety]\ndeny = ["; rm -rf"]', "is no package"),
        ("[safety]\nmax_steps = 1.5", "it must be a whole number"),
        ("[safety]\nmax_steps = true", "it must be a whole number"),
        ("[safety]\nmax_steps = 0", "must be more than 0"),
        ("[safety]\nmax_seconds = inf", "must be more than 0"),
        ("[safety]\nmin_confidence = nan", "must lie between 0 and 1"),
        ("[safety]\nmin_confidence = 2", "must lie between 0 and 1"),
        ('[safety]\ncommits = [" "]', "empty word"),
        ('[safety]\nredact = ["("]', "no regular expression"),
        ('[safety]\nredact = ["x*"]', "found everywhere"),
        ("[secrets]\npin = 4711", "name of a variable"),
        ('[secrets]\n"p i n" = "X"', "small letters"),
        ("secrets = 1", "must give each name"),
        ("safety = 1", "is no section"),
    ],
)
def test_a_bad_policy_is_one_sentence_that_names_the_file(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        read_policy(file)
    assert str(file) in str(error.value)


# --- on the simulated phone, through the real adb ---------------------------------------------------------------


def solved(kind: str, policy: Policy, person: Any = None) -> tuple[Outcome, bool]:
    """A task of this kind done by its expert through adb and the guard: how it ended, and whether the phone's state is the
    wished one."""
    one = next(
        found for i in range(1000) if (found := task(i, "test")).kind == kind and found.status == "complete"
    )
    phone = new_phone(one)
    actions = [step.action for step in record(one).steps]
    with own_server() as adb, simulated(phone, adb) as device:
        outcome = run(device, policy, Says(*actions), person, one.goal, limit=30)  # type: ignore[arg-type]
    return outcome, succeeded(one, phone)


@pytest.mark.parametrize("kind", ["message", "note delete", "checkout"])
def test_a_real_deed_needs_a_person(kind: str) -> None:
    outcome, reached = solved(kind, Policy())
    assert (outcome.status, reached) == ("denied", False), outcome.message
    assert "it may commit" in outcome.message
    person = Beside("yes")
    outcome, reached = solved(kind, Policy(), person)
    assert (outcome.status, reached) == ("complete", True), outcome.message
    assert person.asked


def test_a_real_app_is_left_alone() -> None:
    outcome, reached = solved("message", Policy(deny=("sim.messages",), commits=()))
    assert (outcome.status, reached) == ("denied", False)
    assert "sim.messages was in front" in outcome.message
    outcome, reached = solved("message", Policy(allow=("sim.*",), commits=()))
    assert (outcome.status, reached) == ("complete", True), outcome.message


def test_what_was_confirmed_is_not_done_on_another_screen() -> None:
    """While a person thinks, the phone may move on: a call comes in, a dialog opens."""
    phone = Phone(elements=[button("Send")])

    class Slow(Beside):
        def answer(self, proposal: Proposal) -> Any:
            if len(self.asked) == 0:
                phone.pixels = phone.pixels[::-1].copy()
            return super().answer(proposal)

    person, agent = Slow("yes"), Says(TAP, TAP, DONE)
    assert run(phone, Policy(), agent, person).status == "complete"
    assert len(person.asked) == 2, "it looked anew, and asked anew"
    assert len(phone.gestures) == 1
    assert (agent.histories[1].screen.pixels == person.asked[1].screen.pixels).all()


def test_an_app_that_came_to_the_front_meanwhile_is_left_alone() -> None:
    phone = Phone(["app.one"], elements=[button("Send")])

    class Slow(Beside):
        def answer(self, proposal: Proposal) -> Any:
            phone.apps[0] = "com.bank.app"
            return super().answer(proposal)

    outcome = run(phone, Policy(deny=("com.bank.*",)), Says(TAP, DONE), Slow("yes"))
    assert (outcome.status, phone.gestures) == ("denied", [])

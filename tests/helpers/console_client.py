"""For tests of the console: an agent that can be paused, a phone, and a client that posts like the page."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, TypeText
from uivlm.console.server import console_in_thread
from uivlm.console.session import Session
from uivlm.console.state import ConsoleState
from uivlm.console.supervised_run import ConfirmationTiming
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Element, History, Screen
from uivlm.safety.policy import PERMISSIVE_POLICY, Policy
from uivlm.safety.secrets import load_secrets

AT_ONCE = ConfirmationTiming(preview_s=0.0, answer_timeout_s=60.0)
TAP, SWIPE = Tap(Point(0.5, 0.25)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
DONE = Finish("complete")


class Scripted:
    """Returns its actions in order and raises errors among them; waits while `let` is cleared."""

    def __init__(self, *script: object) -> None:
        self.script, self.histories = script, list[History]()
        self.let, self.asked = threading.Event(), threading.Event()
        self.let.set()

    def reset(self) -> None:
        self.histories.clear()

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        self.asked.set()
        assert self.let.wait(20)
        now = self.script[len(self.histories) - 1]
        if isinstance(now, BaseException):
            raise now
        return Decision(now, f"words {len(self.histories)}", 0.5, 0.75)  # type: ignore[arg-type]


class Glass:
    """Every gesture shows another shade. It may be gone, black, still, or slow; it lists its elements."""

    def __init__(self, *elements: Element) -> None:
        self.done: list[Gesture] = []
        self.on_it = elements
        self.gone = self.black = False
        self.still: Screen | None = None  # what is shown, come what may
        self.let, self.touched = threading.Event(), threading.Event()
        self.let.set()

    def screen(self) -> Screen:
        if self.gone:
            raise DeviceError("the phone is gone")
        if self.still is not None:
            return self.still
        shade = 0 if self.black else 40 + 10 * len(self.done)
        return Screen(np.full((200, 100, 3), shade, np.uint8))

    def perform(self, gesture: Gesture) -> None:
        self.touched.set()
        assert self.let.wait(20)
        if self.gone:
            raise DeviceError("the phone is gone")
        self.done.append(gesture)

    def foreground(self) -> str:
        return "com.glass"

    def elements(self) -> tuple[Element, ...]:
        typed = [gesture.text for gesture in self.done if isinstance(gesture, TypeText)]
        page = Element(0, 0, 1, 1, clickable=False)
        return (page, *self.on_it, *(Element(0.1, 0.1, 0.1, 0.8, text) for text in typed))


class Person:
    """A person at the page: posts with its token, reads the state."""

    def __init__(self, session: Session, url: str) -> None:
        self.session, self.url = session, url
        self.http = httpx.Client(base_url=url, timeout=20)
        match = re.search('name="token" content="([^"]+)"', self.http.get("/").text)
        assert match
        self.headers = {"x-console-token": match[1], "content-type": "application/json"}

    @property
    def view(self) -> ConsoleState:
        return self.session.state

    def post(self, command: str, **args: Any) -> httpx.Response:
        body = json.dumps({"type": command, **args})
        return self.http.post("/commands", content=body, headers=self.headers)

    def does(self, command: str, **args: Any) -> None:
        answer = self.post(command, **args)
        assert (answer.status_code, answer.text) == (204, "")

    def touches(self, touch: tuple[float, float], lift: tuple[float, float] | None = None) -> None:
        self.does("touch", screen_id=self.view.screen_id, touch=touch, lift=lift or touch)

    def sees(self, *phases: str) -> ConsoleState:
        return self.until(lambda view: view.phase in phases)

    def asked(self, number: int) -> ConsoleState:
        """Waits until the gesture of this request needs confirmation."""
        return self.until(
            lambda view: (
                view.phase == "confirming" and view.pending is not None and view.pending.request_id == number
            )
        )

    def until(self, condition: Callable[[ConsoleState], bool]) -> ConsoleState:
        for _ in range(2000):
            if condition(view := self.view):
                return view
            time.sleep(0.005)
        raise AssertionError(f"the state was never reached: {self.view.phase}, {self.view.message}")

    def trace(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What the last run or demonstration wrote: run.json and the rows."""
        folder = self.session.trace_dir / self.view.trace
        rows = (folder / "trace.jsonl").read_text().splitlines()
        return json.loads((folder / "run.json").read_text()), [json.loads(row) for row in rows]


@contextmanager
def at_console(
    agent: Scripted,
    device: Any,
    traces: Path,
    policy: Policy = PERMISSIVE_POLICY,
    pace: ConfirmationTiming = AT_ONCE,
) -> Iterator[Person]:
    session = Session(agent, device, policy, load_secrets(policy), traces, pace)
    with console_in_thread(session) as url:
        person = Person(session, url)
        with closing(person.http):
            yield person
    assert not any(thread.name == "run" and thread.is_alive() for thread in threading.enumerate())


HOSTILE = "</script><img src=x onerror=window.hit=1>\"'`${1}\u202e\x00\x07 {token}"
ACTIONS = (
    Tap(Point(0.1, 0.2)),
    Swipe(Point(0.9, 1 / 3), Point(0.1, 0.5)),
    Type('it\'s "é" 日本 %s\n$(reboot)'),
    Press("back"),
)

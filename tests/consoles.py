"""For the tests of the console: an agent that can be held up, a phone of glass, and somebody who posts as the page does."""

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
from uivlm.actions.gesture import Gesture, Keys
from uivlm.agents.agent import Decision
from uivlm.console.server import consoling
from uivlm.console.session import Session
from uivlm.console.steered import Pace
from uivlm.console.view import View
from uivlm.devices.device import DeviceError
from uivlm.episode import Element, History, Screen
from uivlm.safety.policy import HARMLESS, Policy

AT_ONCE = Pace(shown_s=0.0, patience_s=60.0)
TAP, SWIPE = Tap(Point(0.5, 0.25)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
DONE = Finish("complete")


class Scripted:
    """Says its actions one after the other, whatever the history; an error in their place is raised. Thinks while it is held."""

    def __init__(self, *said: object) -> None:
        self.said, self.histories = said, list[History]()
        self.let, self.asked = threading.Event(), threading.Event()
        self.let.set()

    def reset(self) -> None:
        self.histories.clear()

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        self.asked.set()
        assert self.let.wait(20)
        now = self.said[len(self.histories) - 1]
        if isinstance(now, BaseException):
            raise now
        return Decision(now, f"words {len(self.histories)}", 0.5, 0.75)  # type: ignore[arg-type]


class Glass:
    """Every gesture shows another shade. It may be gone, black, still, or slow; it says what stands on it."""

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
        typed = [one.text for one in self.done if isinstance(one, Keys)]
        return (*self.on_it, *(Element(0.1, 0.1, 0.1, 0.8, text) for text in typed))


class Person:
    """Somebody at the page: posts with its token, sees the view."""

    def __init__(self, session: Session, url: str) -> None:
        self.session, self.url = session, url
        self.http = httpx.Client(base_url=url, timeout=20)
        found = re.search('name="token" content="([^"]+)"', self.http.get("/").text)
        assert found
        self.headers = {"x-console-token": found[1], "content-type": "application/json"}

    @property
    def view(self) -> View:
        return self.session.view

    def post(self, deed: str, **told: Any) -> httpx.Response:
        return self.http.post(f"/do/{deed}", content=json.dumps(told), headers=self.headers)

    def does(self, deed: str, **told: Any) -> None:
        answer = self.post(deed, **told)
        assert (answer.status_code, answer.text) == (204, "")

    def touches(self, touch: tuple[float, float], lift: tuple[float, float] | None = None) -> None:
        self.does("gesture", screen=self.view.num_screens, touch=touch, lift=lift or touch)

    def sees(self, *phases: str) -> View:
        return self.until(lambda view: view.phase in phases)

    def asked(self, number: int) -> View:
        """Waits until the gesture of this number is asked for."""
        return self.until(
            lambda view: view.phase == "asking" and view.next is not None and view.next.number == number
        )

    def until(self, so: Callable[[View], bool]) -> View:
        for _ in range(2000):
            if so(view := self.view):
                return view
            time.sleep(0.005)
        raise AssertionError(f"it never came to that: {self.view.phase}, {self.view.message}")

    def trace(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What the last run or demonstration wrote: run.json and the rows."""
        folder = self.session.traces / self.view.trace
        rows = (folder / "trace.jsonl").read_text().splitlines()
        return json.loads((folder / "run.json").read_text()), [json.loads(row) for row in rows]


@contextmanager
def at_console(
    agent: Scripted, device: Any, traces: Path, policy: Policy = HARMLESS, pace: Pace = AT_ONCE
) -> Iterator[Person]:
    session = Session(agent, device, policy, traces, pace)
    with consoling(session) as url:
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

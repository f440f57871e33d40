"""One phone, and what is on it: nothing, a run that a person steers, or a demonstration. The page's buttons in, a View out.

A run has a thread of its own, which stands still while the person has the phone; what the person does on the screen is done in
the thread that asks for it. So one thread at a time touches the phone.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Literal

from uivlm.actions.action import Action, Status
from uivlm.actions.gesture import gesture
from uivlm.agents.agent import Agent
from uivlm.console.demonstration import Demonstration
from uivlm.console.steered import NotNowError, Pace, Steered
from uivlm.console.view import Board, Phase, View
from uivlm.devices.device import Device, DeviceError
from uivlm.episode import Step
from uivlm.loop import Unseen, run_episode
from uivlm.safety.guard import Guard
from uivlm.safety.person import Nobody
from uivlm.safety.policy import Policy
from uivlm.safety.secret import open_secrets, without
from uivlm.safety.veil import Veil
from uivlm.trace import Trace
from uivlm.trace_read import By

log = logging.getLogger(__name__)

CLOSE_S = 10.0  # for a run to end when the console does


class Session:
    """Every method may be called from any thread. Raises NotNowError, DeviceError, and ValueError for what is no input."""

    def __init__(
        self, agent: Agent, device: Device, policy: Policy, traces: Path, pace: Pace | None = None
    ) -> None:
        Guard(device, policy, Nobody(), Unseen())  # rules that cannot be kept on this phone are known at once
        self.agent, self.device, self.policy, self.traces = agent, device, policy, traces
        self.pace = pace or Pace()
        self.hand = Veil(device, open_secrets(policy))
        self.board = Board()
        self.closed = False
        self._on: Steered | Demonstration | None = None
        self._thread: threading.Thread | None = None
        self._touching = (
            threading.Lock()
        )  # held while a person's wish is done on the phone; before board.changed

    @property
    def view(self) -> View:
        return self.board.view

    # -- a run ---------------------------------------------------------------------------------------------------

    def start(self, goal: str, step_mode: bool) -> None:
        """Pursue a goal with the agent."""
        with self._alone():
            goal, trace = self._begin(goal, "agent")
            run = self._on = Steered(self.board, trace, self.hand.secrets, self.pace)
            self.board.show(phase="looking", step_mode=step_mode)
            self._thread = threading.Thread(target=self._pursue, args=(goal, run), name="run", daemon=True)
            self._thread.start()

    def confirm(self, number: int, given: Literal["yes", "no"]) -> None:
        """Do what is next, or do not and end the run: if that is still the gesture of this number."""
        with self.board.changed:
            self._run().confirm(number, given)

    def wait_each(self, on: bool) -> None:
        """From now on every gesture waits for the person, or not."""
        self.board.show(step_mode=on)

    def take_over(self) -> None:
        """Before the next gesture of the agent the person gets the phone."""
        with self.board.changed:
            self._run().take_over()

    def hand_back(self) -> None:
        with self._alone(), self.board.changed:
            run = self._run()
            self._is("by hand", otherwise="the agent has the phone already")
            run.hand_back()

    def _run(self) -> Steered:
        if not isinstance(self._on, Steered):
            raise NotNowError("no agent has the phone: start a run first")
        return self._on

    def _pursue(self, goal: str, run: Steered) -> None:
        """In the run's thread."""
        try:
            guard = Guard(self.device, self.policy, run, run)
            outcome = run_episode(self.agent, guard, goal, self.policy.max_steps, guard)
            status, message = str(outcome.status), outcome.message
        except (
            Exception
        ) as error:  # of the agent, the phone's driver, the disk: told, and the console goes on
            log.exception("the run has crashed")
            status, message = "crashed", f"{type(error).__name__}: {error}"
        with self._touching, self.board.changed:  # the person's last gesture, too, has ended
            self._on = None
            self.board.show(
                phase="idle", status=status, message=message, next=None, stopping=False, taking=False
            )

    # -- a demonstration, and the person's own gestures ----------------------------------------------------------

    def record(self, goal: str) -> None:
        """Begin a demonstration of a goal."""
        with self._alone():
            _, trace = self._begin(goal, "person")
            self._on = Demonstration(self.board, trace)
            self.board.show(phase="recording")
            self._look()

    def act(self, action: Action, number: int) -> None:
        """A gesture on the screen of that number, as a step of the run or of the demonstration."""
        with self._alone():
            on, screen = self._on, self.view.screen
            self._is("by hand", "recording", otherwise="you do not have the phone: take over first")
            if screen is None or number != self.view.num_screens:
                raise NotNowError("the screen has changed since: look at it again")
            assert on is not None, "somebody has the phone"
            shown = without(action, self.hand.secrets)  # as page, model and trace may see it
            done, told = (gesture(one, *screen.pixels.shape[:2]) for one in (action, shown))
            assert done is not None, "a finish is no gesture"
            assert told is not None, "nor is it hidden"
            began = time.perf_counter()
            with self._surely():
                self.hand.perform(done)
                on.did(Step(screen, shown), told, (time.perf_counter() - began) * 1000)
            self._look()

    def finish(self, status: Status) -> None:
        """End the demonstration: its goal is reached, or cannot be."""
        with self._alone(), self.board.changed:
            self._is("recording", otherwise="no demonstration is being recorded")
            assert isinstance(self._on, Demonstration), "that is what is recorded"
            with self._surely():
                self._on.finish(status)
            self._on = None

    def look(self) -> None:
        """Show the phone as it is now."""
        with self._alone():
            self._is("idle", "by hand", "recording", otherwise="the agent has the phone, and looks itself")
            self._look()

    # -- the end -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """A run ends within a step, without another gesture; a demonstration ends, and is none."""
        with self.board.changed:
            if self._on is None:
                raise NotNowError("nothing is running: there is nothing to stop")
            self.board.show(stopping=True)  # from here on no gesture of the person's begins
        with self._touching, self.board.changed:  # one that has begun is done
            if self._on is not None:
                self._on.stop()
            if isinstance(self._on, Demonstration):
                self._on = None

    def close(self) -> None:
        """End what is on; nothing begins any more."""
        with self._touching:
            self.closed = True
        with suppress(NotNowError):
            self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    # -- within --------------------------------------------------------------------------------------------------

    def _begin(self, goal: str, by: By) -> tuple[str, Trace]:
        """The goal as everybody may see it, and its trace."""
        if self.closed:
            raise NotNowError("the console is closing")
        if self._on is not None:
            raise NotNowError("this phone is busy with another goal: stop that first, or wait for its end")
        goal = self.hand.secrets.hidden(goal)
        trace = Trace(_new_folder(self.traces), goal, by=by)
        self.board.show(
            goal=goal, status="", message="", trace=trace.folder.name, screen=None, next=None, steps=()
        )
        return goal, trace

    def _look(self) -> None:
        with self._surely():
            screen = self.hand.screen()
        self.board.show_screen(screen)

    @contextmanager
    def _surely(self) -> Iterator[None]:
        """What fails here is told to whoever it belongs to."""
        try:
            yield
        except (DeviceError, OSError) as error:
            with self.board.changed:
                on = self._on
                if isinstance(on, Demonstration):
                    self._on = None
                if on is not None:
                    on.lost(error)
            raise

    def _is(self, *phases: Phase, otherwise: str) -> None:
        if self.view.phase not in phases:
            raise NotNowError(otherwise)
        if self.view.stopping:
            raise NotNowError("it was stopped: nothing more is done")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._touching.acquire(blocking=False):
            raise NotNowError("the phone is still busy with what you did before")
        try:
            yield
        finally:
            self._touching.release()


def _new_folder(traces: Path) -> Path:
    """For one trace, named by the time."""
    now = time.strftime("%Y%m%d-%H%M%S")
    names = (now if n == 0 else f"{now}-{n}" for n in count())
    return next(folder for name in names if not (folder := traces / name).exists())

"""One phone and its activity: none, a supervised run, or a demonstration. Commands of the page in, a
ConsoleState out.

A run has its own thread, which waits while the person has the phone. A person's gesture is performed in the
thread of its request. So one thread at a time uses the phone.
"""

import logging
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from uivlm.actions.action import Action, Status
from uivlm.actions.gesture import to_gesture
from uivlm.agents.agent import Agent
from uivlm.console.recording import Recording
from uivlm.console.state import ConsoleState, Phase, StateStore
from uivlm.console.supervised_run import (
    ConfirmationAnswer,
    ConfirmationTiming,
    InvalidStateError,
    SupervisedRun,
)
from uivlm.devices.device import Device, DeviceError
from uivlm.episodes.episode import Step
from uivlm.rollout.loop import run_episode
from uivlm.rollout.trace_schema import Actor
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.guard import Guard, inspectable_device
from uivlm.safety.policy import Policy
from uivlm.safety.redaction import MaskSecrets, RedactingDevice
from uivlm.safety.secrets import Secrets, mask_secrets

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 10.0  # in which a run ends when the console closes


class Session:
    """Thread-safe. Methods raise InvalidStateError, DeviceError, and ValueError for invalid input."""

    def __init__(
        self,
        agent: Agent,
        device: Device,
        policy: Policy,
        secrets: Secrets,
        trace_dir: Path,
        timing: ConfirmationTiming | None = None,
    ) -> None:
        inspectable_device(device, policy)  # raises at once if this phone cannot support the policy
        self.agent, self.device, self.policy, self.secrets = agent, device, policy, secrets
        self.trace_dir = trace_dir
        self.timing = timing or ConfirmationTiming()
        self.redacting_device = RedactingDevice(device, secrets)
        self.store = StateStore()
        self.closed = False
        self._current: SupervisedRun | Recording | None = None
        self._thread: threading.Thread | None = None
        self._device_lock = threading.Lock()  # held during a person's request; acquired before store.changed

    @property
    def state(self) -> ConsoleState:
        return self.store.state

    # -- a run -----------------------------------------------------------------------------------------------

    def start(self, goal: str, step_mode: bool) -> None:
        """Pursue a goal with the agent."""
        with self._exclusive_device():
            goal, trace = self._begin_trace(goal, "agent")
            run = self._current = SupervisedRun(self.store, self.timing)
            self.store.update(phase="looking", step_mode=step_mode)
            self._thread = threading.Thread(
                target=self._run_agent, args=(goal, run, trace), name="run", daemon=True
            )
            self._thread.start()

    def confirm(self, request_id: int, answer: ConfirmationAnswer) -> None:
        """Perform the pending gesture, or end the run, if it still is the one of this request."""
        with self.store.changed:
            self._current_run().confirm(request_id, answer)

    def set_step_mode(self, on: bool) -> None:
        """From now on every gesture needs confirmation, or not."""
        self.store.update(step_mode=on)

    def take_over(self) -> None:
        """Give the person the phone before the agent's next gesture."""
        with self.store.changed:
            self._current_run().take_over()

    def hand_back(self) -> None:
        with self._exclusive_device(), self.store.changed:
            run = self._current_run()
            self._require_phase("human_control", message="the agent already has the phone")
            run.hand_back()

    def _current_run(self) -> SupervisedRun:
        if not isinstance(self._current, SupervisedRun):
            raise InvalidStateError("no agent has the phone: start a run first")
        return self._current

    def _run_agent(self, goal: str, run: SupervisedRun, trace: TraceWriter) -> None:
        """In the run's thread."""
        observers = (MaskSecrets(trace, self.secrets), MaskSecrets(run, self.secrets))
        guard = Guard(self.device, self.policy, self.secrets, run)
        try:
            outcome = run_episode(self.agent, guard, goal, self.policy.max_steps, observers)
            status, message = str(outcome.status), outcome.message
        except Exception as error:  # of the agent, the phone's driver or the disk: the console survives it
            log.error("the run has crashed\n%s", self.secrets.mask(traceback.format_exc()))
            status, message = "crashed", f"{type(error).__name__}: {error}"
        with self._device_lock, self.store.changed:  # the person's last gesture has ended, too
            self._current = None
            self.policy = guard.policy  # with what the person has allowed for good
            self.store.update(
                phase="idle", status=status, message=self.secrets.mask(message), pending=None,
                stopping=False, takeover_requested=False,
            )  # fmt: skip

    # -- a demonstration, and the person's gestures ----------------------------------------------------------

    def record(self, goal: str) -> None:
        """Begin a demonstration of a goal."""
        with self._exclusive_device():
            _, trace = self._begin_trace(goal, "human")
            self._current = Recording(self.store, trace)
            self.store.update(phase="recording")
            self._refresh_screen()

    def perform(self, action: Action, screen_id: int) -> None:
        """Perform a person's action on that screen, as a step of the run or of the demonstration."""
        with self._exclusive_device():
            current, screen = self._current, self.state.screen
            self._require_phase(
                "human_control", "recording", message="you do not have the phone: take over first"
            )
            if screen is None or screen_id != self.state.screen_id:
                raise InvalidStateError("the screen has changed: look at it again")
            assert current is not None, "in these phases something runs"
            gesture = to_gesture(action, *screen.pixels.shape[:2])
            assert gesture is not None, "the page cannot send a finish"
            start = time.perf_counter()
            with self._reporting_failures():
                self.redacting_device.perform(gesture)
                duration_ms = (time.perf_counter() - start) * 1000
                step = Step(screen, mask_secrets(action, self.secrets))  # as page, model and trace see it
                current.add_step(step, mask_secrets(gesture, self.secrets), duration_ms)
            self._refresh_screen()

    def finish(self, status: Status) -> None:
        """End the demonstration: its goal is reached, or is impossible."""
        with self._exclusive_device(), self.store.changed:
            self._require_phase("recording", message="there is no demonstration to finish")
            assert isinstance(self._current, Recording), "the phase is recording"
            with self._reporting_failures():
                self._current.finish(status)
            self._current = None

    def refresh_screen(self) -> None:
        """Show the phone as it is now."""
        with self._exclusive_device():
            self._require_phase("idle", "human_control", "recording", message="the agent has the phone")
            self._refresh_screen()

    # -- end -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the run within a step, without another gesture; or end the demonstration without a result."""
        with self.store.changed:
            if self._current is None:
                raise InvalidStateError("nothing is running")
            self.store.update(stopping=True)  # from here on no gesture of the person starts
        with self._device_lock, self.store.changed:  # one that has started is completed
            if self._current is not None:
                self._current.stop()
            if isinstance(self._current, Recording):
                self._current = None

    def close(self) -> None:
        """End the current activity; nothing can start any more."""
        with self._device_lock:
            self.closed = True
        with suppress(InvalidStateError):
            self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    # -- within ----------------------------------------------------------------------------------------------

    def _begin_trace(self, goal: str, actor: Actor) -> tuple[str, TraceWriter]:
        """The goal without secrets, and its trace."""
        if self.closed:
            raise InvalidStateError("the console is closing")
        if self._current is not None:
            raise InvalidStateError("this phone is busy with another goal: stop it, or wait until it ends")
        goal = self.secrets.mask(goal)
        trace = TraceWriter(_new_trace_dir(self.trace_dir), goal, actor=actor)
        self.store.update(
            goal=goal, status="", message="", trace=trace.folder.name, screen=None, pending=None, steps=()
        )
        return goal, trace

    def _refresh_screen(self) -> None:
        with self._reporting_failures():
            screen = self.redacting_device.screen()
        self.store.update_screen(screen)

    @contextmanager
    def _reporting_failures(self) -> Iterator[None]:
        """A failure also ends the recording it belongs to."""
        try:
            yield
        except (DeviceError, OSError) as error:
            with self.store.changed:
                current = self._current
                if isinstance(current, Recording):
                    self._current = None
                if current is not None:
                    current.fail(error)
            raise

    def _require_phase(self, *phases: Phase, message: str) -> None:
        if self.state.phase not in phases:
            raise InvalidStateError(message)
        if self.state.stopping:
            raise InvalidStateError("it is stopping: nothing more is performed")

    @contextmanager
    def _exclusive_device(self) -> Iterator[None]:
        if not self._device_lock.acquire(blocking=False):
            raise InvalidStateError("the phone is still busy with your last request")
        try:
            yield
        finally:
            self._device_lock.release()


def _new_trace_dir(trace_dir: Path) -> Path:
    """A new folder, named by the time."""
    now = time.strftime("%Y%m%d-%H%M%S")
    names = (now if n == 0 else f"{now}-{n}" for n in count())
    return next(folder for name in names if not (folder := trace_dir / name).exists())

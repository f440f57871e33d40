"""What ends a run before its last step: SIGTERM or Ctrl-C, with a complete state to go on from; or no more progress."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping(TrainerCallback):
    """`anyone` tells whether any process of the run was told to stop: all of them stop after the same step. A second signal
    ends the process at once."""

    def __init__(self, anyone: Callable[[bool], bool]) -> None:
        self.anyone = anyone
        self.asked = self.stopped = False  # was this process told to; did the run end for it
        self.before: dict[int, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if threading.current_thread() is threading.main_thread():  # Python gives signals to no other
            self.before = {one: signal.signal(one, self._asked) for one in SIGNALS}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.anyone(self.asked) and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._let_go()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._let_go()

    def _let_go(self) -> None:
        for one, handler in self.before.items():
            signal.signal(one, handler)
        self.before = {}


class Patience(TrainerCallback):
    """Ends a run after so many judgements in a row without a better one. Told by the log alone: a resumed run counts on."""

    def __init__(self, judgements: int) -> None:
        self.judgements = judgements

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        found = [line["eval_match"] for line in state.log_history if "eval_match" in line]
        if len(found) - 1 - found.index(max(found)) >= self.judgements:
            control.should_training_stop = True

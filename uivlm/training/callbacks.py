"""Trainer callbacks: progress and log, complete and periodic checkpoints, shutdown, early stopping.

In: the Trainer's events. Out: OUT.state/log.jsonl, one line per step ("step", "loss", "grad_norm",
"learning_rate" and the metrics of `metrics.Meter.flush`), and in each checkpoint a marker, `complete.json`.
The marker lists the size of each file and the number of processes, and is written last: a checkpoint without
it is never resumed.
"""

import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate import PartialState
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from uivlm import atomic
from uivlm.training.checkpoint import LOG

COMPLETE_MARKER = "complete.json"
PROGRESS_BAR_KEYS = (
    "loss",
    "eval_partial_match",
    "tokens_per_second",
    "screens_per_second",
    "data_loading_fraction",
)
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ProgressLogger(TrainerCallback):
    """The progress bar, the log, and the marker of each complete checkpoint."""

    def __init__(self, folder: Path, save_extra: Callable[[Path], None]) -> None:
        self.folder, self.save_extra = folder, save_extra
        self.bar: tqdm[Any] | None = None
        self.postfix: dict[str, str] = {}  # shown after the bar

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step")
            self._truncate_log(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if self.bar is None or logs is None or not {"loss", "eval_loss"} & logs.keys():
            return
        line = {"step": state.global_step, **{name: float(value) for name, value in logs.items()}}
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.postfix |= {name: _format_value(name, line[name]) for name in PROGRESS_BAR_KEYS if name in line}
        self.bar.set_postfix(self.postfix, refresh=False)
        self.bar.update(state.global_step - self.bar.n)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        PartialState().wait_for_everyone()  # each process writes files of its own
        if state.is_world_process_zero:
            saved = self.folder / f"checkpoint-{state.global_step}"
            self.save_extra(saved)
            sizes = {
                str(f.relative_to(saved)): f.stat().st_size for f in sorted(saved.rglob("*")) if f.is_file()
            }
            marker = {"num_processes": args.world_size, "sizes": sizes}
            atomic.write_file(saved / COMPLETE_MARKER, json.dumps(marker))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def _truncate_log(self, step: int) -> None:
        """Drop what was logged after the checkpoint that the run resumes from."""
        file = self.folder / LOG
        lines = file.read_text("utf-8").splitlines() if file.is_file() else []
        earlier = [line for line in lines if json.loads(line)["step"] <= step]
        file.write_text("".join(f"{line}\n" for line in earlier), "utf-8")


def latest_checkpoint(folder: Path, num_processes: int = 1) -> Path | None:
    """The newest complete checkpoint of a run; None if there is none.

    ValueError if uivlm 0.1 saved it, or another number of processes: each has its own share of the rows and
    of the optimizer.
    """
    checkpoints = sorted(
        folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True
    )
    for checkpoint in checkpoints:
        saved_by = _num_processes_if_complete(checkpoint)
        if saved_by not in (None, num_processes):
            raise ValueError(
                f"the interrupted run in {folder} used {saved_by} processes; got {num_processes}. Resume by "
                f"make finetune GPUS={saved_by}, or remove that folder"
            )
        if saved_by:
            return checkpoint
    return None


def epochs_started(checkpoint: Path) -> int:
    """The epoch in which a checkpoint resumes, from 0.

    The Trainer also sets it on the sampler, but not with several processes when it skips the finished rows of
    an epoch.
    """
    return int(json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))["epoch"])


def _num_processes_if_complete(checkpoint: Path) -> int | None:
    """The number of processes that saved it; None if the save is incomplete."""
    try:
        marker = json.loads((checkpoint / COMPLETE_MARKER).read_text("utf-8"))
    except (OSError, ValueError):  # no marker: the save was interrupted
        return None
    if "num_processes" not in marker:
        raise ValueError(
            f"the interrupted run in {checkpoint.parent} was written by uivlm 0.1: remove that folder and "
            "train again"
        )
    complete = all(
        (checkpoint / name).is_file() and (checkpoint / name).stat().st_size == size
        for name, size in marker["sizes"].items()
    )
    return int(marker["num_processes"]) if complete else None


def _format_value(name: str, value: float) -> str:
    return f"{value:.0f}" if name.endswith("_per_second") else f"{value:.3f}"


class SaveOrStop(TrainerCallback):
    """Saves a checkpoint every `save_minutes`; on SIGTERM or SIGINT saves and stops the run after the step.

    `any_process` returns for each flag whether it is set in any process, so that all save and stop after the
    same step: the clock is that of rank 0. A second signal ends the process at once.
    """

    def __init__(self, any_process: Callable[..., list[bool]], save_minutes: float) -> None:
        self.any_process, self.save_minutes = any_process, save_minutes
        self.last_save = time.monotonic()
        self.requested = self.stopped = False  # did this process get a signal; did the run stop early
        self.previous_handlers: dict[int, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.last_save = time.monotonic()
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to it only
            self.previous_handlers = {
                number: signal.signal(number, self._handle_signal) for number in SIGNALS
            }

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.global_step == state.max_steps:
            return
        minutes = (time.monotonic() - self.last_save) / 60
        due = state.is_world_process_zero and minutes >= self.save_minutes
        stop, save = self.any_process(self.requested, due)
        if stop:
            self.stopped = control.should_training_stop = True
        if stop or save:
            control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.last_save = time.monotonic()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._restore_handlers()

    def _handle_signal(self, signum: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)
        self.previous_handlers = {}


class EarlyStopping(TrainerCallback):
    """Stops the run after `patience` validations in a row without a better `eval_partial_match`.

    It counts from the log, so a resumed run continues the count. transformers' EarlyStoppingCallback starts
    again from 0, unless the Trainer restores all callback states, which replaces its callbacks and its
    control.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        scores = [line["eval_partial_match"] for line in state.log_history if "eval_partial_match" in line]
        if len(scores) - 1 - scores.index(max(scores)) >= self.patience:
            control.should_training_stop = True

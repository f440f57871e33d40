"""What a run tells while it runs: a bar, `log.jsonl`, and a marker in each state that was saved completely.

In: the Trainer's events. Out: OUT.state/log.jsonl, one line a step ("step", "loss", "grad_norm", "learning_rate" and what
`meter.Meter.told` adds), and `complete.json` with the size of each file and the number of processes, written last: a state without it is never resumed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate import PartialState
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from uivlm.training.checkpoint import LOG

COMPLETE = "complete.json"
SHOWN = ("loss", "eval_match", "tokens_s", "screens_s", "wait")  # beside the bar


class Progress(TrainerCallback):
    def __init__(self, folder: Path, save_extra: Callable[[Path], None]) -> None:
        self.folder, self.save_extra = folder, save_extra
        self.bar: tqdm[Any] | None = None
        self.told: dict[str, str] = {}  # beside the bar

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step")
            self._keep_log_until(state.global_step)

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
        self.told |= {name: _short(name, line[name]) for name in SHOWN if name in line}
        self.bar.set_postfix(self.told, refresh=False)
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
            told = {"processes": args.world_size, "sizes": sizes}
            _write_whole(saved / COMPLETE, json.dumps(told))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def _keep_log_until(self, step: int) -> None:
        """Drop what was logged after the state that the run continues from."""
        file = self.folder / LOG
        lines = file.read_text("utf-8").splitlines() if file.is_file() else []
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        file.write_text("".join(f"{line}\n" for line in kept), "utf-8")


def newest_state(folder: Path, processes: int = 1) -> Path | None:
    """The newest saved state whose files all have the sizes that its marker tells; None: start anew. ValueError where it is
    the state of another number of processes: each has its own share of the rows and of the optimizer."""
    states = sorted(
        folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True
    )
    for state in states:
        saved_by = _complete(state)
        if saved_by not in (None, processes):
            raise ValueError(
                f"the unfinished run in {folder} was trained by {saved_by} processes, this is one of {processes}: go on with "
                f"as many (make finetune GPUS={saved_by}), or remove that folder"
            )
        if saved_by:
            return state
    return None


def begun_epochs(state: Path) -> int:
    """The epoch in which a saved state goes on, from 0. The Trainer tells it to the order of rows too, but of several
    processes not where it skips the rows of an epoch that are done."""
    return int(json.loads((state / "trainer_state.json").read_text("utf-8"))["epoch"])


def _complete(state: Path) -> int | None:
    """The number of processes that saved it; None where something of it is missing."""
    try:
        told = json.loads((state / COMPLETE).read_text("utf-8"))
    except (OSError, ValueError):  # no marker: the save was interrupted
        return None
    whole = all(
        (state / name).is_file() and (state / name).stat().st_size == size
        for name, size in told["sizes"].items()
    )
    return int(told["processes"]) if whole else None


def _short(name: str, value: float) -> str:
    return f"{value:.0f}" if name.endswith("_s") else f"{value:.3f}"


def _write_whole(file: Path, text: str) -> None:
    fresh = file.with_suffix(".tmp")
    fresh.write_text(text, "utf-8")
    fresh.replace(file)

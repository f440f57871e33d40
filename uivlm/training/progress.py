"""What a run tells while it runs: a bar, `log.jsonl`, and a marker in each state that was saved completely.

In: the Trainer's events. Out: OUT.state/log.jsonl, one {"step", "loss", "grad_norm", "learning_rate"} a line, and
`complete.json` with the size of each file, written last: a state without it is never resumed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from uivlm.training.checkpoint import LOG

COMPLETE = "complete.json"


class Progress(TrainerCallback):
    def __init__(self, folder: Path, save_extra: Callable[[Path], None]) -> None:
        self.folder, self.save_extra = folder, save_extra
        self.bar: tqdm[Any] | None = None

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
        if self.bar is None or logs is None or "loss" not in logs:
            return
        line = {
            "step": state.global_step,
            **{k: float(logs[k]) for k in ("loss", "grad_norm", "learning_rate")},
        }
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.bar.update(state.global_step - self.bar.n)
        self.bar.set_postfix(loss=f"{line['loss']:.3f}", refresh=False)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            saved = self.folder / f"checkpoint-{state.global_step}"
            self.save_extra(saved)
            sizes = {
                str(f.relative_to(saved)): f.stat().st_size for f in sorted(saved.rglob("*")) if f.is_file()
            }
            (saved / COMPLETE).write_text(json.dumps(sizes), "utf-8")

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


def newest_state(folder: Path) -> Path | None:
    """The newest saved state whose files all have the sizes that its marker tells; None: start anew."""
    states = sorted(
        folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True
    )
    return next((state for state in states if _complete(state)), None)


def _complete(state: Path) -> bool:
    try:
        sizes = json.loads((state / COMPLETE).read_text("utf-8"))
    except (OSError, ValueError):  # no marker, or a torn one: the save was interrupted
        return False
    return all(
        (state / name).is_file() and (state / name).stat().st_size == size for name, size in sizes.items()
    )

"""A recipe becomes a checkpoint: transformers' Trainer with our batches, our loss and our log.

In: prepared data and a recipe. Out: a checkpoint folder (`training/checkpoint.py`). While it runs, the Trainer's own
state lies in a folder OUT.state beside it; `resume` continues from the newest complete state there.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.lora import described, targets
from uivlm.models.model import Built, Reader, build, grammar, nll
from uivlm.sentences.encode import IGNORE
from uivlm.sentences.store import Episodes, Prepared
from uivlm.training import checkpoint
from uivlm.training.collator import WORKERS, Collator, Order, Row, Windows
from uivlm.training.features import Kept, keep
from uivlm.training.progress import Progress, newest_state
from uivlm.training.zero import deepspeed

RECOMPUTE: dict[str, Any] = {
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": {"use_reentrant": False},
}


def train(recipe: recipes.Recipe, out: str | Path, resume: bool = False) -> Path:
    """Fine-tune by the recipe; the finished checkpoint folder is `out`."""
    started = time.monotonic()
    folder = Path(out)
    state = open_state(folder, recipe, resume)
    prepared, episodes = open_data(recipe)
    built = build(recipe)
    print_targets(built)
    model = tune.begin(built, recipe.train.seed)
    if torch.cuda.is_available() and not built.quantised:
        model.cuda()
    _make(state, recipe)  # only now: a refused run leaves nothing behind
    rows = _rows(recipe, built, episodes, state)
    print_row(rows[0], built.reader)
    trainer = _trainer(recipe, built, model, rows, state)
    latest = newest_state(state) if resume else None
    if latest:
        tune.load_extra(model, built, latest)
    trainer.train(resume_from_checkpoint=str(latest) if latest else None)
    steps = sum(place.num_rows for place in episodes.places)
    data = checkpoint.describe(prepared.meta, recipe.data.split, len(episodes), steps, len(rows))
    if trainer.is_world_process_zero():
        log = (state / checkpoint.LOG).read_text("utf-8")
        checkpoint.save(folder, model, built, recipe, data, time.monotonic() - started, log)
        shutil.rmtree(state)
    return folder


def open_state(out: Path, recipe: recipes.Recipe, resume: bool) -> Path:
    """The folder of a run in progress. Refused: a finished OUT, another recipe's run, a run not asked to resume."""
    checkpoint.refuse_existing(out)
    state = out.with_name(f"{out.name}.state")
    told = state / checkpoint.RECIPE
    wanted = recipes.to_dict(recipe)
    if resume and not told.is_file():
        raise ValueError(f"there is no unfinished run to resume: {state} does not exist")
    if resume and json.loads(told.read_text("utf-8")) != wanted:
        raise ValueError(
            f"the unfinished run in {state} has another recipe: train without --resume into another --out"
        )
    if state.exists() and not resume and int(os.environ.get("RANK", "0")) == 0:
        raise ValueError(f"{state} holds an unfinished run: continue it with --resume, or remove that folder")
    return state


def _make(state: Path, recipe: recipes.Recipe) -> None:
    """The first process of a machine makes the folder, the others wait for it: one that were faster than the first would
    look to it like an unfinished run."""
    told = state / checkpoint.RECIPE
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        state.mkdir(parents=True, exist_ok=True)
        checkpoint.write_json(told, recipes.to_dict(recipe))
    while not told.is_file():  # if the first process fails, the launcher stops this one
        time.sleep(0.1)


def open_data(recipe: recipes.Recipe) -> tuple[Prepared, Episodes]:
    """The recipe's episodes; refused where their words have other bins, or there are none."""
    prepared = Prepared.open(recipe.data.folder)
    if prepared.meta["bins"] != recipe.grammar.bins:
        raise ValueError(
            f"the data in {recipe.data.folder} was prepared with {prepared.meta['bins']} bins, the recipe has "
            f"grammar.bins {recipe.grammar.bins}: make them equal"
        )
    episodes = prepared.episodes(recipe.data.split, limit=recipe.data.limit)
    if not len(episodes):
        raise ValueError(
            f"the split {recipe.data.split!r} of {recipe.data.folder} is empty: there is nothing to learn"
        )
    return prepared, episodes


def print_targets(built: Built, console: Console | None = None) -> None:
    """Which layers carry adapters."""
    if built.lora is not None:
        text = described(targets(built.module, built.targets))
        (console or Console()).print(Text(f"adapters of rank {built.lora.r} on\n{text}", "dim"))


def print_row(row: Row, reader: Reader, console: Console | None = None) -> None:
    """The row as the loss sees it: trained tokens green, others dim; ■ is the end token."""
    text = Text()
    tokens, labels = row.input_ids.tolist(), row.labels.tolist()
    i = 0
    while i < len(tokens):
        j = i
        trained, placeholder = labels[i] != IGNORE, tokens[i] == reader.placeholder
        while j < len(tokens) and (labels[j] != IGNORE, tokens[j] == reader.placeholder) == (
            trained,
            placeholder,
        ):
            j += 1
        if placeholder:
            text.append(f"[{j - i} visual tokens]", "cyan")
        else:
            run = tokens[i:j]
            ends = [k for k, token in enumerate(run) if token == reader.end]
            parts = [run[a:b] for a, b in zip([0, *(k + 1 for k in ends)], [*ends, len(run)], strict=True)]
            text.append("■\n".join(reader.text(part) for part in parts), "green" if trained else "dim")
        i = j
    (console or Console()).print(text)


class _Trainer(Trainer):
    """Ours are the loss, which needs labels in the forward as well, and the order of the rows."""

    order: Order

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed nats / trained tokens of the whole optimizer step, over all processes (DDP averages gradients)."""
        assert self.compute_loss_func is not None
        outputs = model(**inputs)
        loss = (
            self.compute_loss_func(outputs, inputs["labels"], num_items_in_batch)
            * self.accelerator.num_processes
        )
        return (loss, outputs) if return_outputs else loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.order


def _rows(recipe: recipes.Recipe, built: Built, episodes: Episodes, state: Path) -> Windows | Kept:
    spoken = grammar(recipe)
    num_steps = [place.num_rows for place in episodes.places]
    if recipe.train.keep_features:
        file = state / f"features.{os.environ.get('RANK', '0')}"
        return keep(built.module, episodes, num_steps, spoken, built.reader, file)
    return Windows(episodes, num_steps, spoken, built.reader)


def _trainer(
    recipe: recipes.Recipe, built: Built, model: nn.Module, rows: Windows | Kept, state: Path
) -> Trainer:
    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int) -> Tensor:
        return nll(outputs, labels) / num_items_in_batch

    kept = isinstance(rows, Kept)
    workers = 0 if kept else WORKERS  # kept rows are ready: a worker would only copy
    args = arguments(recipe, state, workers, built.recompute)
    trainer = _Trainer(
        model=model,
        args=args,
        data_collator=Collator(built.reader.pad, built.reader.placeholder),
        train_dataset=rows,
        compute_loss_func=loss,
        callbacks=[Progress(state, lambda folder: tune.save_extra(model, built, folder))],
    )
    trainer.remove_callback(PrinterCallback)
    step = recipe.train.batch * recipe.train.accumulate * args.world_size
    trainer.order = Order(rows.screens, step, recipe.train.seed)
    return trainer


def arguments(recipe: recipes.Recipe, state: Path, workers: int, recompute: bool) -> TrainingArguments:
    part = recipe.train
    return TrainingArguments(
        output_dir=str(state),
        num_train_epochs=part.epochs,
        per_device_train_batch_size=part.batch,
        gradient_accumulation_steps=part.accumulate,
        learning_rate=part.lr,
        lr_scheduler_type="cosine",
        warmup_steps=part.warmup,  # below 1 it is a share of all steps
        weight_decay=part.weight_decay,
        adam_beta2=part.beta2,
        max_grad_norm=part.clip,
        optim="adamw_torch_fused",
        bf16=part.precision == "bfloat16" and part.zero > 0,  # else the weights' own type decides
        deepspeed=deepspeed(part.zero),
        **(RECOMPUTE if recompute else {}),
        seed=part.seed,
        use_cpu=not torch.cuda.is_available(),
        dataloader_num_workers=workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        save_strategy="steps",
        save_steps=0.1,  # a tenth of the run
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to="none",
    )

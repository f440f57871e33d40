"""A recipe becomes a checkpoint: what a run begins with, and what it leaves.

In: prepared data and a recipe. Out: a checkpoint folder (`training/checkpoint.py`). While it runs, the Trainer's own
state lies in a folder OUT.state beside it; `resume` continues from the newest complete state there.
"""

import atexit
import json
import os
import shutil
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text
from transformers import TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.cost import begun
from uivlm.models.lora import described, targets
from uivlm.models.model import Built, Reader, build, grammar
from uivlm.sentences.encode import IGNORE
from uivlm.sentences.store import Prepared
from uivlm.training import checkpoint
from uivlm.training.collator import Row, Windows
from uivlm.training.features import Kept, keep
from uivlm.training.mixture import Joined, open_sources, shares
from uivlm.training.progress import begun_epochs, newest_state
from uivlm.training.sentence_trainer import TENSORBOARD, trainer_of
from uivlm.training.stopping import Stopping


def train(recipe: recipes.Recipe, out: str | Path, resume: bool = False) -> Path:
    """Fine-tune by the recipe; the finished checkpoint folder is `out`."""
    started = time.monotonic()
    folder = Path(out)
    state = open_state(folder, recipe, resume)
    sources, spoken = open_sources(recipe), grammar(recipe)
    built = build(recipe)
    print_targets(built)
    judged = _validation(recipe, sources[0].prepared, built)
    model, shape = begun(built, recipe.train.seed)
    if torch.cuda.is_available() and not built.quantised:
        model.cuda()
    _make(state, recipe)  # only now: a refused run leaves nothing behind
    rows = _rows(recipe, built, Joined(sources))
    print_row(rows[0], built.reader)
    trainer = trainer_of(recipe, built, model, shape, rows, shares(sources, spoken), judged, state)
    stopping = Stopping(trainer.anyone)
    for callback in (stopping, *_tensorboard(folder, recipe)):
        trainer.add_callback(callback)
    latest = newest_state(state, trainer.args.world_size) if resume else None
    if latest:
        tune.load_extra(model, built, latest)
        trainer.order.set_epoch(begun_epochs(latest))
    trainer.train(resume_from_checkpoint=str(latest) if latest else None)
    if recipe.data.validation and trainer.state.best_model_checkpoint:
        tune.load_extra(model, built, Path(trainer.state.best_model_checkpoint))
    if stopping.stopped:
        raise InterruptedError(
            f"stopped after step {trainer.state.global_step} of {trainer.state.max_steps}; the same command with --resume "
            "goes on there"
        )
    if trainer.is_world_process_zero():
        log = (state / checkpoint.LOG).read_text("utf-8")
        data = [one.described(spoken) for one in sources]
        checkpoint.save(folder, model, built, recipe, data, time.monotonic() - started, log)
        shutil.rmtree(state)
    return folder


def leave() -> None:
    """The end of a process that trained with others, once all is written. Threads that spoke with them can abort an
    interpreter that ends among them, and the launcher would call a whole run failed: so this one does not end by itself.
    Nothing happens in a process that trained alone.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        atexit._run_exitfuncs()  # what others asked to be done at the end, such as wandb
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def open_state(out: Path, recipe: recipes.Recipe, resume: bool) -> Path:
    """The folder of a run in progress. Refused: a finished OUT, another recipe's run, a run not asked to resume."""
    checkpoint.refuse_existing(out)
    state = out.with_name(f"{out.name}.state")
    told = state / checkpoint.RECIPE
    if resume and not told.is_file():
        raise ValueError(f"there is no unfinished run to resume: {state} does not exist")
    if resume and recipes.from_dict(json.loads(told.read_text("utf-8"))) != recipe:
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


def _rows(recipe: recipes.Recipe, built: Built, episodes: Joined) -> Windows | Kept:
    spoken = grammar(recipe)
    if recipe.train.keep_features:
        return keep(built.module, recipe, episodes, spoken, built.reader)
    return Windows(episodes, episodes.num_steps, spoken, built.reader)


def _validation(recipe: recipes.Recipe, prepared: Prepared, built: Built) -> Windows | None:
    """The first episodes of the data's split "validation"; ValueError where there are none."""
    wanted = recipe.data.validation
    if not wanted:
        return None
    if not len(episodes := prepared.episodes("validation", limit=wanted)):
        raise ValueError(
            f"data.validation is {wanted}, but the split 'validation' of {recipe.data.folder} is empty: set it to 0"
        )
    num_steps = [place.num_rows for place in episodes.places]
    return Windows(episodes, num_steps, grammar(recipe), built.reader)


def _tensorboard(out: Path, recipe: recipes.Recipe) -> list[TrainerCallback]:
    """Writes beside the checkpoint, not into it: OUT/../tensorboard/NAME, so that runs are seen together."""
    if TENSORBOARD not in recipe.train.report_to or int(os.environ.get("RANK", "0")):
        return []
    from torch.utils.tensorboard import SummaryWriter

    return [TensorBoardCallback(SummaryWriter(str(out.parent / TENSORBOARD / out.name)))]

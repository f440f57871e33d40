"""Fine-tuning: a whole run in reading order.

In: prepared data and a recipe. Out: a checkpoint folder (`training/checkpoint.py`). During the run, the
Trainer's own checkpoints are in the folder OUT.state; `resume` continues from the newest complete one.
"""

import atexit
import json
import logging
import os
import shutil
import sys
import time
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text
from transformers import TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback

from uivlm import recipe as recipes
from uivlm.atomic import check_new_dir
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.encode import IGNORE, Example, Processor
from uivlm.episodes.window_index import concat_indexes
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.compiled_blocks import compile_blocks
from uivlm.models.cost import prepare_and_measure
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.lora_layers import lora_layers, summarize_layers
from uivlm.models.sentence_lengths import TrainableWindows, trainable_windows
from uivlm.models.sharding import from_first_process, is_first_process
from uivlm.terminal import Terminal
from uivlm.training import checkpoint
from uivlm.training.callbacks import SaveOrStop, epochs_started, latest_checkpoint
from uivlm.training.dataset import (
    BatchDataset,
    ConcatWindowDataset,
    DamageLog,
    WindowDataset,
    resolve_num_workers,
)
from uivlm.training.deepspeed import load_master_weights
from uivlm.training.distributed import process_group, wait_for_all
from uivlm.training.feature_cache import CachedFeatureDataset, build_feature_cache
from uivlm.training.fsdp import build_base, gather_model, shard_model
from uivlm.training.mixture import (
    ConcatEpisodes,
    DataSource,
    make_mixture_sampler,
    open_datasets,
    summarize_sources,
)
from uivlm.training.trainer import TENSORBOARD, make_trainer

LOGGER = logging.getLogger(__name__)


def train(recipe: recipes.Recipe, out: str | Path, resume: bool = False) -> Path:
    """Fine-tune by the recipe. Returns the finished checkpoint folder `out`."""
    with process_group() as device:
        return _train(recipe, Path(out), resume, device)


def _train(recipe: recipes.Recipe, folder: Path, resume: bool, device: torch.device) -> Path:
    started = time.monotonic()
    state_dir = open_state_dir(folder, recipe, resume)
    sources = open_datasets(recipe)
    eval_sources = _open_eval_sources(recipe, sources[0].prepared)
    # too long sentences are found before any weight is read
    windows = _trainable_windows(recipe, sources)
    eval_windows = _trainable_windows(_without_packing(recipe), eval_sources)
    loaded, stored = build_base(recipe) if recipe.distributed.fsdp else (build(recipe, device=device), {})
    print_lora_targets(loaded)
    eval_dataset = _window_dataset(recipe, eval_sources[0], eval_windows[0], loaded) if eval_sources else None
    model, shape = prepare_and_measure(loaded, recipe.train.seed)
    if recipe.train.compile_blocks:
        compile_blocks(loaded.model)
    _make_state_dir(state_dir, recipe)  # only now, so that a rejected run leaves no files
    if recipe.distributed.fsdp:
        shard_model(recipe, model, stored, device)
    damage_log = DamageLog.open(state_dir, sum(len(source.episodes) for source in sources))
    dataset = BatchDataset(_train_dataset(recipe, loaded, sources, windows), damage_log)
    print_example(dataset.first(), loaded.processor)
    mixture = make_mixture_sampler(sources, [len(part.index) for part in windows])
    trainer = make_trainer(recipe, loaded, model, shape, dataset, mixture, eval_dataset, state_dir)
    shutdown = SaveOrStop(trainer.any_process, recipe.train.save_minutes)
    for callback in (shutdown, *_tensorboard_callbacks(folder, recipe)):
        trainer.add_callback(callback)
    latest = latest_checkpoint(state_dir, trainer.args.world_size) if resume else None
    if latest:
        adapters.load_extra(model, loaded, latest)
        trainer.sampler.set_epoch(epochs_started(latest))
    trainer.train(resume_from_checkpoint=str(latest) if latest else None)
    if recipe.data.eval_episodes and trainer.state.best_model_checkpoint:
        adapters.load_extra(model, loaded, Path(trainer.state.best_model_checkpoint))
    if shutdown.stopped:
        raise InterruptedError(
            f"stopped after step {trainer.state.global_step} of {trainer.state.max_steps}. "
            "Run the same command with --resume to continue"
        )
    if recipe.distributed.fsdp:
        loaded, model = gather_model(recipe, loaded, model, device, state_dir)
    if recipe.distributed.zero_stage and recipe.model.lora is not None:
        load_master_weights(model)
    wait_for_all()  # the others have read the best weights from the state that is removed here
    if trainer.is_world_process_zero():
        log = (state_dir / checkpoint.LOG).read_text("utf-8")
        data = summarize_sources(sources, windows, damage_log.read())
        checkpoint.save(folder, model, loaded, recipe, data, time.monotonic() - started, log)
        shutil.rmtree(state_dir)
    return folder


def exit_distributed() -> None:
    """End a process of a distributed run. Does nothing in a single-process run.

    The communication threads of torch can abort an interpreter that shuts down normally. The launcher would
    then report a failure, although everything is written.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        atexit._run_exitfuncs()  # of libraries, such as wandb
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def open_state_dir(out: Path, recipe: recipes.Recipe, resume: bool) -> Path:
    """The folder OUT.state. ValueError if OUT exists, or if `resume` does not fit what is there.

    Process 0 looks, for all: another one could see what process 0 has made in the meantime.
    """
    state_dir = out.with_name(f"{out.name}.state")

    def find_error() -> ValueError | None:
        try:
            _check_state_dir(out, state_dir, recipe, resume)
        except ValueError as error:
            return error
        return None

    if error := from_first_process(find_error):
        raise error
    return state_dir


def _check_state_dir(out: Path, state_dir: Path, recipe: recipes.Recipe, resume: bool) -> None:
    check_new_dir(out)
    recipe_file = state_dir / checkpoint.RECIPE
    if resume and not recipe_file.is_file():
        raise ValueError(f"--resume: {state_dir} does not exist. Train without --resume")
    if resume and _read_state_recipe(recipe_file) != recipe:
        raise ValueError(
            f"--resume: the interrupted run in {state_dir} has a different recipe. "
            "Train without --resume into another --out"
        )
    if state_dir.exists() and not resume:
        raise ValueError(
            f"{state_dir} is an interrupted run: continue it with --resume, or remove that folder"
        )


def _read_state_recipe(recipe_file: Path) -> recipes.Recipe:
    try:
        return recipes.from_dict(json.loads(recipe_file.read_text("utf-8")))
    except ValueError as error:
        raise ValueError(
            f"--resume: {recipe_file} is not a recipe of this version ({error}); remove {recipe_file.parent} "
            "and train again"
        ) from error


def _make_state_dir(state_dir: Path, recipe: recipes.Recipe) -> None:
    if is_first_process():
        state_dir.mkdir(parents=True, exist_ok=True)
        checkpoint.write_json(state_dir / checkpoint.RECIPE, recipes.to_dict(recipe))
    wait_for_all()


def print_lora_targets(loaded: LoadedModel, console: Console | None = None) -> None:
    """Print which layers have adapters."""
    if loaded.lora is not None:
        layers = summarize_layers(lora_layers(loaded.model, loaded.all_lora_targets, loaded.lora.vision))
        (console or Terminal()).print(Text(f"adapters of rank {loaded.lora.r} on\n{layers}", "dim"))


def print_example(example: Example, processor: Processor, console: Console | None = None) -> None:
    """Print a sentence as the loss sees it: trained tokens green, others dim, ■ for the end token."""
    text = Text()
    tokens = zip(example.input_ids.tolist(), example.labels.tolist(), strict=True)
    keyed = ((token, (label != IGNORE, token == processor.image_token_id)) for token, label in tokens)
    for (trained, is_image), run in groupby(keyed, key=lambda item: item[1]):
        ids = [token for token, _ in run]
        if is_image:
            text.append(f"[{len(ids)} visual tokens]", "cyan")
        else:
            ends = [k for k, token in enumerate(ids) if token == processor.eos_id]
            parts = [ids[a:b] for a, b in zip([0, *(k + 1 for k in ends)], [*ends, len(ids)], strict=True)]
            text.append("■\n".join(processor.decode(part) for part in parts), "green" if trained else "dim")
    (console or Terminal()).print(text)


def _trainable_windows(recipe: recipes.Recipe, sources: list[DataSource]) -> list[TrainableWindows]:
    """The windows of each source that fit. ValueError if the recipe does not allow to skip the others."""
    if not sources:
        return []
    processor = build(recipe, "meta").processor
    num_workers = max(1, resolve_num_workers(recipe.train.num_workers))
    wait = os.environ.get("LOCAL_RANK", "0") != "0"  # local rank 0 counts
    found = [
        trainable_windows(recipe, processor, source.episodes, source.fingerprint, num_workers, wait)
        for source in sources
    ]
    for source, windows in zip(sources, found, strict=True):
        if windows.num_too_long and not wait:
            LOGGER.warning(
                "%s: %d sentences of the split %r are too long, and skipped",
                source.config.path,
                windows.num_too_long,
                source.config.split,
            )
    return found


def _without_packing(recipe: recipes.Recipe) -> recipes.Recipe:
    """Validation does not pack sentences: only the model limits their length."""
    return replace(recipe, train=replace(recipe.train, max_packed_tokens=None))


def _train_dataset(
    recipe: recipes.Recipe, loaded: LoadedModel, sources: list[DataSource], windows: list[TrainableWindows]
) -> ConcatWindowDataset | CachedFeatureDataset:
    if not recipe.train.cache_vision_features:
        parts = zip(sources, windows, strict=True)
        return ConcatWindowDataset([_window_dataset(recipe, *part, loaded) for part in parts])
    index = concat_indexes([part.index for part in windows], [len(source.episodes) for source in sources])
    episodes, sentence_format = ConcatEpisodes(sources), prompt_format(recipe)
    return build_feature_cache(loaded.model, recipe, episodes, index, sentence_format, loaded.processor)


def _window_dataset(
    recipe: recipes.Recipe, source: DataSource, windows: TrainableWindows, loaded: LoadedModel
) -> WindowDataset:
    return WindowDataset(source.episodes, windows.index, prompt_format(recipe), loaded.processor)


def _open_eval_sources(recipe: recipes.Recipe, prepared: PreparedData) -> list[DataSource]:
    """The first episodes of the split "validation"; empty if the recipe needs none."""
    max_episodes = recipe.data.eval_episodes
    if not max_episodes:
        return []
    episodes = prepared.episodes("validation", max_episodes=max_episodes)
    if not len(episodes):
        raise ValueError(
            f"data.eval_episodes: got {max_episodes}, "
            f"but the split 'validation' of {recipe.data.path} is empty. Set it to 0"
        )
    config = recipes.ExtraDataset(recipe.data.path, 1.0, "validation", max_episodes)
    return [DataSource(config, prepared, episodes)]


def _tensorboard_callbacks(out: Path, recipe: recipes.Recipe) -> list[TrainerCallback]:
    """TensorBoard logs to OUT/../tensorboard/NAME, not to the checkpoint, so that one page shows all runs."""
    if TENSORBOARD not in recipe.train.report_to or int(os.environ.get("RANK", "0")):
        return []
    from torch.utils.tensorboard import SummaryWriter

    return [TensorBoardCallback(SummaryWriter(str(out.parent / TENSORBOARD / out.name)))]

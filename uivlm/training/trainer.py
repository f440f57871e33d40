"""The `transformers.Trainer` subclass, with our batches, loss, metrics and validation.

In: a recipe, a model prepared for training, a dataset. Out: a trainer.
"""

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from uivlm import recipe as recipes
from uivlm.models import adapters
from uivlm.models.build import DTYPES
from uivlm.models.cost import ModelShape, model_flops
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import token_losses
from uivlm.training.batches import Batch, BatchLayout, BatchSampler
from uivlm.training.callbacks import EarlyStopping, ProgressLogger
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import (
    BatchDataset,
    WindowDataset,
    loader_options,
    resolve_num_workers,
    start_worker,
)
from uivlm.training.deepspeed import deepspeed_config
from uivlm.training.feature_cache import CachedFeatureDataset
from uivlm.training.fsdp import ShardedTrainer
from uivlm.training.metrics import Meter, StepCounts, datasheet_flops, measure_peak_flops
from uivlm.training.mixture import MixtureSampler
from uivlm.training.validation import EvalBatch, make_eval_loader, validate

ACTIVATION_CHECKPOINTING: dict[str, Any] = {
    "activation_checkpointing": True,
    "activation_checkpointing_kwargs": {"use_reentrant": False},
}
TENSORBOARD = "tensorboard"
SAVE_ARGUMENTS: dict[str, Any] = {"save_strategy": "no", "save_total_limit": 2}  # `SaveOrStop` saves
EVAL_ARGUMENTS: dict[str, Any] = {  # the checkpoint is then the best state, not the last one
    "eval_strategy": "steps",
    "eval_steps": 0.1,  # a tenth of the run
    "save_strategy": "steps",
    "save_steps": 0.1,
    "save_total_limit": 3,  # the best one, and the last two to resume from
    "load_best_model_at_end": True,
    "metric_for_best_model": "partial_match",
    "greater_is_better": True,
}


class SentenceTrainer(Trainer):
    """Adds our loss, which needs labels in the forward, our order of rows, and the metrics of a step."""

    sampler: BatchSampler
    eval_loader: DataLoader[EvalBatch]  # of this process's share of the validation rows
    meter: Meter
    shape: ModelShape  # of the model, to count what a step computes
    loaded: LoadedModel
    projector_lr: float | None = None  # None: as all else

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """With `projector_lr`, the projector's parameters are in groups of their own."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if self.projector_lr is not None:
            assert isinstance(self.model, nn.Module)
            split_projector_groups(optimizer, adapters.projector(self.model, self.loaded), self.projector_lr)
        return optimizer

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Without the frozen weights, which are many gigabytes, if the projector is trained alone."""
        if self.loaded.freeze_language_model:
            assert isinstance(self.model, nn.Module)
            names = adapters.trainable_parameter_names(self.model)
            state_dict = {name: self.model.state_dict()[name] for name in names}
        super()._save(output_dir, state_dict)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed nats / trained tokens of the whole optimizer step, over all processes (DDP averages
        gradients).
        """
        assert num_items_in_batch is not None
        labels, _, action_types, lengths, num_episodes = (inputs.pop(name) for name in LOSS_KEYS)
        outputs = model(**inputs)
        losses = token_losses(outputs, labels)
        self.meter.add(losses, action_types, self._count_step(inputs, lengths, num_episodes, len(labels)))
        # a step whose sentences were all skipped has none
        num_trained = torch.as_tensor(num_items_in_batch).clamp(min=1)
        loss = losses.sum() / num_trained * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def _count_step(
        self, inputs: dict[str, Any], lengths: Sequence[int], num_episodes: int, num_trained: int
    ) -> StepCounts:
        num_pixels = sum(screen.shape[-1] * screen.shape[-2] for screen in inputs.get("pixels", ()))
        flops = model_flops(self.shape, list(lengths), num_trained, num_pixels)
        return StepCounts(sum(lengths), len(inputs["num_visual_tokens"]), num_episodes, flops)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        samples = super().get_batch_samples(*args, **kwargs)
        self.meter.add_wait(time.perf_counter() - started)
        return samples

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **self.meter.flush()} if "loss" in logs else logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        assert isinstance(self.model, nn.Module)
        metrics = validate(self.model, self.eval_loader, self.all_reduce)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def any_process(self, *flags: bool) -> list[bool]:
        """Of each flag: is it set in any process?"""
        return [bool(count) for count in self.all_reduce(torch.tensor(flags, dtype=torch.float32))]

    def all_reduce(self, sums: Tensor) -> Tensor:
        """The sum over all processes."""
        total: Tensor = self.accelerator.reduce(sums.to(self.args.device), "sum")
        return total.cpu()

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader: Any = super().get_train_dataloader()
        # A loader draws a seed each time it starts its workers: a resumed run once more than an uninterrupted
        # one. From the default generator, all later dropout masks would differ.
        loader.base_dataloader.generator = torch.Generator()
        # For the copy with which the Trainer resumes within an epoch: its workers end with that epoch.
        loader.persistent_workers = False
        seed_worker = loader.base_dataloader.worker_init_fn
        loader.base_dataloader.worker_init_fn = partial(start_worker, init=seed_worker)
        return loader  # type: ignore[no-any-return]

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Batch]:
        return self.sampler


def split_projector_groups(
    optimizer: torch.optim.Optimizer, projector: nn.Module, learning_rate: float
) -> None:
    """Move the projector's parameters into groups with their own learning rate. Weight decay stays."""
    own = {id(value) for value in projector.parameters()}
    groups = []
    for group in optimizer.param_groups:
        inside = [value for value in group["params"] if id(value) in own]
        outside = [value for value in group["params"] if id(value) not in own]
        groups += [{**group, "params": outside}, {**group, "params": inside, "lr": learning_rate}]
    # DeepSpeed takes no empty groups
    optimizer.param_groups[:] = [group for group in groups if group["params"]]


class ShardedSentenceTrainer(ShardedTrainer, SentenceTrainer):
    """Of a model that no single GPU holds."""


def make_trainer(
    recipe: recipes.Recipe,
    loaded: LoadedModel,
    model: nn.Module,
    shape: ModelShape,
    dataset: BatchDataset,
    mixture: MixtureSampler,
    eval_dataset: WindowDataset | None,
    state_dir: Path,
) -> SentenceTrainer:
    """A trainer that writes its checkpoints and its log into `state_dir`."""
    if recipe.train.activation_checkpointing and not hasattr(loaded.model, "activation_checkpointing_enable"):
        raise ValueError(
            f"train.activation_checkpointing: {type(loaded.model).__name__} does not support it. "
            "Set train.activation_checkpointing=false"
        )
    is_cached = isinstance(
        dataset.rows, CachedFeatureDataset
    )  # its rows are in memory: a worker would only copy them
    num_workers = 0 if is_cached else resolve_num_workers(recipe.train.num_workers)
    args = training_arguments(recipe, state_dir, num_workers)
    processor, train = loaded.processor, recipe.train
    is_packed = train.max_packed_tokens is not None
    trainer_class = ShardedSentenceTrainer if recipe.distributed.fsdp else SentenceTrainer
    trainer = trainer_class(
        model=model,
        args=args,
        data_collator=Collator(processor.pad_id, processor.image_token_id, is_packed),
        train_dataset=dataset,
        eval_dataset=eval_dataset,
        compute_loss_func=token_losses,  # makes the Trainer count the trained tokens; `compute_loss` is ours
        callbacks=[ProgressLogger(state_dir, lambda folder: adapters.save_extra(model, loaded, folder))],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.shape, trainer.loaded, trainer.projector_lr = shape, loaded, recipe.optim.projector_lr
    trainer.meter = _make_meter(trainer, DTYPES[train.precision])
    if recipe.data.early_stopping_patience is not None:
        trainer.add_callback(EarlyStopping(recipe.data.early_stopping_patience))
    layout = BatchLayout(
        train.per_device_batch_size,
        train.max_packed_tokens,
        train.gradient_accumulation_steps,
        args.world_size,
    )
    num_epochs = math.ceil(train.epochs)
    trainer.sampler = BatchSampler(dataset.rows.num_tokens, mixture, layout, train.seed, num_epochs)
    if eval_dataset is not None:
        workers = resolve_num_workers(train.num_workers)
        trainer.eval_loader = make_eval_loader(
            eval_dataset, train.per_device_batch_size, workers, args.process_index, args.world_size
        )
    return trainer


def _make_meter(trainer: SentenceTrainer, dtype: torch.dtype) -> Meter:
    device = trainer.args.device
    peak_flops = float(trainer.all_reduce(torch.tensor(measure_peak_flops(device, dtype))))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    stated = datasheet_flops(name, dtype)
    return Meter(trainer.all_reduce, peak_flops, stated and stated * trainer.args.world_size)


def training_arguments(recipe: recipes.Recipe, state_dir: Path, num_workers: int) -> TrainingArguments:
    train, optim, distributed = recipe.train, recipe.optim, recipe.distributed
    loader = loader_options(num_workers)
    loader.pop("worker_init_fn", None)  # no argument of the Trainer: see `get_train_dataloader`
    args = TrainingArguments(
        output_dir=str(state_dir),
        num_train_epochs=train.epochs,
        per_device_train_batch_size=1,  # batch of rows: see `BatchSampler`
        gradient_accumulation_steps=train.gradient_accumulation_steps,
        learning_rate=optim.lr,
        lr_scheduler_type="cosine",
        warmup_steps=optim.warmup_fraction,  # below 1: a fraction of all steps
        weight_decay=optim.weight_decay,
        adam_beta2=optim.adam_beta2,
        max_grad_norm=optim.max_grad_norm,
        optim="adamw_torch_fused",
        # without DeepSpeed, the dtype of the weights decides
        bf16=train.precision == "bfloat16" and distributed.zero_stage > 0,
        deepspeed=deepspeed_config(distributed.zero_stage, distributed.cpu_offload),
        **(ACTIVATION_CHECKPOINTING if train.activation_checkpointing else {}),
        seed=train.seed,
        use_cpu=not torch.cuda.is_available(),
        **{f"dataloader_{name}": value for name, value in loader.items()},
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        # Else DDP arranges gradients anew after its first step: with more than two processes a resumed run
        # would sum them in another order once, and end in other bytes.
        ddp_find_unused_parameters=True,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[name for name in train.report_to if name != TENSORBOARD] or "none",
        **(EVAL_ARGUMENTS if recipe.data.eval_episodes else SAVE_ARGUMENTS),
    )
    args._n_gpu = min(args.n_gpu, 1)  # one process trains on one GPU: the Trainer would use DataParallel
    return args

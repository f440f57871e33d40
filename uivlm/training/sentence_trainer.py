"""transformers' Trainer with our batches, our loss, our log and our judgement.

In: a recipe, a model ready to train, rows. Out: a trainer that writes its states into a folder.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.cost import Shape, needed
from uivlm.models.model import DTYPES, Built, nll
from uivlm.sentences.encode import IGNORE
from uivlm.training.collator import ASIDE, Collator, Order, Windows
from uivlm.training.features import Kept
from uivlm.training.meter import Meter, Read
from uivlm.training.mixture import Shares
from uivlm.training.peak import peak
from uivlm.training.progress import Progress
from uivlm.training.readers import how, readers
from uivlm.training.stopping import Patience
from uivlm.training.validation import judge
from uivlm.training.zero import deepspeed

RECOMPUTE: dict[str, Any] = {
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": {"use_reentrant": False},
}
TENSORBOARD = "tensorboard"
JUDGED: dict[str, Any] = {  # the checkpoint is then the best state, not the last one
    "eval_strategy": "steps",
    "eval_steps": 0.1,
    "load_best_model_at_end": True,
    "metric_for_best_model": "match",
    "greater_is_better": True,
}


class SentenceTrainer(Trainer):
    """Ours are the loss, which needs labels in the forward as well, the order of the rows, and what is told of a step."""

    order: Order
    meter: Meter
    shape: Shape  # of the model, to count what a step computes

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed nats / trained tokens of the whole optimizer step, over all processes (DDP averages gradients)."""
        assert num_items_in_batch is not None
        kinds, begins = (inputs.pop(name) for name in ASIDE)
        outputs = model(**inputs)
        nats = nll(outputs, inputs["labels"])
        self.meter.add(nats, kinds, self._read(inputs, int(begins.sum())))
        loss = nats.sum() / num_items_in_batch * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def _read(self, inputs: dict[str, Any], episodes: int) -> Read:
        lengths = inputs.get("lengths", inputs["attention_mask"].sum(1)).tolist()
        pixels = inputs.get("pixels", ())
        seen = sum(one.shape[-1] * one.shape[-2] for one in pixels)
        trained = int((inputs["labels"] != IGNORE).sum())
        screens = len(inputs.get("features", pixels))
        return Read(sum(lengths), screens, episodes, needed(self.shape, lengths, trained, seen))

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        samples = super().get_batch_samples(*args, **kwargs)
        self.meter.waits(time.perf_counter() - began)
        return samples

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **self.meter.told()} if "loss" in logs else logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        assert isinstance(self.eval_dataset, Windows)
        assert isinstance(self.model, nn.Module)
        place = self.args.process_index, self.args.world_size
        figures = judge(self.model, self.eval_dataset, *place, self.shared)
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def anyone(self, asked: bool) -> bool:
        """Is it so in any process?"""
        return bool(self.shared(torch.tensor(float(asked))))

    def shared(self, sums: Tensor) -> Tensor:
        """Added up over all processes."""
        total: Tensor = self.accelerator.reduce(sums.to(self.args.device), "sum")
        return total.cpu()

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.order


def trainer_of(
    recipe: recipes.Recipe,
    built: Built,
    model: nn.Module,
    shape: Shape,
    rows: Windows | Kept,
    taken: Shares,
    validation: Windows | None,
    state: Path,
) -> SentenceTrainer:
    kept = isinstance(rows, Kept)
    reading = 0 if kept else readers(recipe.train.readers)  # kept rows are ready: a reader would only copy
    args = arguments(recipe, state, reading, built.recompute)
    trainer = SentenceTrainer(
        model=model,
        args=args,
        data_collator=Collator(built.reader.pad, built.reader.placeholder, recipe.train.pack),
        train_dataset=rows,
        eval_dataset=validation,
        compute_loss_func=nll,  # only so that the Trainer counts the trained tokens of a step: `compute_loss` is ours
        callbacks=[Progress(state, lambda folder: tune.save_extra(model, built, folder))],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.shape = shape
    fastest = peak(args.device, DTYPES[recipe.train.precision])
    trainer.meter = Meter(trainer.shared, float(trainer.shared(torch.tensor(fastest))))
    if recipe.train.patience is not None:
        trainer.add_callback(Patience(recipe.train.patience))
    step = recipe.train.batch * recipe.train.accumulate * args.world_size
    trainer.order = Order(rows.screens, taken, step, recipe.train.seed)
    return trainer


def arguments(recipe: recipes.Recipe, state: Path, reading: int, recompute: bool) -> TrainingArguments:
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
        deepspeed=deepspeed(part.zero, part.offload),
        **(RECOMPUTE if recompute else {}),
        seed=part.seed,
        use_cpu=not torch.cuda.is_available(),
        **{f"dataloader_{name}": value for name, value in how(reading).items()},
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        save_strategy="steps",
        save_steps=0.1,  # a tenth of the run
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[one for one in part.report_to if one != TENSORBOARD] or "none",
        **(JUDGED if recipe.data.validation else {}),
    )

"""Settings of everything but the model: prompt, data, optimizer, training, distribution."""

from dataclasses import dataclass
from typing import Literal

from uivlm.recipe.checks import above_zero, at_least, require


@dataclass(frozen=True, slots=True)
class PromptArgs:
    """How episodes become sentences (`episodes.sentence.PromptFormat`)."""

    num_bins: int = 100  # equal bins of each axis
    max_screens: int = 8  # in one sentence
    max_past_actions: int = 8  # older actions given as text
    # recorded words that are trained before each action: a low-level instruction, or a thought
    thoughts: Literal["none", "instruction", "thought"] = "none"


@dataclass(frozen=True, slots=True)
class ExtraDataset:
    """More prepared data, mixed in."""

    path: str
    weight: float = 1.0  # share of its sentences in an epoch: 0.5 takes a half, 2 takes each twice
    split: str = "train"
    max_episodes: int | None = None

    def __post_init__(self) -> None:
        require(0 < self.weight <= 100, f"data.extra.weight is {self.weight}: it must be in (0, 100]")


@dataclass(frozen=True, slots=True)
class DataArgs:
    path: str  # prepared data: the folder that `python -m data_prep` wrote
    split: str = "train"
    max_episodes: int | None = None
    extra: tuple[ExtraDataset, ...] = ()
    skip_too_long: bool = False  # leave sentences out that the model cannot read; otherwise they are an error
    eval_episodes: int = 0  # of the split "validation", evaluated after each tenth of a run; 0: no validation
    early_stopping_patience: int | None = None  # validations in a row without improvement that end a run

    def __post_init__(self) -> None:
        at_least("data.eval_episodes", self.eval_episodes, 0)
        at_least("data.early_stopping_patience", self.early_stopping_patience, 1)
        require(
            self.early_stopping_patience is None or self.eval_episodes,
            f"data.early_stopping_patience is {self.early_stopping_patience}, but there is no validation: "
            "set data.eval_episodes to a number of episodes",
        )


@dataclass(frozen=True, slots=True)
class OptimArgs:
    """AdamW and its schedule: linear warmup, then cosine decay to zero."""

    lr: float = 1e-5  # peak learning rate
    weight_decay: float = 0.1
    adam_beta2: float = 0.95
    max_grad_norm: float = 1.0
    warmup_fraction: float = 0.01  # of all optimizer steps
    projector_lr: float | None = None  # peak learning rate of a bridge's projection; None: `lr`

    def __post_init__(self) -> None:
        above_zero("optim.lr", self.lr)
        above_zero("optim.max_grad_norm", self.max_grad_norm)
        if self.projector_lr is not None:
            above_zero("optim.projector_lr", self.projector_lr)


@dataclass(frozen=True, slots=True)
class TrainArgs:
    epochs: float = 1.0
    per_device_batch_size: int = 1  # sentences per forward and device, padded to the longest one
    gradient_accumulation_steps: int = 1  # forwards per optimizer step
    max_packed_tokens: int | None = None  # concatenate sentences up to so many tokens; None: pad a batch
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    # compute activations again in the backward pass: slower, but fewer are kept; false where memory allows
    activation_checkpointing: bool = True
    num_workers: int | None = None  # data loader processes; None: half of the cores, at most eight
    cache_vision_features: bool = False  # compute frozen vision features once, into DATA/features
    # compile the language model's decoder blocks: faster steps on a GPU, after minutes of compilation
    compile_blocks: bool = False
    save_minutes: float = 30.0  # between two checkpoints of the run; the last two are kept
    report_to: tuple[str, ...] = ("tensorboard",)  # what transformers reports to: "wandb", ...
    seed: int = 0

    def __post_init__(self) -> None:
        above_zero("train.epochs", self.epochs)
        at_least("train.per_device_batch_size", self.per_device_batch_size, 1)
        at_least("train.max_packed_tokens", self.max_packed_tokens, 1)
        require(
            self.max_packed_tokens is None or self.per_device_batch_size == 1,
            f"train.per_device_batch_size is {self.per_device_batch_size}, but train.max_packed_tokens sets "
            "the size of a batch: set train.per_device_batch_size to 1, or train.max_packed_tokens to null",
        )
        at_least("train.gradient_accumulation_steps", self.gradient_accumulation_steps, 1)
        above_zero("train.save_minutes", self.save_minutes)
        at_least("train.num_workers", self.num_workers, 0)


@dataclass(frozen=True, slots=True)
class DistributedArgs:
    """What several processes share out."""

    zero_stage: int = 0  # DeepSpeed: 1, the optimizer; 2, gradients as well; 0, nothing
    fsdp: bool = False  # PyTorch's FSDP2: weights, gradients and optimizer
    cpu_offload: bool = False  # keep the optimizer (fsdp: also weights and gradients) in CPU memory

    def __post_init__(self) -> None:
        require(
            0 <= self.zero_stage <= 2,
            f"distributed.zero_stage is {self.zero_stage}: it must be 0, 1 or 2. To shard the weights as "
            "well, set distributed.fsdp to true",
        )
        require(
            not (self.fsdp and self.zero_stage),
            f"distributed.fsdp shards what distributed.zero_stage {self.zero_stage} does, and the weights: "
            "set distributed.zero_stage to 0",
        )
        require(
            self.sharded or not self.cpu_offload,
            "distributed.cpu_offload needs sharding: set distributed.zero_stage to 1 or 2, or "
            "distributed.fsdp to true",
        )

    @property
    def sharded(self) -> bool:
        return self.fsdp or self.zero_stage > 0

"""Training a model that no single GPU holds: `distributed.fsdp`.

In: a recipe. Out: its model, each process with its share of the weights, which is all that it reads of them;
in the end the trained model in process 0, as `checkpoint.save` takes it. No process ever holds it whole:
process 0 maps it from files beside the training state.
"""

from pathlib import Path
from typing import Any

import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer
from transformers import Trainer

from uivlm.models.adapters import name_in_base, prepare_for_training
from uivlm.models.build import DTYPES, build
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.sharding import gather_weights, is_first_process, replace_parameters, shard
from uivlm.models.stored_weights import StoredWeights
from uivlm.recipe import Recipe

SHARES = "shares"  # folder of a training state: each process's trained weights and optimizer state
WHOLE = "whole"  # folder beside the training states: the whole trained weights, while they are saved
SCHEDULER = "scheduler.pt"
TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False)


def build_base(recipe: Recipe) -> tuple[LoadedModel, StoredWeights]:
    """The recipe's model without adapters, ready to be prepared for training, and its weights in their files.

    Its own weights look like zeros on the CPU but take no memory. Beside "meta" layers, PEFT would give
    adapters no values.
    """
    loaded = build(recipe, "meta")
    if loaded.open_weights is None:
        raise ValueError(
            f"distributed.fsdp: the weights of a {recipe.model.type} model cannot be read in parts. "
            "Set distributed.fsdp=false"
        )
    stored = loaded.open_weights()
    replace_parameters(loaded.model, lambda _, value: nn.Parameter(_zeros(value), value.requires_grad))
    return loaded, stored


def _zeros(value: Tensor) -> Tensor:
    return torch.zeros((), dtype=value.dtype).expand(value.shape)


def shard_model(recipe: Recipe, model: nn.Module, stored: StoredWeights, device: torch.device) -> None:
    """Read each process's share of the model. Adapters are float32 and compute as such, as always.

    `stored`: by the names of the model without adapters.
    """
    dtype = DTYPES[recipe.train.precision]
    full_bfloat16 = recipe.model.lora is None and dtype != torch.float32
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
    own = {name: stored[base] for name, _ in tensors if (base := name_in_base(name)) in stored}
    shard(model, device, dtype if full_bfloat16 else None, recipe.distributed.cpu_offload, own)


def gather_model(
    recipe: Recipe, loaded: LoadedModel, model: nn.Module, device: torch.device, state_dir: Path
) -> tuple[LoadedModel, nn.Module]:
    """The model with whole weights on the CPU of process 0, in files in `state_dir`; unchanged in the others.

    With adapters, only the trained weights have values. The files take as much room as the checkpoint.
    """
    dtype = DTYPES[recipe.train.precision] if loaded.lora is None else None
    weights = gather_weights(model, device, state_dir / WHOLE, dtype)
    if not is_first_process():
        return loaded, model
    loaded = build(recipe, "meta")
    model = prepare_for_training(loaded, recipe.train.seed)
    unknown = model.load_state_dict(weights, strict=False, assign=True).unexpected_keys
    buffers = {name for name, _ in model.named_buffers()}  # some are computed, not saved
    assert buffers.issuperset(unknown), f"weights without a place: {unknown[:4]}"
    return loaded, model


class ShardedModel(nn.Module):
    """Stands for a sharded model in the Trainer, which would wrap the model itself in DDP."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, **inputs: Any) -> Any:
        return self.module(**inputs)


class ShardedTrainer(Trainer):
    """A Trainer whose model `shard_model` has split. Its states hold a file of each process."""

    def _wrap_model(self, model: nn.Module, *_: Any, **__: Any) -> nn.Module:
        return model if isinstance(model, ShardedModel) else ShardedModel(model)

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """It is there."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The shares have the trained weights."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        folder = Path(output_dir)
        save(self._shares(), checkpoint_id=folder / SHARES)
        if self.args.should_save and self.lr_scheduler is not None:
            torch.save(self.lr_scheduler.state_dict(), folder / SCHEDULER)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Loaded with the optimizer."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None and self.lr_scheduler is not None:
            self._load_shares(Path(checkpoint))
            self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER, weights_only=True))

    def _load_best_model(self) -> None:
        assert self.state.best_model_checkpoint is not None
        self._load_shares(Path(self.state.best_model_checkpoint))

    def _shares(self) -> dict[str, Any]:
        weights, optimizer = get_state_dict(*self._trained(), options=TRAINED)
        return {"weights": weights, "optimizer": optimizer}

    def _load_shares(self, folder: Path) -> None:
        shares = self._shares()
        load(shares, checkpoint_id=folder / SHARES)
        set_state_dict(
            *self._trained(),
            model_state_dict=shares["weights"],
            optim_state_dict=shares["optimizer"],
            options=TRAINED,
        )

    def _trained(self) -> tuple[nn.Module, Optimizer]:
        assert isinstance(self.model, nn.Module)
        assert isinstance(self.optimizer, AcceleratedOptimizer)
        return self.model, self.optimizer.optimizer

"""LoRA adapters (PEFT) on linear layers of the language model and, with `lora.vision`, of the vision encoder.

A bridge's projector is trained whole; all else is frozen.

In: a LoadedModel. Out: the same model with adapters, and the files of a checkpoint in PEFT's names.
"""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn

from uivlm.models.adapter_config import (
    ADAPTER_CONFIG,
    check_adapter_config,
    lora_config,
    write_adapter_config,
)
from uivlm.models.build import build, model_loader
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.lora_layers import LoraMatrix, compute_in_input_dtype, lora_layers
from uivlm.models.merging import MAX_MERGE_ERROR, merge_adapters, merge_errors
from uivlm.models.pretrained import (
    PROJECTOR_WEIGHTS,
    Shapes,
    check_shapes,
    read_weights,
    shapes_of,
)
from uivlm.models.sharding import is_sharded
from uivlm.models.stored_weights import read_shapes
from uivlm.recipe import Recipe

ADAPTER_WEIGHTS = "adapter_model.safetensors"
FULL_DIR = "model"  # folder with all weights, in the format of the base
ALL_FILES = (ADAPTER_WEIGHTS, ADAPTER_CONFIG, PROJECTOR_WEIGHTS, FULL_DIR)


def checkpoint_files(recipe: Recipe) -> tuple[str, ...]:
    """Names of the files that `save` writes."""
    if recipe.model.lora is None:
        return (PROJECTOR_WEIGHTS,) if recipe.freeze_language_model else (FULL_DIR,)
    projector = () if model_loader(recipe.model).projector_name is None else (PROJECTOR_WEIGHTS,)
    return (ADAPTER_WEIGHTS, ADAPTER_CONFIG, *projector)


def prepare_for_training(loaded: LoadedModel, seed: int) -> nn.Module:
    """The model with exactly those parameters trainable that the recipe trains."""
    return attach_adapters(loaded, seed) if loaded.lora is not None else _unfreeze(loaded)


def attach_adapters(loaded: LoadedModel, seed: int) -> PeftModel:
    """The model with new adapters, ready to train. Their B is 0: the output is still that of the base."""
    assert loaded.lora is not None, "full fine-tuning has no adapters"
    lora_layers(loaded.model, loaded.all_lora_targets, loaded.lora.vision)
    torch.manual_seed(seed)  # the adapters' A is random
    return _get_peft_model(loaded, lora_config(loaded))


def trainable_parameter_names(model: nn.Module) -> list[str]:
    return [name for name, value in model.named_parameters() if value.requires_grad]


def name_in_base(name: str) -> str:
    """A weight's name in the model without adapters, from its name in the one with them."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def check_trainable_parameters(model: nn.Module, loaded: LoadedModel) -> None:
    """Assert that exactly the adapters of every target and the projector, if any, are trainable."""
    prefix = "base_model.model"
    base = model.get_submodule(prefix)
    adapted = [name for name, _ in base.named_modules() if re.fullmatch(loaded.all_lora_targets, name)]
    expected = {f"{prefix}.{name}.lora_{half}.default.weight" for name in adapted for half in "AB"}
    if loaded.projector_name is not None:
        projector = base.get_submodule(loaded.projector_name)
        expected |= {f"{prefix}.{loaded.projector_name}.{name}" for name, _ in projector.named_parameters()}
    unexpected = expected ^ set(trainable_parameter_names(model))
    assert not unexpected, (
        f"trainable parameters differ from adapters and projector: {sorted(unexpected)[:4]}"
    )


def save_adapters(model: PeftModel, loaded: LoadedModel, base: str, folder: Path) -> None:
    """Write the adapters as two files in PEFT's names, and the projector, if any, as a third."""
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)  # else PEFT queries the hub
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / ADAPTER_WEIGHTS
    )
    write_adapter_config(lora_config(loaded), base, folder)
    if loaded.projector_name is not None:
        save_projector(model, loaded, folder)


def save_projector(model: nn.Module, loaded: LoadedModel, folder: Path) -> None:
    weights = projector(model, loaded).state_dict()
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in weights.items()},
        folder / PROJECTOR_WEIGHTS,
    )


def load_projector(model: nn.Module, loaded: LoadedModel, folder: Path) -> None:
    module = projector(model, loaded)
    weights = read_weights(folder / PROJECTOR_WEIGHTS)
    check_shapes(folder / PROJECTOR_WEIGHTS, shapes_of(weights), shapes_of(module.state_dict()))
    module.load_state_dict(weights)


def load_adapters(loaded: LoadedModel, folder: Path) -> PeftModel:
    """The model with a folder's adapters and projector. ValueError if they do not fit it exactly."""
    config = lora_config(loaded)
    check_adapter_config(folder / ADAPTER_CONFIG, config)
    weights = read_weights(folder / ADAPTER_WEIGHTS)
    check_rank(folder / ADAPTER_WEIGHTS, shapes_of(weights), config.r)
    model = _get_peft_model(loaded, config)
    expected = get_peft_model_state_dict(model, save_embedding_layers=False)
    check_shapes(folder / ADAPTER_WEIGHTS, shapes_of(weights), shapes_of(expected))
    set_peft_model_state_dict(model, weights)
    if loaded.projector_name is not None:
        load_projector(model, loaded, folder)
    return model


def check_rank(file: Path, shapes: Shapes, rank: int) -> None:
    """ValueError for adapters of another rank, before memory is allocated for that of the recipe."""
    for name, shape in shapes.items():
        if ".lora_A." in name and shape[:1] != (rank,):
            raise ValueError(f"{file}: {name} has shape {list(shape)}; expected rank {rank}, as configured")


def _get_peft_model(loaded: LoadedModel, config: LoraConfig) -> PeftModel:
    with warnings.catch_warnings():  # PEFT asks transformers by a name that is deprecated
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        model = get_peft_model(loaded.model, config)
    assert isinstance(model, PeftModel)
    model.peft_config["default"].base_model_name_or_path = ""  # else PEFT looks it up at every save
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            compute_in_input_dtype(layer)
    if loaded.projector_name is not None:  # float32 like the adapters: steps of 1e-5 vanish in bfloat16
        projector(model, loaded).float().requires_grad_(True)
    check_trainable_parameters(model, loaded)
    return model


def projector(model: nn.Module, loaded: LoadedModel) -> nn.Module:
    """The submodule that is trained whole."""
    assert loaded.projector_name is not None
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    assert isinstance(base, nn.Module)
    return base.get_submodule(loaded.projector_name)


def save(model: nn.Module, loaded: LoadedModel, base: str, folder: Path) -> None:
    """Write `checkpoint_files`. `base`: name of the base model, for PEFT's configuration file."""
    if isinstance(model, PeftModel):
        save_adapters(model, loaded, base, folder)
    elif loaded.freeze_language_model:
        save_projector(model, loaded, folder)
    else:
        loaded.save_pretrained(model, folder / FULL_DIR)


def check_saved(model: nn.Module, loaded: LoadedModel, folder: Path) -> None:
    """Read again what `save` wrote. ValueError unless every weight is there, whole."""
    if isinstance(model, PeftModel):
        file = folder / ADAPTER_WEIGHTS
        check_shapes(file, read_shapes(file), _adapter_shapes(model))
    if loaded.freeze_language_model or (isinstance(model, PeftModel) and loaded.projector_name is not None):
        file = folder / PROJECTOR_WEIGHTS
        check_shapes(file, read_shapes(file), shapes_of(projector(model, loaded).state_dict()))
    if loaded.freeze_language_model or isinstance(model, PeftModel):
        return
    # the base's format may rename weights, but keeps their shapes
    files = sorted((folder / FULL_DIR).glob("*.safetensors"))
    saved = Counter(shape for file in files for shape in read_shapes(file).values())
    unique = {value.data_ptr(): tuple(value.shape) for value in model.state_dict().values()}
    if saved != Counter(unique.values()):
        raise ValueError(
            f"{folder / FULL_DIR} holds {sum(saved.values())} weights; the model has {len(unique)}, or other "
            "shapes"
        )


def _adapter_shapes(model: PeftModel) -> Shapes:
    """The shapes in an adapter file, from PEFT's configuration and the sizes of the layers alone."""
    config = model.peft_config["default"]
    assert isinstance(config, LoraConfig)
    shapes: Shapes = {}
    for name, layer in model.base_model.model.named_modules():  # type: ignore[union-attr]
        if re.fullmatch(str(config.target_modules), name):
            base = layer.get_base_layer()
            patch, one = (base.kernel_size, (1, 1)) if isinstance(base, nn.Conv2d) else ((), ())
            shapes[f"base_model.model.{name}.lora_A.weight"] = (config.r, layer.in_features, *patch)
            shapes[f"base_model.model.{name}.lora_B.weight"] = (layer.out_features, config.r, *one)
    return shapes


def save_extra(model: nn.Module, loaded: LoadedModel, folder: Path) -> None:
    """Add the projector to a training state, unless the model is sharded: the Trainer saves the adapters
    only.
    """
    if isinstance(model, PeftModel) and loaded.projector_name is not None and not is_sharded(model):
        save_projector(model, loaded, folder)


def load_extra(model: nn.Module, loaded: LoadedModel, folder: Path) -> None:
    if isinstance(model, PeftModel) and loaded.projector_name is not None and not is_sharded(model):
        load_projector(model, loaded, folder)


def load(recipe: Recipe, folder: Path) -> tuple[LoadedModel, nn.Module]:
    """The model of a checkpoint in evaluation mode.

    Adapters are merged, unless the base is quantized or rounding would change a layer's update by more than
    MAX_MERGE_ERROR.
    """
    recipe = recipe.without_pretrained_projector()  # the checkpoint has its own
    if FULL_DIR in checkpoint_files(recipe):
        full_args = model_loader(recipe.model).saved_args(folder / FULL_DIR)
        loaded = build(replace(recipe, model=full_args))
        return loaded, loaded.model
    loaded = build(recipe)
    if loaded.freeze_language_model:
        projector(loaded.model, loaded).float()
        load_projector(loaded.model, loaded, folder)
        return loaded, loaded.model.requires_grad_(False).eval()
    if loaded.quantized:
        return _load_unmerged(loaded, folder)
    model = load_adapters(loaded, folder)
    if any(error > MAX_MERGE_ERROR for error in merge_errors(model)):
        return loaded, _unmerged(model)
    return loaded, merge_adapters(model)


def load_adapters_shared_base(recipe: Recipe, folders: Sequence[Path]) -> list[tuple[LoadedModel, nn.Module]]:
    """The models of several checkpoints of one base, in evaluation mode.

    They share the base's weights. Each has its own projector and adapters, which are not merged.
    """
    base = build(recipe.without_pretrained_projector())
    return [_load_unmerged(replace(base, model=_copy_sharing_weights(base)), folder) for folder in folders]


def _load_unmerged(loaded: LoadedModel, folder: Path) -> tuple[LoadedModel, nn.Module]:
    return loaded, _unmerged(load_adapters(loaded, folder))


def _unmerged(model: PeftModel) -> nn.Module:
    """The base with adapters beside its weights, in its precision: each call would round them to it."""
    base = model.get_base_model()
    assert isinstance(base, nn.Module)
    for layer in base.modules():
        if not isinstance(layer, LoraLayer):
            continue
        dtype = cast(Tensor, layer.get_base_layer().weight).dtype
        matrices = (*layer.lora_A.values(), *layer.lora_B.values())
        for matrix in matrices if dtype.is_floating_point else ():
            if isinstance(matrix, LoraMatrix):
                matrix.to(dtype)
    return base.requires_grad_(False).eval()


def _copy_sharing_weights(loaded: LoadedModel) -> nn.Module:
    """A copy of the model that shares all tensors except the projector's."""
    own = loaded.projector_name and f"{loaded.projector_name}."
    tensors = (*loaded.model.named_parameters(), *loaded.model.named_buffers())
    shared = {id(value): value for name, value in tensors if not (own and name.startswith(own))}
    return copy.deepcopy(loaded.model, shared)  # deepcopy takes what `shared` holds as copied already


def _unfreeze(loaded: LoadedModel) -> nn.Module:
    assert loaded.trainable_pattern is not None, "full fine-tuning needs a trainable_pattern"
    loaded.model.requires_grad_(False)
    for name, value in loaded.model.named_parameters():
        value.requires_grad_(re.fullmatch(loaded.trainable_pattern, name) is not None)
    if loaded.freeze_language_model:  # float32, as beside adapters
        projector(loaded.model, loaded).float()
    assert trainable_parameter_names(loaded.model), f"no parameter matches {loaded.trainable_pattern}"
    return loaded.model

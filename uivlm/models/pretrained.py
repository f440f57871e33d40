"""Pretrained models: their folder (downloaded once from the hub), their JSON files, their weights."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PreTrainedModel
from transformers.modeling_utils import local_torch_dtype


def is_hub_id(name: str | Path) -> bool:
    """Could it be the hub's model USER/NAME? A folder of that name comes first."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)) is not None and not Path(name).is_dir()


def find_or_download(name: str | Path, what: str, files: list[str]) -> Path:
    """The folder of that name, or else these `files` (patterns) of the hub's model of that id.

    `what` names the kind of model in errors.
    """
    if (folder := Path(name)).is_dir():
        return folder
    if not is_hub_id(name):
        raise ValueError(f"there is no folder {name} with a {what}, and it is not a hub id")
    try:
        return Path(snapshot_download(str(name), allow_patterns=files))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"there is no folder {name}, and the model hub did not provide it ({first_line(error)}): name "
            f"a folder with a {what}, or download it on a machine with a network"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of an error's message, or else its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def created_as(dtype: torch.dtype, device: str) -> Iterator[None]:
    """Modules made inside lie on the device in this dtype from the start: no float32 copy takes memory.

    On "meta" their parameters have no values. Buffers have: they are computed, such as rotary frequencies.
    """
    on_meta = device == "meta"
    hook: Any = _to_meta
    place = register_module_parameter_registration_hook(hook) if on_meta else torch.device(device)
    with local_torch_dtype(dtype), place:
        yield


def _to_meta(module: nn.Module, name: str, value: nn.Parameter) -> nn.Parameter:
    return value if value.is_meta else nn.Parameter(value.to("meta"), value.requires_grad)


M = TypeVar("M", bound=PreTrainedModel)
BILINEAR, BICUBIC = 2, 3  # Pillow's numbers of resampling filters, as in a preprocessor's file
RGBFloats = tuple[float, float, float]


def read_json_object(file: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file of a folder that should hold a `what`."""
    if not file.is_file():
        raise ValueError(f"the folder {file.parent} does not contain a {what}: it has no {file.name}")
    try:
        payload = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON ({first_line(error)}): download it again") from error
    if not isinstance(payload, dict):
        raise ValueError(f"{file} is not a JSON object: download it again")
    return payload


def read_model_config(file: Path, what: str) -> dict[str, Any]:
    """The object in a model's config.json.

    ValueError if it names other attention code than torch's: where the package `kernels` is installed,
    transformers would download such code from the hub and run it.
    """
    payload = read_json_object(file, what)
    parts = [payload]
    while parts:
        for name, value in parts.pop().items():
            if name.endswith("_implementation") and value not in (None, "eager", "sdpa"):
                raise ValueError(f"{file}: {name}: got {value!r:.80}; expected eager or sdpa")
            if isinstance(value, dict):
                parts.append(value)
    return payload


def image_mean_std(file: Path, payload: dict[str, Any]) -> tuple[RGBFloats, RGBFloats]:
    """Mean and standard deviation (R, G, B in 0..1) in the object of a preprocessor's file."""
    try:
        mean, std = (tuple(map(float, payload[field])) for field in ("image_mean", "image_std"))
        return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{file} has no image_mean and image_std of three channels each") from error


def image_resample(file: Path, payload: dict[str, Any], supported: Mapping[int, str]) -> str:
    """The resampling filter in the object of a preprocessor's file; bicubic if it names none.

    ValueError if it is not `supported`, or if the file asks for other numbers than value / 255, normalized.
    `do_center_crop` has no effect: the whole screen is resized to the input of the encoder, and a crop to the
    size of the image is the image.
    """
    expected = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_resize": True}
    for field, value in expected.items():
        found = payload.get(field, value)
        if found is not None and not math.isclose(found, value, rel_tol=1e-6):
            raise ValueError(f"{file}: {field}: got {found}; expected {value}, the only one supported")
    resample = payload.get("resample", BICUBIC)
    if resample not in supported:
        names = ", ".join(f"{number} ({name})" for number, name in supported.items())
        raise ValueError(f"{file}: resample: got {resample}; expected one of {names}")
    return supported[resample]


def load_pretrained(
    cls: type[M], root: Path, dtype: torch.dtype, *, allow_unexpected: bool = False, **rest: Any
) -> M:
    """The folder's model with every weight in its place. `allow_unexpected`: the files may hold other
    parts, which are not read.

    `rest` goes to `from_pretrained`: `config`, `quantization_config`, `device_map`.
    """
    try:
        loaded: Any = cls.from_pretrained(
            root,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **rest,
        )
    except Exception as error:  # damaged files raise nearly anything
        raise ValueError(f"the {cls.__name__} in {root} cannot be loaded ({first_line(error)})") from error
    model, report = loaded
    check_loading_report(cls, root, report, allow_unexpected)
    assert isinstance(model, cls)
    check_finite(root, model.named_parameters())
    return model


def check_loading_report(
    cls: type[PreTrainedModel], root: Path, report: Mapping[str, Any], allow_unexpected: bool
) -> None:
    """ValueError if transformers' report on loading has names that are missing, misshapen or unexpected."""
    for what in ("missing_keys", "mismatched_keys", *(() if allow_unexpected else ("unexpected_keys",))):
        if names := sorted(map(str, report.get(what, ()))):
            raise ValueError(
                f"the weights in {root} do not fit {cls.__name__}: {len(names)} {what.replace('_', ' ')}, "
                f"such as {names[0]}"
            )


PROJECTOR_WEIGHTS = "projector.safetensors"  # a bridge's trained projection, in a checkpoint
Shapes = dict[str, tuple[int, ...]]


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. ValueError if it is damaged, or a value is not finite."""
    try:
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged or incomplete ({error}): download or create it again") from error
    check_finite(file, weights.items())
    return weights


@torch.no_grad()
def check_finite(path: Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    """ValueError for a floating-point weight with a NaN or an infinity. Other types, as packed ones, pass."""
    for name, value in weights:
        if not value.is_floating_point() or not value.numel() or value.is_meta:
            continue
        if not all(map(torch.isfinite, value.aminmax())):  # a NaN is both; no copy, unlike `isfinite` of all
            raise ValueError(f"{path}: {name} holds values that are not finite: download or train it again")


class HasShape(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


def shapes_of(weights: Mapping[str, HasShape]) -> Shapes:
    return {name: tuple(value.shape) for name, value in weights.items()}


def check_shapes(path: Path, actual: Shapes, expected: Shapes) -> None:
    """Same names, same shapes; else ValueError with an example and the number of such names."""
    if missing := sorted(expected.keys() - actual.keys()):
        raise ValueError(f"{path} lacks {len(missing)} of {len(expected)} weights, such as {missing[0]}")
    if unexpected := sorted(actual.keys() - expected.keys()):
        raise ValueError(
            f"{path} holds {len(unexpected)} weights that the model does not have, such as {unexpected[0]}"
        )
    for name, shape in expected.items():
        if shape != actual[name]:
            raise ValueError(
                f"{path}: {name} has shape {list(actual[name])} where the model has {list(shape)}"
            )

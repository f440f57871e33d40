"""The weights of a model in their files: a process reads only the rows that it holds.

In: a folder with safetensors (or PyTorch) files, and the model of its configuration. Out: for each weight of
the model, its shape and a function that reads some of its rows. The names in the files become the model's by
transformers' own tables, which `from_pretrained` uses.
"""

import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)
from transformers.utils.loading_report import LoadStateDictInfo

from uivlm.models.pretrained import Shapes, check_loading_report, first_line, shapes_of

SAFETENSORS, PYTORCH = "model.safetensors", "pytorch_model.bin"


@dataclass(frozen=True, slots=True)
class StoredWeight:
    shape: tuple[int, ...]
    read_rows: Callable[[int, int], Tensor]  # [start, stop) of the first dimension, in the dtype of the file

    def read(self) -> Tensor:
        """The whole weight."""
        return self.read_rows(0, self.shape[0])


StoredWeights = Mapping[str, StoredWeight]


def in_memory(weight: Tensor) -> StoredWeight:
    """A weight that is in no file."""
    return _stored(tuple(weight.shape), weight)


def weight_files(root: Path, names: Sequence[str]) -> list[Path]:
    """The files of a model: those of the first of `names` that exists, whole or sharded."""
    for name in names:
        if (root / name).is_file():
            return [root / name]
        index = root / f"{name}.index.json"
        if not index.is_file():
            continue
        try:
            files = [
                root / file
                for file in sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} is damaged ({error}): download it again") from error
        for file in files:
            if not file.is_file():
                raise ValueError(f"{index} names {file.name}, which is not there: download it")
        return files
    raise ValueError(f"the folder {root} has no weights: expected {' or '.join(names)}, whole or sharded")


def open_file(file: Path) -> dict[str, StoredWeight]:
    """The weights in a safetensors or PyTorch file, by their names there. No code in it runs.

    ValueError if it is damaged.
    """
    try:
        return _open_safetensors(file) if file.suffix == ".safetensors" else _open_pytorch(file)
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(
            f"{file} is damaged or holds more than weights ({first_line(error)}): download it again"
        ) from error


def open_files(files: Sequence[Path]) -> dict[str, StoredWeight]:
    """The weights in all shards of a model. ValueError if two shards hold one weight."""
    weights: dict[str, StoredWeight] = {}
    for file in files:
        shard = open_file(file)
        if twice := weights.keys() & shard.keys():
            raise ValueError(f"{file} holds {min(twice)}, which another shard holds as well")
        weights |= shard
    return weights


def read_shapes(file: Path) -> Shapes:
    """Names and shapes in a safetensors or PyTorch file. ValueError if it is damaged."""
    return shapes_of(open_file(file))


def open_pretrained(
    model: PreTrainedModel, root: Path, allow_unexpected: bool = False
) -> dict[str, StoredWeight]:
    """The weights of transformers' `model`, by its names. ValueError if one is missing or of another shape.

    What transformers splits or joins while it loads is read whole. `allow_unexpected`: the files may hold
    other parts, which are not read.
    """
    expected = model.state_dict()
    weights, unexpected = _rename(model, expected, open_files(weight_files(root, [SAFETENSORS])))
    for target, source in model.all_tied_weights_keys.items():
        if source in weights and target in weights:
            weights[source] = _tied(root, source, weights[source], weights[target])
        if tied := weights.get(source) or weights.get(target):
            weights[source] = weights[target] = tied
    shapes = shapes_of(expected)
    mismatched: set[Any] = {  # name, shape in the file, shape in the model
        (name, weight.shape, shapes[name]) for name, weight in weights.items() if weight.shape != shapes[name]
    }
    report = LoadStateDictInfo(expected.keys() - weights.keys(), unexpected, mismatched, [], {}, set())
    model._adjust_missing_and_unexpected_keys(report)  # names that published files are known to lack or add
    check_loading_report(type(model), root, vars(report), allow_unexpected)
    return weights


def _open_safetensors(file: Path) -> dict[str, StoredWeight]:
    opened: Any = safe_open(file, framework="pt")
    slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
    return {name: _stored(tuple(part.get_shape()), part) for name, part in slices.items()}


def _open_pytorch(file: Path) -> dict[str, StoredWeight]:
    """Mapped into memory: only the rows that are read take any. PyTorch's oldest format is read whole."""
    weights = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    return {name: _stored(tuple(value.shape), value) for name, value in weights.items()}


def _stored(shape: tuple[int, ...], source: Any) -> StoredWeight:
    return StoredWeight(shape, lambda start, stop: source[start:stop] if shape else source[...])


def _rename(
    model: PreTrainedModel, expected: dict[str, Tensor], stored: StoredWeights
) -> tuple[dict[str, StoredWeight], set[str]]:
    """The stored weights by the model's names, and the names that the model does not have."""
    tables = get_model_conversion_mapping(model)
    renamings = [entry for entry in tables if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in tables if isinstance(entry, WeightConverter)]
    converter_of = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    prefix = model.base_model_prefix
    weights, unexpected = dict[str, StoredWeight](), set[str]()
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)  # of what has to be converted
    for key in sorted(stored, key=dot_natural_key):
        name, pattern = rename_source_key(key, renamings, converters, prefix, expected)
        if name not in expected and key in expected:
            name, pattern = rename_source_key(key, [], [], prefix, expected)
        if name not in expected:
            unexpected.add(name)
        elif pattern is None:
            weights[name] = stored[key]
        else:
            sources[name].append((key, pattern))
    for name, keys in sources.items():
        weights |= _converted(model, name, converter_of[keys[0][1]], keys, stored)
    return weights, unexpected


def _converted(
    model: PreTrainedModel,
    name: str,
    converter: WeightConverter,
    keys: list[tuple[str, str]],
    stored: StoredWeights,
) -> dict[str, StoredWeight]:
    """What transformers makes of these stored weights: `name` and others."""

    def convert(read: Callable[[StoredWeight], Tensor]) -> dict[str, Tensor]:
        own = deepcopy(converter)
        for key, pattern in keys:
            own.add_tensor(name, key, pattern, read(stored[key]))  # type: ignore[arg-type]
        made = own.convert(name, model=model, config=model.config)
        return {name: value[0] if isinstance(value, list) else value for name, value in made.items()}

    def rows_of(made: str) -> Callable[[int, int], Tensor]:
        return lambda start, stop: convert(StoredWeight.read)[made][start:stop]

    shapes = convert(lambda weight: torch.empty(weight.shape, device="meta"))
    return {made: StoredWeight(tuple(value.shape), rows_of(made)) for made, value in shapes.items()}


def _tied(root: Path, name: str, first: StoredWeight, second: StoredWeight) -> StoredWeight:
    """A tied weight that is stored twice. ValueError, when rows are read, if the two differ."""

    def read_rows(start: int, stop: int) -> Tensor:
        rows = first.read_rows(start, stop)
        if not rows.equal(second.read_rows(start, stop)):
            raise ValueError(
                f"the weights in {root} hold two different values of {name}, which config.json ties: set "
                "tie_word_embeddings to false there"
            )
        return rows

    return StoredWeight(first.shape, read_rows)

"""What the programs of this folder share: their arguments, their model, and the JSON file that each writes.

    python bench/gpu/PART.py OUT MODEL [--small]

MODEL is qwen_vl or qwen2_5_vl: the published shape with random weights, made by `models.py` in OUT/models.
The result is OUT/PART_MODEL.json: what was measured on, single facts, and a table of rows. `--small` takes
narrow layers and small screens, on any device; its figures say nothing about a GPU.
"""

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from models import SMALL, resize, write_model

from uivlm import atomic
from uivlm.recipe import Recipe, load, override

sys.path.append(str(Path(__file__).parents[1]))  # of `shared`, for the programs that import this file

RECIPES = {"qwen_vl": "qwenvl", "qwen2_5_vl": "qwen2_5vl"}
SMALL_SETTINGS = [
    "train.precision=float32",
    "train.num_workers=0",
    "train.max_packed_tokens=1024",
    "train.gradient_accumulation_steps=1",
]
Value = str | float | int | bool | None


@dataclass(frozen=True, slots=True)
class Part:
    """One run of a program."""

    name: str
    out: Path
    model: str
    small: bool

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def recipe(self, *settings: str, config: dict[str, Any] | None = None) -> Recipe:
        """The model's recipe on its folder. `config`: of another size; --small has its own."""
        size = "small" if self.small else "published" if config is None else "shallow"
        folder = self.out / "models" / f"{self.model}_{size}"
        if not folder.exists():
            write_model(folder, self.model, config=resize(self.model, SMALL) if self.small else config)
        base = [f"model.base_model={folder}", "train.report_to=[]", *(SMALL_SETTINGS if self.small else [])]
        return override(load(RECIPES[self.model]), [*base, *settings])

    def write(self, facts: Mapping[str, Value], rows: Sequence[Mapping[str, Value]]) -> None:
        """Replace the result. A program calls it as often as it has something new: a later failure loses
        nothing.
        """
        result = {
            "part": self.name,
            "model": self.model,
            "small": self.small,
            "machine": machine(),
            "facts": dict(facts),
            "rows": [dict(row) for row in rows],
        }
        file = self.out / f"{self.name}_{self.model}.json"
        atomic.write_file(file, json.dumps(result, indent=1, default=_plain_number))


def parse_arguments(name: str, description: str | None, arguments: Sequence[str] | None = None) -> Part:
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the result")
    parser.add_argument("model", choices=list(RECIPES))
    parser.add_argument("--small", action="store_true", help="tiny shapes, on any device")
    args = parser.parse_args(arguments)
    if not args.small and not torch.cuda.is_available():
        parser.error("the published size needs a CUDA GPU. Try --small")
    args.out.mkdir(parents=True, exist_ok=True)
    return Part(name, args.out, args.model, args.small)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }


def _plain_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a result: {value!r}")

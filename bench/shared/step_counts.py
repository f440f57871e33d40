"""What a training step dispatches, and how often it reads a value, counted on a CPU.

On a GPU each reading (`.item()`, `.tolist()`, `bool()`, `nonzero`, a boolean index, a copy to the CPU) waits
for all work queued there. Packed attention is counted as its one call a layer on a GPU in bfloat16.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from rich.table import Table
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from uivlm.models import packed_attention
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import build
from uivlm.models.multimodal import token_losses
from uivlm.recipe import load

READS = (
    "aten._local_scalar_dense",
    "aten.nonzero.default",
    "aten.masked_select",
    "aten.repeat_interleave.Tensor",
)
INDEXED = ("aten.index.Tensor", "aten.index_put", "aten._index_put_impl_")  # by booleans: a nonzero inside
COPIES = {"tolist", "cpu", "numpy"}  # of a tensor
# These read tensors that a GPU run keeps on the CPU, or run on CPUs only.
ON_CPU = ("merge_multimodal_embeddings", "_check_image_runs", "_check_order", "vision_inputs", "to_patches")
TORCH_FILES = ("_compile.py", "eval_frame.py", "_tensor.py")  # between a caller and a mode
GRIDS = ("get_image_features",)  # reads the grids


class Dispatches(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts["operations"] += 1
        name = str(func)
        by_booleans = name.startswith(INDEXED) and any(
            part is not None and part.dtype == torch.bool for part in args[1]
        )
        if (name.startswith(READS) or by_booleans) and not _is_on_cpu():
            self.counts["host reads"] += 1
        return func(*args, **kwargs or {})


class Calls(TorchFunctionMode):
    """What is not dispatched: lists of values, and attention as a whole."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in COPIES and not _is_on_cpu():
            self.counts["host reads"] += 1
        self.counts["attention calls"] += name == "scaled_dot_product_attention"
        return func(*args, **kwargs or {})


def _is_on_cpu() -> bool:
    frame = sys._getframe(2)
    callers = []
    while frame is not None and len(callers) < 3:
        if not frame.f_code.co_filename.endswith(("step_counts.py", *TORCH_FILES)):
            callers.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return any(name in ON_CPU for name in callers) or callers[0] in GRIDS


@contextmanager
def _one_call_a_layer(counts: Counter[str]) -> Iterator[None]:
    def kernel(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        counts["attention calls"] += 1
        return query + key + value

    with (
        patch.object(packed_attention, "supports_varlen", lambda query: True),
        patch.object(packed_attention, "varlen_kernel", lambda: kernel),
    ):
        yield


def count_step(step: Callable[[], Any]) -> Counter[str]:
    """Operations, attention calls and host reads of a forward and backward pass."""
    counts: Counter[str] = Counter({"operations": 0, "attention calls": 0, "host reads": 0})
    with _one_call_a_layer(counts), Dispatches(counts), Calls(counts):
        step()
    return counts


def count_steps() -> Table:
    """Two sentences in one forward pass, padded and packed, of small models with two layers.

    Bytes of pixels: what the workers hand over and a GPU receives, of all screens of the batch.
    """
    sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests write small models
    from tests.helpers.every_kind import recipe_of, write_every_kind
    from tests.helpers.packed_rows import batched, rows_of

    table = Table(title="forward and backward of two sentences")
    for head in ("model", "rows", "operations", "attention calls", "host reads", "bytes of pixels"):
        table.add_column(head, justify="left" if head in ("model", "rows") else "right")
    with TemporaryDirectory() as folder:
        root = write_every_kind(Path(folder) / "models")
        for kind in ("tiny", "qwen_vl", "Qwen2_5_VL"):
            recipe = load("tiny") if kind == "tiny" else recipe_of(root, kind)
            loaded = build(recipe)
            rows = rows_of(recipe, loaded, (2, 3))
            model = prepare_for_training(loaded, 0).train()
            for pack in (False, True):
                batch = batched(loaded, rows, pack)
                inputs = {name: value for name, value in batch.items() if name != "labels"}

                def step(inputs: dict[str, Any] = inputs, labels: Tensor = batch["labels"]) -> None:
                    token_losses(model(**inputs), labels).sum().backward()  # noqa: B023

                counts = count_step(step)
                num_bytes = sum(screen.nbytes for screen in batch["pixels"])
                cells = map(str, (*counts.values(), num_bytes))
                table.add_row(kind, "packed" if pack else "padded", *cells)
    return table

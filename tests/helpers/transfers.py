"""What makes the host wait for the device, counted."""

from typing import Any

from torch.overrides import TorchFunctionMode


class Transfers(TorchFunctionMode):
    waits = frozenset({"tolist", "item", "__int__", "__float__", "__bool__", "nonzero", "cpu", "numpy"})

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in self.waits:
            self.counted.append(func.__name__)
        return func(*args, **(kwargs or {}))

"""A row of the table: an attack, the promise that it tests, what was measured, whether the promise held."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    attack: str
    promise: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Attack:
    """A row of the table before it is measured. `measure` returns what was measured, and whether it held."""

    name: str
    promise: str
    measure: Callable[[], tuple[str, bool]]

    def run(self) -> Row:
        """A defect of the attack itself breaks its promise, too: the other rows are still measured."""
        try:
            measured, holds = self.measure()
        except Exception as error:
            measured, holds = f"{type(error).__name__}: {error}"[:300], False
        return Row(self.name, self.promise, measured, holds)

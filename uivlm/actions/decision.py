"""The decision of an agent: one type for engine, agent, server, loop and trace."""

import math
from dataclasses import dataclass

from uivlm.actions.action import Action, InvalidAction


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, or why the output is not one; the raw model output; confidences."""

    action: Action | InvalidAction
    text: str  # raw model output
    confidence: float | None = None  # [0, 1]
    action_type_confidence: float | None = None  # [0, 1], of the action's type alone


def finite_or_none(confidence: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return None if confidence is None or not math.isfinite(confidence) else confidence

"""What settings are checked with; the message names the setting and the remedy."""


class RecipeError(ValueError):
    """A recipe that cannot run; the message names the setting and the remedy."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise RecipeError(message)


def above_zero(name: str, value: float) -> None:
    require(value > 0, f"{name} is {value}: it must be above 0")


def at_least(name: str, value: float | None, minimum: float) -> None:
    require(value is None or value >= minimum, f"{name} is {value}: it must be at least {minimum}")

"""What decides the bytes of prepared data, but for the source itself: a value, and the same as JSON."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from data_prep.reader import Format
from data_prep.split import HASH_RULE, Choice, SplitRule

Gaps = Literal["keep-prefix", "drop", "keep"]
Codec = Literal["jpeg", "png"]


@dataclass(frozen=True, slots=True)
class Kept:
    """How screens and actions are kept."""

    bins: int = 100  # coordinates in the words: 0..bins-1
    codec: Codec = "jpeg"  # or png, without loss
    quality: int = 90  # of jpeg, 1 to 100
    height: int | None = None  # taller screens are made so high, in pixels; points are fractions and stay


@dataclass(frozen=True, slots=True)
class Settings:
    format: Format = "aitw"  # how the episodes were recorded
    choice: Choice = Choice(SplitRule(HASH_RULE))  # noqa: RUF009  # frozen
    kept: Kept = Kept()  # frozen
    gaps: Gaps = "keep-prefix"  # what becomes of episodes with missing steps
    limit: int | None = None  # at most so many episodes, whole ones first
    tokens: tuple[str, ...] = ()  # recipes whose tokens the report counts


def as_json(settings: Settings) -> dict[str, Any]:
    """The settings as JSON has them; `from_json` reads them again."""
    choice = settings.choice
    labels = None if choice.rule.labels is None else dict(choice.rule.labels)
    return {
        "format": settings.format,
        "choice": {
            "rule": choice.rule.name,
            "labels": labels,
            "subsets": sorted(choice.subsets),
            "shares": dict(choice.shares),
            "seed": choice.seed,
        },
        "kept": asdict(settings.kept),
        "gaps": settings.gaps,
        "limit": settings.limit,
        "tokens": list(settings.tokens),
    }


def from_json(content: dict[str, Any]) -> Settings:
    """The settings of which `as_json` made this."""
    choice = dict(content["choice"])
    rule = SplitRule(choice.pop("rule"), choice.pop("labels"))
    subsets = frozenset(choice.pop("subsets"))
    return Settings(**{
        **content,
        "choice": Choice(rule, subsets, **choice),
        "kept": Kept(**content["kept"]),
        "tokens": tuple(content["tokens"]),
    })  # fmt: skip

"""The settings that decide the bytes of prepared data, and the same as JSON."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from data_prep.source import FormatName
from data_prep.split import HASH_RULE, EpisodeSelection, SplitRule
from uivlm.episodes.rows import ImageFormat

MissingStepsPolicy = Literal["keep-prefix", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """How screens and the text of actions are stored."""

    num_bins: int = 100  # coordinates in `action_text`: 0 to num_bins - 1
    image_format: ImageFormat = "jpeg"  # png is lossless
    jpeg_quality: int = 90  # 1 to 100
    max_height: int | None = None  # pixels; taller screens are resized, points are fractions and stay


@dataclass(frozen=True, slots=True)
class PrepSettings:
    format: FormatName = "aitw"  # of the source
    selection: EpisodeSelection = EpisodeSelection(SplitRule(HASH_RULE))  # noqa: RUF009  # frozen
    images: ImageSettings = ImageSettings()  # frozen
    missing_steps: MissingStepsPolicy = "keep-prefix"  # what becomes of episodes with missing steps
    max_episodes: int | None = None  # of each subset; complete episodes first, chosen by a hash
    keep_failed_runs: bool = False  # traces whose `task_success` is false
    count_tokens: tuple[str, ...] = ()  # recipes whose tokens the report counts


def settings_to_json(settings: PrepSettings) -> dict[str, Any]:
    """The settings as JSON; `settings_from_json` reads them again."""
    selection = settings.selection
    labels = None if selection.rule.labels is None else dict(selection.rule.labels)
    return {
        "format": settings.format,
        "selection": {
            "rule": selection.rule.name,
            "labels": labels,
            "duplicate_ids": sorted(selection.rule.duplicate_ids),
            "duplicate_policy": selection.rule.duplicate_policy,
            "subsets": sorted(selection.subsets),
            "subsample": dict(selection.subsample),
            "seed": selection.seed,
        },
        "images": asdict(settings.images),
        "missing_steps": settings.missing_steps,
        "max_episodes": settings.max_episodes,
        "keep_failed_runs": settings.keep_failed_runs,
        "count_tokens": list(settings.count_tokens),
    }


def settings_from_json(content: dict[str, Any]) -> PrepSettings:
    """The settings that `settings_to_json` wrote."""
    selection = dict(content["selection"])
    rule = SplitRule(
        selection.pop("rule"),
        selection.pop("labels"),
        frozenset(selection.pop("duplicate_ids")),
        selection.pop("duplicate_policy"),
    )
    subsets = frozenset(selection.pop("subsets"))
    return PrepSettings(**{
        **content,
        "selection": EpisodeSelection(rule, subsets, **selection),
        "images": ImageSettings(**content["images"]),
        "count_tokens": tuple(content["count_tokens"]),
    })  # fmt: skip

"""Published AITW scores to compare with: action matching in percent, as their authors report them.

Two tables that are never mixed: episode-wise splits (80 / 10 / 10), and SeeClick's split by instruction.
Scores of a subset are means over episodes (E) or over steps (M); "?" if the source does not say. Overall:
plain mean of the five.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DataKind = Literal["aitw", "simulated", "other"]  # published AITW scores are shown with the first only
AITW_FORMATS = ("aitw", "seeclick", "showui")  # source formats of AITW's episodes with their boxes
AITW_SUBSETS = frozenset({"general", "install", "google_apps", "single", "web_shopping"})
SUBSETS = ("General", "Install", "GoogleApps", "Single", "WebShopping")


@dataclass(frozen=True, slots=True)
class PublishedScore:
    model: str
    overall: float
    subsets: tuple[float, ...]  # in the order of SUBSETS, or empty
    averaging: str  # E, M or ?
    source: str


def data_kind(meta: Mapping[str, Any], simulated_subset: str) -> DataKind:
    """The kind of prepared data, by the source format and the subsets in its `meta.json`.

    Data prepared before 0.3 does not record its source format, and is "other".
    """
    if simulated_subset in meta["subsets"]:
        return "simulated"
    is_aitw = meta.get("source_format") in AITW_FORMATS and AITW_SUBSETS.issuperset(meta["subsets"])
    return "aitw" if is_aitw else "other"


EPISODE_WISE = (
    PublishedScore("UI-VLM (Qwen-VL, LoRA)", 78.9, (74.7, 83.3, 72.4, 89.9, 74.2), "E", "UI-VLM"),
    PublishedScore("CogAgent 17B (unknown split)", 76.9, (65.3, 78.9, 74.9, 93.5, 71.7), "?", "UI-VLM"),
    PublishedScore("Auto-UI large", 74.27, (68.24, 76.89, 71.37, 84.58, 70.26), "M", "Auto-UI"),
    PublishedScore("LLama+ViT", 73.7, (69.3, 77.1, 70.8, 83.1, 68.2), "E", "UI-VLM"),
    PublishedScore("BC-history", 73.1, (63.7, 77.5, 75.7, 80.3, 68.5), "E", "AITW paper, by Auto-UI"),
    PublishedScore("BC-single", 68.7, (), "E", "AITW paper, by Auto-UI"),
    PublishedScore("GPT-4V + history", 52.96, (43.01, 46.14, 49.18, 78.29, 48.18), "?", "MM-Navigator"),
    PublishedScore("PaLM-2, chain of thought", 39.6, (), "E", "AITW paper, by Auto-UI"),
)
SEECLICK_SPLIT = (
    PublishedScore("ShowUI-2B", 70.0, (63.9, 72.5, 69.7, 77.5, 66.6), "M", "ShowUI"),
    PublishedScore("Qwen2-VL-2B, four screens", 69.0, (), "M", "ShowUI"),
    PublishedScore("Iris", 63.6, (), "M", "Iris"),
    PublishedScore("SeeClick", 59.3, (54.0, 66.4, 54.9, 63.5, 57.6), "M", "SeeClick"),
    PublishedScore("Qwen-VL, fine-tuned", 54.3, (49.5, 59.9, 46.9, 64.7, 50.7), "M", "SeeClick"),
)

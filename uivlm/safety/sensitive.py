"""Which labels are sensitive: labels and keywords in, the labels with a keyword out."""

import re
from collections.abc import Sequence


def sensitive_labels(labels: Sequence[str], keywords: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if _has_keyword(label, keywords))


def _has_keyword(label: str, keywords: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(keyword)}\b", label, re.IGNORECASE) for keyword in keywords)

"""Which labels are sensitive: labels and keywords in, the labels with a keyword out."""

from collections.abc import Sequence

from uivlm.safety.labels import has_keyword


def sensitive_labels(labels: Sequence[str], keywords: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if has_keyword(label, keywords))

"""The rule for the boxes of every format: no step is lost because of a box.

In: the annotations of a screen, as recorded. Out: those on the screen, and how many were left out.
"""

import numpy as np

from uivlm.actions.matching import BOX_TOLERANCE
from uivlm.episodes.episode import Annotations


def clip_boxes(annotations: Annotations) -> tuple[Annotations, int]:
    """The annotations whose boxes are on the screen, and the number of the others.

    A box whose numbers leave [0, 1] by less than BOX_TOLERANCE is clipped. Any other box is left out.
    """
    boxes = np.asarray(annotations.boxes, np.float64).reshape(-1, 4)
    if ((boxes >= 0) & (boxes <= 1)).all():
        return annotations, 0
    usable = ((boxes > -BOX_TOLERANCE) & (boxes < 1 + BOX_TOLERANCE)).all(axis=1)  # false for NaN
    kept = np.flatnonzero(usable).tolist()
    return Annotations(
        np.clip(boxes[kept], 0, 1).ravel().tolist(),
        [annotations.texts[i] for i in kept],
        [annotations.ui_types[i] for i in kept],
    ), len(boxes) - len(kept)

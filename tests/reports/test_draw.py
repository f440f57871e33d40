"""Actions are drawn at their coordinates, whatever the action and the screen."""

import numpy as np
import pytest
from PIL import Image

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.reports.draw import caption, data_url, draw_action


def changed_points(before: np.ndarray, image: Image.Image) -> np.ndarray:
    """(y, x) fractions of the pixels that differ."""
    after = np.asarray(image)
    assert after.shape == before.shape
    return np.argwhere((after != before).any(axis=2)) / before.shape[:2]


def test_drawn_actions_are_where_they_belong() -> None:
    pixels = np.full((600, 270, 3), 90, np.uint8)
    ring = changed_points(pixels, draw_action(pixels, Tap(Point(0.25, 0.75)), "red"))
    assert ring.mean(axis=0) == pytest.approx([0.25, 0.75], abs=0.01)
    arrow = changed_points(pixels, draw_action(pixels, Swipe(Point(0.9, 0.5), Point(0.1, 0.5)), "red"))
    assert arrow[:, 0].min() == pytest.approx(0.1, abs=0.02)
    assert arrow[:, 0].max() == pytest.approx(0.9, abs=0.02)
    assert abs(arrow[:, 1] - 0.5).max() < 0.06
    head = abs(arrow[:, 0] - 0.1) < 0.05
    assert (
        np.ptp(arrow[head, 1]) > np.ptp(arrow[~head & (arrow[:, 0] < 0.85), 1]) * 2
    )  # the head is at the end
    bar = changed_points(pixels, draw_action(pixels, Type("milk"), "red"))
    assert bar[:, 0].min() > 0.9
    assert (pixels == 90).all()  # the screen itself is not touched


@pytest.mark.parametrize(
    "action",
    [Tap(Point(-3, 9)), Tap(Point(float("nan"), 0.5)), Swipe(Point(0, 0), Point(float("inf"), 0)),
     Swipe(Point(1, 1), Point(1, 1)),
     Type("漢字😀\ud800\n" * 50), Press("back"), Finish("complete")],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("size", [(1, 1), (60, 27), (300, 130)])
def test_any_action_is_drawn_on_any_screen(action: Action, size: tuple[int, int]) -> None:
    image = draw_action(np.zeros((*size, 3), np.uint8), action, "#00ff00")
    assert image.size == size[::-1]
    assert caption(action)
    assert data_url(image).startswith("data:image/jpeg;base64,/9j/")

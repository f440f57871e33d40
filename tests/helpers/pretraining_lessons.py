"""Random lessons of the tiny base's pre-training."""

from random import Random

from uivlm.training.tiny_base.lesson import random_lesson
from uivlm.training.tiny_base.screen_index import Lesson, ScreenIndex


def some_lessons(shelf: ScreenIndex, count: int = 80) -> list[Lesson]:
    rng = Random(3)
    return [random_lesson(rng, shelf, rng.choice((1, 2, 4, 8)), 10, 0.3) for _ in range(count)]

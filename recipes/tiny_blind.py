"""`tiny` without past screens: the model sees only the current screen, and older actions as text."""

from dataclasses import replace
from pathlib import Path

from uivlm.recipe import Recipe, load


def recipe() -> Recipe:
    tiny = load(Path(__file__).with_name("tiny.py"))
    return replace(
        tiny,
        name="tiny_blind",
        prompt=replace(tiny.prompt, max_screens=1),
        # ours: a sentence has one action instead of about six; a step then has as many actions as in `tiny`
        train=replace(tiny.train, per_device_batch_size=6 * tiny.train.per_device_batch_size),
    )

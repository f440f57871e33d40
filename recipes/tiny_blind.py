"""`tiny` without past screens: it sees the current screen alone and is told older actions in words."""

from dataclasses import replace
from pathlib import Path

from uivlm.recipe import Recipe, load


def recipe() -> Recipe:
    tiny = load(Path(__file__).with_name("tiny.py"))
    return replace(
        tiny,
        name="tiny_blind",
        grammar=replace(tiny.grammar, screens=1),
        # ours: a row holds one action instead of an episode's six, so a step has as many actions as those of `tiny`
        train=replace(tiny.train, batch=6 * tiny.train.batch),
    )

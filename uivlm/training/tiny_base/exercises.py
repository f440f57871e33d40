"""The exercises of lessons.

Each is an endless sequence: a goal, then screens and the right action on each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Finish, Tap, Type
from uivlm.devices.sim import touch_jitter
from uivlm.training.tiny_base.phrases import (
    filler_words,
    join_shuffled,
    join_with_filler,
    random_text,
    related_words,
    typing_request,
    wrap_in_filler,
)
from uivlm.training.tiny_base.random_screens import ScreenItem
from uivlm.training.tiny_base.screen_index import (
    Ask,
    ExpertAction,
    Piece,
    ScreenIndex,
    Show,
    Spot,
    count_occurrences,
    field_spot,
    find_unambiguous_page,
    label_spot,
    page_without,
    sample_texts,
    value_spot,
)
from uivlm.training.tiny_base.vocabulary import (
    CUE_GROUPS,
    FIELD_TEMPLATES,
    ITEM_ON_PAGE_TEMPLATES,
    LABELS_BY_CUE,
    SERIES,
    TURN_TEMPLATES,
)

SCROLL_FURTHER = touch_jitter.SWIPES["up"]  # the right action when the target is not on the screen


@dataclass(frozen=True, slots=True)
class TapTarget:
    """A label to tap."""

    label: str
    cues: tuple[str, ...]  # words of the goal: the label, or words related to it

    @property
    def is_indirect(self) -> bool:
        return self.cues != (self.label,)

    @property
    def matching_labels(self) -> set[str]:
        """All labels that the cues may mean."""
        return {self.label, *self.cues}.union(*(LABELS_BY_CUE.get(cue, ()) for cue in self.cues))


def find_targets(rng: Random, index: ScreenIndex, related_fraction: float) -> Iterator[Piece]:
    """Labels to tap on any screen that shows them, and often a text to type into any focused field."""
    targets = [_random_target(rng, index, related_fraction) for _ in range(rng.choice((1, 1, 2, 3)))]
    typed = random_text(rng) if rng.random() < 0.5 else ""
    parts = [wrap_in_filler(rng, join_with_filler(rng, target.cues)) for target in targets]
    yield Ask(join_shuffled(rng, parts + ([typing_request(rng, typed)] if typed else [])))
    while True:
        yield from _next_exercise(rng, index, targets, typed)


def _random_target(rng: Random, index: ScreenIndex, related_fraction: float) -> TapTarget:
    group = rng.choice(CUE_GROUPS)
    labels = [label for label in group if label in index.pages_by_text]
    if labels and rng.random() < related_fraction:
        label = rng.choice(labels)
        return TapTarget(label, related_words(rng, label, group[label]))
    text = rng.choice(sample_texts(rng, index))
    return TapTarget(text, (text,))


def remember_value(rng: Random, index: ScreenIndex) -> Iterator[Piece]:
    """The first screen shows the value of a key. On later screens, tap or type that value."""
    page, label = rng.choice(index.pages_with_values)
    yield Ask(wrap_in_filler(rng, f"what {label.text} says"))
    yield Show(page, value_spot(label))
    yield ExpertAction(Finish("complete"))
    while True:
        yield from _next_exercise(rng, index, [TapTarget(label.value, (label.value,))], label.value)


def turn_pages(rng: Random, index: ScreenIndex) -> Iterator[Piece]:
    """Find one item of a series, such as a month, and mostly tap something on its page.

    A page with another item is passed by a swipe, whatever else it shows.
    """
    at = rng.randrange(len(SERIES))
    series = SERIES[at]
    page, goal_item = rng.choice(index.pages_by_series[at])
    target = _other_label(rng, index, page, series) if rng.random() < 0.6 else None
    templates = ITEM_ON_PAGE_TEMPLATES if target else TURN_TEMPLATES
    request = rng.choice(templates).format(goal_item.text, target.text if target else "")
    yield Ask(" ".join((request, *filler_words(rng, (0, 0, 1, 2, 4)))))
    while True:
        other_page, other = rng.choice(index.pages_by_series[at])
        if rng.random() < 0.35:
            yield Show(page, label_spot(target or goal_item))
            yield ExpertAction(Tap(target.tap_point) if target else Finish("complete"))
        elif other.text != goal_item.text:
            later = series.index(goal_item.text) > series.index(other.text)
            yield Show(other_page, Spot(other.box, (other.text,)))
            yield ExpertAction(touch_jitter.SWIPES["left" if later else "right"])


def _other_label(rng: Random, index: ScreenIndex, page: int, series: Sequence[str]) -> ScreenItem | None:
    """Another label of the page that occurs once; None if there is none."""
    screen = index.pages[page]
    others = [
        label
        for label in screen.items
        if label.text not in series and count_occurrences(screen, label.text) == 1
    ]
    return rng.choice(others) if others else None


def fill_form(rng: Random, index: ScreenIndex) -> Iterator[Piece]:
    """Texts for fields. Type each on the screen whose focused field it belongs to."""
    fields = {hint: page for page, hint in rng.sample(index.pages_with_fields, rng.choice((1, 2, 2, 3)))}
    texts = {hint: random_text(rng) for hint in fields}
    parts = [rng.choice(FIELD_TEMPLATES).format(hint, text) for hint, text in texts.items()]
    yield Ask(join_shuffled(rng, [" ".join((*filler_words(rng, (0, 1, 2, 4)), part)) for part in parts]))
    while True:
        if rng.random() < 0.8:
            hint = rng.choice(tuple(fields))
            yield Show(fields[hint], field_spot(index.pages[fields[hint]]))
            yield ExpertAction(Type(texts[hint]))
        else:
            yield Show(page_without(rng, index, {*texts, *texts.values()}, range(len(index.pages))))
            yield ExpertAction(SCROLL_FURTHER)


def _next_exercise(
    rng: Random, index: ScreenIndex, targets: Sequence[TapTarget], text: str
) -> Iterator[Piece]:
    """The next screen, with exactly one of the targets, with none, or with a field for the text."""
    draw = rng.random()
    target = rng.choice(targets)
    named = set[str]().union(*(other.matching_labels for other in targets))
    if text and draw < 0.25:
        yield Show(rng.choice(index.pages_with_fields)[0])
        yield ExpertAction(Type(text))
    elif draw < 0.8 and (match := find_unambiguous_page(rng, index, target.label, named - {target.label})):
        page, label = match
        yield Show(page, label_spot(label))
        yield ExpertAction(Tap(label.tap_point))
    else:
        is_indirect = any(other.is_indirect for other in targets)
        candidates = index.pages_with_cues if is_indirect else range(len(index.pages))
        yield Show(page_without(rng, index, named, candidates))
        yield ExpertAction(SCROLL_FURTHER)

"""Actions and their words: every gold action survives its words, words have one form, nonsense is refused."""

import gzip
import json
import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.helpers.paths import REAL
from uivlm.actions import aitw
from uivlm.actions.action import (
    Action,
    Finish,
    InvalidAction,
    Point,
    Press,
    Swipe,
    Tap,
    Type,
    dual_point,
    is_tap,
)
from uivlm.actions.gesture import PressKey, Touch, TypeText, to_gesture, to_pixel
from uivlm.actions.matching import matches
from uivlm.actions.text import ACTION_TYPES, ActionText, action_type

BINS = (100, 32, 256, 1000)
FIXED = [Press("back"), Press("home"), Press("enter"), Finish("complete"), Finish("impossible")]
NAN, INF = float("nan"), float("inf")
CENTRE = Point(0.5, 0.5)


def survives(language: ActionText, action: Action, words: str | None = None) -> str:
    """Properties (a) and (b) for one action; gives its words."""
    said = language.format(action)
    back = language.parse(said)
    assert not isinstance(back, InvalidAction), (language, action, back)
    assert matches(action, back), (language, action, said)
    assert language.format(back) == said, (language, action, said, back)
    assert action_type(back) == (
        "tap" if isinstance(action, Swipe) and is_tap(action.start, action.end) else action_type(action)
    )
    return said


def spread(rng: random.Random) -> Point:
    """Points anywhere, on the edges, and on the borders of bins."""
    draw = rng.random()
    if draw < 0.15:
        return Point(rng.choice((0.0, 1.0, rng.random())), rng.choice((0.0, 1.0, rng.random())))
    if draw < 0.3:
        return Point(rng.randrange(101) / 100, rng.randrange(1001) / 1000)
    return Point(rng.random(), rng.random())


def random_action(rng: random.Random) -> Action:
    """Mostly hard ones: swipes just longer than a tap, nearly diagonal, along an axis, off the screen."""
    start, draw = spread(rng), rng.random()
    if draw < 0.25:
        return Tap(start)
    length = 0.04 * 20 ** rng.random() if draw < 0.6 else 0.04 + rng.choice((1e-6, 1e-4, 2e-3)) * rng.random()
    turn = rng.choice(
        (rng.uniform(0, 2 * np.pi), np.pi / 4 + rng.randrange(4) * np.pi / 2, rng.randrange(4) * np.pi / 2)
    )
    turn += rng.choice((0.0, 1e-6, -1e-6, 1e-3, -1e-3))
    end = Point(float(start.y + length * np.sin(turn)), float(start.x + length * np.cos(turn)))
    if rng.random() < 0.7:
        end = Point(min(max(end.y, 0.0), 1.0), min(max(end.x, 0.0), 1.0))
    return dual_point(start, end)


def test_the_papers_words() -> None:
    language = ActionText()
    assert language.parse("tap at 7 90") == Tap(Point(0.075, 0.905))
    assert language.parse("swipe from 3 44 to 40 48") == Swipe(Point(0.035, 0.445), Point(0.405, 0.485))
    assert language.parse('Input text "hello world"') == Type("hello world")
    for key in ("back", "home", "enter"):
        assert language.parse(f"press {key}") == Press(key)
    assert language.parse("complete") == Finish("complete")
    assert language.parse("impossible") == Finish("impossible")
    assert language.format(Tap(Point(0.0749, 0.909))) == "tap at 7 90"  # y first
    assert language.format(Swipe(Point(0.03, 0.44), Point(0.4, 0.48))) == "swipe from 3 44 to 40 48"
    assert language.format(Type('say "hi"')) == 'Input text "say \\"hi\\""'
    assert [language.format(action) for action in FIXED] == list(ACTION_TYPES[3:])


@pytest.mark.parametrize("bins", BINS)
def test_random_actions_survive(bins: int) -> None:
    rng, language = random.Random(bins), ActionText(bins)
    kinds = [
        action_type(action)
        for action in (random_action(rng) for _ in range(6000))
        if survives(language, action)
    ]
    assert kinds.count("tap") > 1000
    assert kinds.count("swipe") > 3000


def test_plain_binning_would_fail_here() -> None:
    """The nudge is needed: the random swipes hold hundreds that the nearest bins would lose."""
    rng, lost = random.Random(100), 0
    for _ in range(6000):
        action = random_action(rng)
        if isinstance(action, Swipe):
            cells = [
                (min(max(int(v * 100), 0), 99) + 0.5) / 100
                for p in (action.start, action.end)
                for v in (p.y, p.x)
            ]
            lost += not matches(action, dual_point(Point(*cells[:2]), Point(*cells[2:])))
    assert lost > 300


@pytest.mark.parametrize("bins", [2, 3, 5, 6, 7, 10, 17, 25, 50, 127, 2000])
def test_adversarial_swipes_survive_at_any_bin_count(bins: int) -> None:
    language, rng = ActionText(bins), random.Random(bins)
    edges = (0.0, 1.0, 0.5, 1e-9, 1 - 1e-9, 0.999)
    points = [Point(y, x) for y in edges for x in edges]
    far = [Point(-5.0, 9.0), Point(1.2, 0.5), Point(0.3, -0.2), Point(3.0, 3.0), Point(1e6, -1e6)]
    for _ in range(300):
        start, end = rng.choice(points + far), rng.choice(points + far)
        if not is_tap(start, end):
            survives(language, Swipe(start, end))
    for y in edges:
        for way in (0.0401, 0.05, -0.0401, 0.3):
            survives(language, Swipe(Point(y, 0.5), Point(y + way, 0.5 + way)))  # a tie: y
            survives(language, Swipe(Point(y, 0.5), Point(y + way * 0.999, 0.5 + way)))  # nearly one: x
            survives(language, Swipe(Point(0.5, y), Point(0.5, y + way)))


def test_swipes_that_were_four_bins_long() -> None:
    """At 100 bins an axis-aligned swipe of 4 bins is 0.04 long: some starts decode to a tap, none fails."""
    language = ActionText()
    shorter = [language.parse(f"swipe from {y} 50 to {y + 4} 50") for y in range(96)]
    assert sum(isinstance(action, InvalidAction) for action in shorter) == 49
    for y in range(96):
        survives(language, Swipe(Point(y / 100 + 0.0049, 0.5), Point(y / 100 + 0.0451, 0.5)))


def test_the_nudge_is_small_and_keeps_the_direction() -> None:
    rng, language, moved = random.Random(1), ActionText(), []
    for _ in range(4000):
        action = random_action(rng)
        back = language.parse(language.format(action))
        if isinstance(action, Swipe) and all(
            0 <= v <= 1 for p in (action.start, action.end) for v in (p.y, p.x)
        ):
            assert isinstance(back, Swipe)
            axis = aitw.main_axis(action.start, action.end)
            gold, got = [((s.end.y - s.start.y), (s.end.x - s.start.x))[axis] for s in (action, back)]
            assert (gold > 0) == (got > 0), (action, back)
            ends = ((action.start, back.start), (action.end, back.end))
            moved.append(max(abs(a - b) for p, q in ends for a, b in ((p.y, q.y), (p.x, q.x))))
    assert max(moved) <= 0.0251  # half a bin, and at most two bins more
    assert np.quantile(moved, 0.99) <= 0.0151  # nearly always at most one


def test_taps_off_the_screen() -> None:
    language = ActionText()
    assert survives(language, Tap(Point(-0.05, 1.05))) == "tap at 0 99"
    for point in (Point(-1.0, -1.0), Point(0.5, 1.2), Point(1e30, 0.5)):
        with pytest.raises(ValueError, match="Leave its step out"):
            language.format(Tap(point))
    for value in (NAN, INF, -INF):
        for action in (
            Tap(Point(value, 0.5)),
            Swipe(Point(0.5, value), CENTRE),
            Swipe(CENTRE, Point(0.1, value)),
        ):
            with pytest.raises(ValueError, match="not near any screen"):
                language.format(action)


def test_a_swipe_that_is_a_tap_is_said_as_one() -> None:
    language = ActionText()
    assert survives(language, Swipe(CENTRE, Point(0.53, 0.5))) == "tap at 50 50"
    assert isinstance(language.parse("swipe from 5 5 to 5 5"), InvalidAction)


@pytest.mark.parametrize("bins", [100, 1000])
def test_every_bin_returns_to_itself(bins: int) -> None:
    language = ActionText(bins)
    for b in range(bins):
        words = f"tap at {b} {bins - 1 - b}"
        action = language.parse(words)
        assert isinstance(action, Tap)
        assert language.format(action) == words
        assert int(action.at.y * bins) == b


@pytest.mark.parametrize("bins", [1, 0, -5, 10_001])
def test_impossible_bin_counts(bins: int) -> None:
    with pytest.raises(ValueError, match=f"num_bins: got {bins};"):
        ActionText(bins)


def recorded() -> Iterator[tuple[dict, Action]]:
    files = (REAL / "episodes.jsonl", REAL / "androidcontrol_actions.jsonl.gz")
    if not all(file.exists() for file in files):
        pytest.skip(
            f"no recorded actions: there is no folder {REAL.parent.name}/{REAL.name} beside the checkout"
        )
    for file in files:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            for row in map(json.loads, lines):
                touch, lift = row["results/yx_touch"], row["results/yx_lift"]
                if row["results/action_type"] is not None:
                    text = row["results/type_action"] or ""
                    yield row, aitw.from_aitw(row["results/action_type"], touch, lift, text)


def test_recorded_actions_survive() -> None:
    """All that have words; gestures whose place was not recorded, [-1, -1], have none."""
    languages, spoken, placeless = [ActionText(bins) for bins in BINS], 0, 0
    for row, action in recorded():
        if action == Tap(Point(-1.0, -1.0)):
            placeless += 1
            with pytest.raises(ValueError, match="off the screen"):
                languages[0].format(action)
            continue
        spoken += 1
        for language in languages:
            back = language.parse(survives(language, action))
            assert matches(action, back, row.get("image/ui_annotations_positions") or [])
    print(f"\n{spoken} recorded actions survive, {placeless} have no place")
    assert spoken > 2500


@pytest.mark.parametrize(
    "action", [Tap(CENTRE), Swipe(CENTRE, Point(0.1, 0.2)), Type("a"), *FIXED], ids=action_type
)
def test_aitw_fields_and_back(action: Action) -> None:
    number, touch, lift, text = aitw.to_aitw(action)
    assert aitw.from_aitw(number, touch, lift, text) == action
    if number != aitw.DUAL_POINT:
        assert touch == lift == (-1.0, -1.0)


def test_aitw_numbers() -> None:
    numbers = [aitw.to_aitw(a)[0] for a in (Type(""), Tap(CENTRE), Swipe(CENTRE, Point(0, 0)), *FIXED)]
    assert numbers == [3, 4, 4, 5, 6, 7, 10, 11]
    assert sorted(aitw.ACTION_TYPE_IDS.values()) == [3, 4, 5, 6, 7, 10, 11]
    assert aitw.from_aitw(4, np.float32([0.5, 0.25]), np.float32([0.5, 0.28]), "") == Tap(Point(0.5, 0.25))
    for number in (0, 1, 2, 8, 9, 12, -4, None, "4"):
        with pytest.raises(ValueError, match="expected one of AITW's"):
            aitw.from_aitw(number, (0.5, 0.5), (0.5, 0.5), "")
    with pytest.raises(ValueError, match="3 numbers"):
        aitw.from_aitw(4, (0.5, 0.5, 0.5), (0.5, 0.5), "")


def test_tap_and_swipe_at_the_threshold() -> None:
    assert not is_tap(Point(0.50, 0.5), Point(0.54, 0.5))  # 0.04 rounds up here in float32
    assert is_tap(Point(0.10, 0.5), Point(0.14, 0.5))  # and down here
    assert is_tap(Point(0.5, 0.5), Point(0.528, 0.528))
    assert not is_tap(Point(0.5, 0.5), Point(0.529, 0.529))


def test_gestures_in_pixels() -> None:
    assert to_gesture(Tap(Point(0.5, 0.25)), 600, 270) == Touch(((67, 300),), 60)
    swipe = to_gesture(Swipe(Point(0.8, 0.5), Point(0.2, 0.5)), 1000, 500)
    assert swipe == Touch(((250, 800), (250, 200)), 500)
    assert to_gesture(Type("a"), 10, 10) == TypeText("a")
    assert to_gesture(Press("home"), 10, 10) == PressKey("home")
    assert to_gesture(Finish("complete"), 10, 10) is None


def test_gestures_stay_on_the_screen() -> None:
    for value in (-1e300, -1.0, -1e-9, 0.0, 0.5, 1.0, 1.0001, 7.0, 1e300):
        for height, width in ((1, 1), (600, 270), (2400, 1080)):
            x, y = to_pixel(Point(value, value), height, width)
            assert 0 <= x < width
            assert 0 <= y < height
    assert to_pixel(Point(1.0, 0.0), 600, 270) == (0, 599)
    for value in (NAN, INF, -INF):
        with pytest.raises(ValueError, match="finite"):
            to_pixel(Point(0.5, value), 600, 270)
    with pytest.raises(ValueError, match="expected at least 1 x 1"):
        to_pixel(CENTRE, 0, 270)


def test_words_decode_to_the_same_pixels_on_any_screen() -> None:
    language = ActionText()
    for height, width in ((600, 270), (1080, 540), (2400, 1080)):
        for y, x in ((0, 0), (99, 99), (50, 7)):
            action = language.parse(f"tap at {y} {x}")
            assert to_gesture(action, height, width).points == (
                (int((x + 0.5) * width / 100), int((y + 0.5) * height / 100)),
            )

"""Tasks of the simulated phone and their expert: deterministic, solvable, split without leaks."""

import json
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from uivlm.actions.action import Finish, Press, Swipe, Tap, Type
from uivlm.actions.gesture import to_gesture
from uivlm.devices.sim import goals, labels
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.goals import GOAL_TEMPLATES
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.tasks import is_successful, make_task, new_phone

LEXICON = frozenset(labels.lexicon())
SPLITS = ("train", "test")
SEEDS = range(40)


@cache
def solve(split, seed):
    task = make_task(seed, split)
    return task, record_demonstration(task)


def solved_tasks():
    return [solve(split, seed) for split in SPLITS for seed in SEEDS]


def replay(task, episode):
    """The phone after the gestures of the episode; its screens must equal the recorded ones."""
    phone = new_phone(task)
    for step in episode.steps:
        assert np.array_equal(phone.screen().pixels, step.screen.pixels)
        gesture = to_gesture(step.action, phone.height, phone.width)
        if gesture is not None:
            phone.perform(gesture)
    return phone


# -- screens -------------------------------------------------------------------------------------------------


def test_a_phone_draws_only_words_of_the_lexicon_and_cuts_none():
    for task, episode in solved_tasks():
        typed = {word for s in episode.steps if isinstance(s.action, Type) for word in s.action.text.split()}
        for step in episode.steps:
            shown = {word.rstrip("?") for e in step.screen.elements for word in e.text.split()}
            assert shown <= LEXICON | typed, task


def test_same_seed_and_gestures_give_the_same_pixels_another_seed_others():
    _, episode = solve("train", 3)
    again = record_demonstration(make_task(3, "train"))
    assert [s.action for s in again.steps] == [s.action for s in episode.steps]
    assert all(
        np.array_equal(a.screen.pixels, b.screen.pixels) and a.screen.elements == b.screen.elements
        for a, b in zip(again.steps, episode.steps, strict=True)
    )
    shown = {SimPhone(layout).screen().pixels.tobytes() for layout in range(30)}
    assert len(shown) == 30
    assert {(p.width, p.height) for p in map(SimPhone, range(60))} == {
        (270, 540), (270, 600), (288, 576), (300, 600), (324, 648)
    }  # fmt: skip


def test_screens_are_rgb_of_the_phone_size_with_boxes_inside():
    for _, episode in solved_tasks():
        for step in episode.steps:
            pixels = step.screen.pixels
            assert pixels.dtype == np.uint8
            assert pixels.shape[2] == 3
            for e in step.screen.elements:
                assert 0 <= e.y <= e.y + e.height <= 1 + 1e-9
                assert 0 <= e.x <= e.x + e.width <= 1 + 1e-9


# -- tasks and the expert ------------------------------------------------------------------------------------


def test_the_expert_solves_every_task():
    for task, episode in solved_tasks():
        assert episode.goal == task.goal
        assert episode.id.isdecimal()
        assert episode.steps[-1].action == Finish(task.expected_status)
        assert not any(isinstance(step.action, Finish) for step in episode.steps[:-1])
        assert 2 <= len(episode.steps) <= 13
        assert is_successful(task, replay(task, episode)), task
    assert len({episode.id for _, episode in solved_tasks()}) == len(solved_tasks())
    assert 4 < np.mean([len(episode.steps) for _, episode in solved_tasks()]) < 7


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_is_solved_in_both_splits(split):
    found = defaultdict(list)
    for seed in range(10_000):
        task = make_task(seed, split)
        if len(found[task.template_name]) < 3:
            found[task.template_name].append(task)
        if len(found) == len(GOAL_TEMPLATES) and all(len(tasks) == 3 for tasks in found.values()):
            break
    assert set(found) == set(GOAL_TEMPLATES)
    for tasks in found.values():
        for task in tasks:
            assert is_successful(task, replay(task, record_demonstration(task))), task


def test_doing_nothing_or_the_wrong_thing_is_no_success():
    untouched = Counter()
    for task, _ in solved_tasks():
        if task.expected_status == "complete":
            untouched[is_successful(task, new_phone(task))] += 1
        phone = new_phone(task)  # an extra alarm spoils any goal
        for step in record_demonstration(task).steps[:-1]:
            phone.perform(to_gesture(step.action, phone.height, phone.width))
        phone.world.alarms["spoilt"] = True
        assert not is_successful(task, phone)
    assert untouched[True] <= 0.04 * untouched[False]  # switches that stand right from the start


def test_actions_hit_their_targets_and_keep_their_class():
    directions = Counter()
    for task, episode in solved_tasks():
        phone = new_phone(task)
        for step in episode.steps:
            match step.action:
                case Tap(at):
                    assert any(t.box.contains(at.y, at.x) for t in phone.view.targets), task
                case Swipe(start, end):
                    dy, dx = end.y - start.y, end.x - start.x
                    assert all(0 < part < 1 for part in (start.y, start.x, end.y, end.x))
                    assert min(abs(dy), abs(dx)) < 0.1 < 0.3 < max(abs(dy), abs(dx))
                    vertical = abs(dy) > abs(dx)
                    directions[
                        ("up" if dy < 0 else "down") if vertical else ("left" if dx < 0 else "right")
                    ] += 1
                case Type():
                    assert phone.state.current.focus
            done = to_gesture(step.action, phone.height, phone.width)
            if done is not None:
                before = phone.screen().pixels
                phone.perform(done)
                assert not np.array_equal(before, phone.screen().pixels), (
                    task,
                    step.action,
                )  # nothing is in vain
    assert set(directions) == {"up", "down", "left", "right"}
    assert min(directions.values()) >= 4


def test_all_kinds_of_actions_occur():
    actions = [step.action for _, episode in solved_tasks() for step in episode.steps]
    keys = {action.key for action in actions if isinstance(action, Press)}
    assert keys == {"back", "home", "enter"}
    assert {action.status for action in actions if isinstance(action, Finish)} == {"complete", "impossible"}


def test_typed_text_was_in_the_goal_or_on_a_past_screen():
    for task, episode in solved_tasks():
        seen = [task.goal]
        for step in episode.steps:
            if isinstance(step.action, Type):
                assert any(step.action.text in text for text in seen), task
            seen += [element.text for element in step.screen.elements]


def test_memory_goals_need_a_screen_that_is_gone():
    checked = Counter()
    for seed in range(900):
        task = make_task(seed, "train")
        if not task.needs_memory or checked[task.template_name] >= 3:
            continue
        assert task.secret not in task.goal
        used = False
        read = False
        for step in record_demonstration(task).steps:
            texts = [element.text for element in step.screen.elements]
            source = [text for text in texts if task.secret in text and text != task.secret]  # "Ask Anna"
            if isinstance(step.action, Type) and step.action.text == task.secret:
                assert read
                assert not any(task.secret in text for text in texts)  # only memory has it
                used = True
            elif (
                isinstance(step.action, Tap)
                and read
                and task.secret in texts
                and "note" in task.template_name
            ):
                assert not source  # among many names, nothing here says which
                used = True
            read = read or bool(source) or task.secret in texts
        assert used or task.template_name in ("note setting", "note app"), task
        checked[task.template_name] += 1
    assert set(checked) == {name for name, kind in GOAL_TEMPLATES.items() if kind.needs_memory}
    share = np.mean([make_task(seed, "train").needs_memory for seed in range(2000)])
    assert 0.19 < share < 0.28


def test_splits_share_no_goal_and_no_layout_but_all_words():
    train = [make_task(seed, "train") for seed in range(3000)]
    test = [make_task(seed, "test") for seed in range(1000)]
    assert not {task.goal_key for task in train} & {task.goal_key for task in test}
    assert not {task.goal for task in train} & {task.goal for task in test}
    assert not {task.layout for task in train} & {task.layout for task in test}
    ours, theirs = ({word.strip(",:?") for task in of for word in task.goal.split()} for of in (train, test))
    words_of = {
        word
        for kind in GOAL_TEMPLATES
        for v in goals.parameters_in_split(kind, "train")
        for p in v
        for word in p.split()
    }
    assert theirs <= ours | words_of  # 3,000 draws need not meet every time of the day
    assert len({task.goal_key for task in train}) > 500
    for name in GOAL_TEMPLATES:
        known, held = (
            set(goals.parameters_in_split(name, "train")),
            set(goals.parameters_in_split(name, "test")),
        )
        assert known
        assert held
        assert not known & held
        assert {word for values in held for part in values for word in part.split()} <= words_of
    mix = Counter(task.template_name for task in train)
    assert min(mix.values()) > 3000 / len(GOAL_TEMPLATES) / 3
    assert all(5 <= len(kind.wordings) <= 8 for kind in GOAL_TEMPLATES.values())


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split: got 'validation'"):
        make_task(0, "validation")


# -- the shards ----------------------------------------------------------------------------------------------


def test_simulate_writes_what_aitw_readers_read(tmp_path):
    from data_prep.formats.aitw import parse_record
    from data_prep.simulate import simulate
    from data_prep.tfrecord import read_records

    out = tmp_path / "made"
    simulate(out, 4, 2, 1, 1)
    split = json.loads((out / "split.json").read_text())
    assert (len(split["train"]), len(split["test"])) == (4, 2)
    shards = sorted((out / "simulated").iterdir())
    assert [shard.name for shard in shards] == ["simulated-00000-of-00001"]
    records = [parse_record(data) for data in read_records(shards[0])]
    episode = record_demonstration(make_task(1_000_000, "train"))
    ours = [r for r in records if r.episode_id == episode.id]
    assert {r.episode_id for r in records} == {*split["train"], *split["test"]}
    assert len(ours) == len(episode.steps) == ours[0].episode_length
    for got, step in zip(ours, episode.steps, strict=True):
        assert got.goal == episode.goal
        assert np.array_equal(got.pixels, step.screen.pixels)
        assert got.annotations.texts == [e.text for e in step.screen.elements]
        assert type(got.action) is type(step.action)
        _, touch, _, _ = got.aitw
        if isinstance(step.action, Tap):
            assert touch == pytest.approx((step.action.at.y, step.action.at.x), abs=1e-6)
        elif not isinstance(step.action, Swipe):
            assert got.action == step.action
            assert touch == (-1, -1)

    again = tmp_path / "again"
    simulate(again, 4, 2, 1, 2)
    assert (again / "simulated" / shards[0].name).read_bytes() == shards[0].read_bytes()
    assert not list(tmp_path.glob(".*"))

    for arguments, message in (
        ((out, 4, 2, 1, 1), "not an empty folder"),
        ((tmp_path / "x", 0, 2, 1, 1), "episodes: got 0"),
        ((tmp_path / "x", 4, 2, 1, 0), "workers: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate(*arguments)
    assert not (tmp_path / "x").exists()

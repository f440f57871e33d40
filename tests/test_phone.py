"""The simulated phone, its tasks and its expert: deterministic, within its words, solvable, split without leaks."""

import json
from collections import Counter, defaultdict
from functools import cache
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from uivlm.actions.action import Finish, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Button, Keys, Touch, gesture
from uivlm.devices.sim import goals, words
from uivlm.devices.sim.apps.shop import results
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.goals import KINDS
from uivlm.devices.sim.phone import APPS, Phone
from uivlm.devices.sim.tasks import new_phone, succeeded, task
from uivlm.devices.sim.world import Line, Place, make_world

LEXICON = frozenset(words.lexicon())
SPLITS = ("train", "test")
SEEDS = range(40)


@cache
def solved(split, seed):
    one = task(seed, split)
    return one, record(one)


def every():
    return [solved(split, seed) for split in SPLITS for seed in SEEDS]


def replayed(one, episode):
    """The phone after the episode's gestures; each screen must be the recorded one."""
    phone = new_phone(one)
    for step in episode.steps:
        assert np.array_equal(phone.screen().pixels, step.screen.pixels)
        done = gesture(step.action, phone.height, phone.width)
        if done is not None:
            phone.perform(done)
    return phone


def tap(phone, name):
    box = phone.find(name)
    assert box is not None, f"{name} is not on the screen"
    x, y = int((box.x + box.width / 2) * phone.width), int((box.y + box.height / 2) * phone.height)
    phone.perform(Touch(((x, y),), 60))


def drag(phone, dy, dx=0.0):
    x, y = phone.width // 2, phone.height // 2
    end = (int(x + dx * phone.width), int(y + dy * phone.height))
    phone.perform(Touch(((x, y), end), 500))


def lines(phone):
    return [element.text for element in phone.screen().elements]


def fresh(*places, layout=5, **changes):
    """A phone of a layout, inside some places, without notices."""
    world = make_world(layout)
    world.notice, world.inside = None, places
    for name, value in changes.items():
        setattr(world, name, value)
    return Phone(world=world)


# -- the words ------------------------------------------------------------------------------------------------


def test_lexicon_is_small_and_distinct():
    assert 400 <= len(LEXICON) <= 550
    assert len(words.lexicon()) == len(LEXICON)
    assert all(word.split() == [word] and len(word) <= 10 for word in LEXICON)
    assert {f"{hour}:{quarter}" for hour in range(24) for quarter in ("00", "15", "30", "45")} <= LEXICON


def test_a_phone_draws_only_words_of_the_lexicon_and_cuts_none():
    for one, episode in every():
        typed = {word for s in episode.steps if isinstance(s.action, Type) for word in s.action.text.split()}
        for step in episode.steps:
            shown = {word.rstrip("?") for e in step.screen.elements for word in e.text.split()}
            assert shown <= LEXICON | typed, one


@pytest.mark.parametrize("layout", range(4))
def test_every_page_of_every_app_keeps_to_the_lexicon(layout):
    world = make_world(layout)
    places = [Place(app) for app in (*APPS, *words.STUBS)]
    places += [Place("Settings", item=name) for name in words.SETTINGS]
    places += [Place("Shop", "item", item) for item in words.ITEMS] + [Place("Shop", "results", "red tent")]
    places += [Place("Shop", page) for page in ("store", "cart", "checkout", "bought")]
    places += [Place("Browser", "web", site) for site in words.SITES.values()] + [Place("Browser", "saved")]
    places += [Place("Contacts", item=name) for name in world.contacts] + [Place("Contacts", "new")]
    places += [Place("Notes", item=name) for name in world.notes] + [
        Place("Notes", "new"),
        Place("Clock", "new"),
    ]
    places += [Place("Clock", tab) for tab in ("alarms", "timer")]
    for place in places:
        phone = fresh(place, layout=layout)
        assert {word for text in lines(phone) for word in text.split()} <= LEXICON, place
    for i, (asked, buttons, expected) in enumerate(words.NOTICES):
        phone = fresh(layout=layout, notice=(i, 1))
        phone.state.open_app("Shop")
        assert {*asked, *buttons} <= set(lines(phone))
        tap(phone, f"dialog:{expected}")
        assert phone.state.dialog is None


# -- the device -----------------------------------------------------------------------------------------------


def test_same_seed_and_gestures_give_the_same_pixels_another_seed_others():
    _, episode = solved("train", 3)
    again = record(task(3, "train"))
    assert [s.action for s in again.steps] == [s.action for s in episode.steps]
    assert all(
        np.array_equal(a.screen.pixels, b.screen.pixels) and a.screen.elements == b.screen.elements
        for a, b in zip(again.steps, episode.steps, strict=True)
    )
    shown = {Phone(layout).screen().pixels.tobytes() for layout in range(30)}
    assert len(shown) == 30
    assert {(p.width, p.height) for p in map(Phone, range(60))} == {
        (270, 540), (270, 600), (288, 576), (300, 600), (324, 648)
    }  # fmt: skip


def test_screens_are_rgb_of_the_phone_size_with_boxes_inside():
    for _, episode in every():
        for step in episode.steps:
            pixels = step.screen.pixels
            assert pixels.dtype == np.uint8
            assert pixels.shape[2] == 3
            for e in step.screen.elements:
                assert 0 <= e.y <= e.y + e.height <= 1 + 1e-9
                assert 0 <= e.x <= e.x + e.width <= 1 + 1e-9


def test_typing_needs_focus_and_enter_searches():
    phone = fresh(Place("Shop", "store"), stock=["Red Tent", "Red Mug", "Blue Vase"])
    phone.perform(Keys("Red Tent"))
    phone.perform(Button("enter"))
    assert phone.state.place.page == "store"
    assert phone.state.place.fields == {}
    tap(phone, "field:search")
    phone.perform(Keys("Red "))
    phone.perform(Keys("Tent"))
    assert "Red Tent" in lines(phone)
    phone.perform(Button("enter"))
    assert [t.name for t in phone.view.targets if t.name.startswith("row:")] == [
        "row:Red Tent",
        "row:Red Mug",
    ]
    assert results(["Red Tent", "Blue Vase"], "tent") == ["Red Tent"]
    stock = ["Blue Mug", "Red Mug", "Blue Tent", "Red Vase"]
    assert results(stock, "Blue Tent") == ["Blue Tent", "Blue Mug"]  # the best first, else as in stock


def test_lists_scroll_by_whole_rows_and_stop_at_their_ends():
    phone = fresh(Place("Contacts"), contacts=dict.fromkeys(words.CONTACTS, "12 18"))
    assert "End" not in lines(phone)
    drag(phone, -5 / 16)
    assert phone.view.top == 5
    drag(phone, 3 / 16)
    assert phone.view.top == 2
    for _ in range(12):
        drag(phone, -0.4)
    assert phone.view.top == phone.view.limit > 0
    assert "End" in lines(phone)
    assert words.CONTACTS[-1] in lines(phone)
    for _ in range(12):
        drag(phone, 0.4)
    assert phone.view.top == 0


def test_a_swipe_goes_along_its_longer_way():
    phone = fresh()
    drag(phone, -0.2, 0.1)
    assert phone.state.place.app == "Drawer"
    drag(phone, 0.2)
    assert phone.state.place.app == "Launcher"
    drag(phone, 0.2)
    assert phone.state.place.app == "Quick"
    phone.perform(Button("home"))
    drag(phone, 0.1, -0.3)
    assert phone.state.place == Place("Launcher", item="1")
    drag(phone, 0.1, 0.3)
    assert phone.state.place == Place("Launcher", item="0")
    drag(phone, 0.0, 0.3)
    assert phone.state.place == Place("Launcher", item="0")  # there is no page before the first


def test_back_and_home_and_the_navigation_bar():
    phone = fresh(Place("Settings"), Place("Settings", item="Sound"))
    phone.perform(Button("back"))
    assert phone.state.place == Place("Settings")
    tap(phone, "nav:back")
    assert phone.state.place.app == "Launcher"
    phone.perform(Button("back"))
    assert phone.state.place.app == "Launcher"
    phone = fresh(Place("Settings"), Place("Settings", item="Sound"))
    tap(phone, "arrow")
    assert phone.state.place == Place("Settings")
    tap(phone, "nav:home")
    assert len(phone.state.stack) == 1


def test_a_dialog_blocks_what_lies_under_it():
    phone = fresh(notice=(0, 1))
    phone.state.open_app("Settings")
    phone.perform(Keys("x"))
    drag(phone, -0.4)
    phone.perform(Touch(((phone.width // 2, phone.height // 5),), 60))
    assert phone.state.dialog is not None
    assert phone.state.place == Place("Settings")
    phone.perform(Button("back"))
    assert phone.state.dialog is None
    assert phone.state.place == Place("Settings")


def test_a_sent_message_is_shown_and_kept():
    phone = fresh(threads={"Anna": [Line("hello", False)] * 30})
    phone.state.go("Messages", item="Anna", scroll=1 << 20)
    tap(phone, "field:message")
    phone.perform(Keys("see you soon"))
    tap(phone, "button:send")
    assert phone.world.threads["Anna"][-1] == Line("see you soon", True)
    assert "see you soon" in lines(phone)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\n",
        "a" * 50_000,
        "\ud800",
        "\x00\x07",
        "日本語 🎉",
        "'; rm -rf",
        "%s{}",
        "\u202e\u0301",
        "…",
    ],
    ids=ascii,
)
def test_hostile_text_never_raises(text):
    forms = [
        (Place("Notes", "new"), ("title", "text"), "save"), (Place("Contacts", "new"), ("name", "number"), "save"),
        (Place("Clock", "new"), ("time",), "save"), (Place("Shop", "store"), ("search",), ""),
        (Place("Browser", "web"), ("address",), ""), (Place("Drawer"), ("search",), ""),
        (Place("Messages", item="Anna"), ("message",), "send"),
    ]  # fmt: skip
    for place, fields, button in forms:
        phone = fresh(place, threads={"Anna": []})
        for name in fields:
            tap(phone, f"field:{name}")
            phone.perform(Keys(text))
            phone.screen()
        if button:
            tap(phone, f"button:{button}")
        phone.screen()
        phone.perform(Button("enter"))
        phone.screen()
        for target in [t.name for t in phone.view.targets if t.name.startswith("row:")][:1]:
            tap(phone, target)
            phone.screen()


def test_a_monkey_never_breaks_it():
    rng = Random(7)
    seen = set()
    for layout in range(7):
        phone = Phone(layout)
        for _ in range(300):
            here = (rng.randint(-9, phone.width + 9), rng.randint(-9, phone.height + 9))
            there = (rng.randint(0, phone.width), rng.randint(0, phone.height))
            wild = rng.random()
            if wild < 0.7:
                targets = phone.view.targets
                if targets and rng.random() < 0.7:
                    box = rng.choice(targets).box
                    here = (int((box.x + box.width / 2) * phone.width), int((box.y + 0.03) * phone.height))
                phone.perform(Touch((here,), 60))
            elif wild < 0.85:
                phone.perform(Touch((here, there), 500))
            elif wild < 0.95:
                phone.perform(Keys(rng.choice(("Red Mug", "7:30", "Anna", "zoo.net", "ü\n"))))
            else:
                phone.perform(Button(rng.choice(("back", "home", "enter", "enter"))))
            assert phone.screen().pixels.shape == (phone.height, phone.width, 3)
            seen.add((phone.state.place.app, phone.state.place.page))
    assert len(seen) > 20  # it did get around


# -- tasks and the expert -------------------------------------------------------------------------------------


def test_the_expert_solves_every_task():
    for one, episode in every():
        assert episode.goal == one.goal
        assert episode.id.isdecimal()
        assert episode.steps[-1].action == Finish(one.status)
        assert not any(isinstance(step.action, Finish) for step in episode.steps[:-1])
        assert 2 <= len(episode.steps) <= 13
        assert succeeded(one, replayed(one, episode)), one
    assert len({episode.id for _, episode in every()}) == len(every())
    assert 4 < np.mean([len(episode.steps) for _, episode in every()]) < 7


@pytest.mark.parametrize("split", SPLITS)
def test_every_kind_is_solved_in_both_splits(split):
    found = defaultdict(list)
    for seed in range(10_000):
        one = task(seed, split)
        if len(found[one.kind]) < 3:
            found[one.kind].append(one)
        if len(found) == len(KINDS) and all(len(tasks) == 3 for tasks in found.values()):
            break
    assert set(found) == set(KINDS)
    for tasks in found.values():
        for one in tasks:
            assert succeeded(one, replayed(one, record(one))), one


def test_doing_nothing_or_the_wrong_thing_is_no_success():
    untouched = Counter()
    for one, _ in every():
        if one.status == "complete":
            untouched[succeeded(one, new_phone(one))] += 1
        phone = new_phone(one)  # an extra alarm spoils any goal
        for step in record(one).steps[:-1]:
            phone.perform(gesture(step.action, phone.height, phone.width))
        phone.world.alarms["spoilt"] = True
        assert not succeeded(one, phone)
    assert untouched[True] <= 0.04 * untouched[False]  # switches that stand right from the start


def test_actions_hit_their_targets_and_keep_their_class():
    directions = Counter()
    for one, episode in every():
        phone = new_phone(one)
        for step in episode.steps:
            match step.action:
                case Tap(at):
                    assert any(t.box.holds(at.y, at.x) for t in phone.view.targets), one
                case Swipe(start, end):
                    dy, dx = end.y - start.y, end.x - start.x
                    assert all(0 < part < 1 for part in (start.y, start.x, end.y, end.x))
                    assert min(abs(dy), abs(dx)) < 0.1 < 0.3 < max(abs(dy), abs(dx))
                    vertical = abs(dy) > abs(dx)
                    directions[
                        ("up" if dy < 0 else "down") if vertical else ("left" if dx < 0 else "right")
                    ] += 1
                case Type():
                    assert phone.state.place.focus
            done = gesture(step.action, phone.height, phone.width)
            if done is not None:
                before = phone.screen().pixels
                phone.perform(done)
                assert not np.array_equal(before, phone.screen().pixels), (
                    one,
                    step.action,
                )  # nothing is in vain
    assert set(directions) == {"up", "down", "left", "right"}
    assert min(directions.values()) >= 4


def test_all_kinds_of_actions_occur():
    actions = [step.action for _, episode in every() for step in episode.steps]
    keys = {action.key for action in actions if isinstance(action, Press)}
    assert keys == {"back", "home", "enter"}
    assert {action.status for action in actions if isinstance(action, Finish)} == {"complete", "impossible"}


def test_typed_text_was_in_the_goal_or_on_a_past_screen():
    for one, episode in every():
        seen = [one.goal]
        for step in episode.steps:
            if isinstance(step.action, Type):
                assert any(step.action.text in text for text in seen), one
            seen += [element.text for element in step.screen.elements]


def test_memory_goals_need_a_screen_that_is_gone():
    checked = Counter()
    for seed in range(900):
        one = task(seed, "train")
        if not one.needs_memory or checked[one.kind] >= 3:
            continue
        assert one.secret not in one.goal
        used = False
        read = False
        for step in record(one).steps:
            texts = [element.text for element in step.screen.elements]
            source = [text for text in texts if one.secret in text and text != one.secret]  # "Ask Anna"
            if isinstance(step.action, Type) and step.action.text == one.secret:
                assert read
                assert not any(one.secret in text for text in texts)  # only memory has it
                used = True
            elif isinstance(step.action, Tap) and read and one.secret in texts and "note" in one.kind:
                assert not source  # among many names, nothing here says which
                used = True
            read = read or bool(source) or one.secret in texts
        assert used or one.kind in ("note setting", "note app"), one
        checked[one.kind] += 1
    assert set(checked) == {name for name, kind in KINDS.items() if kind.memory}
    share = np.mean([task(seed, "train").needs_memory for seed in range(2000)])
    assert 0.19 < share < 0.28


def test_splits_share_no_goal_and_no_layout_but_all_words():
    train = [task(seed, "train") for seed in range(3000)]
    test = [task(seed, "test") for seed in range(1000)]
    assert not {one.key for one in train} & {one.key for one in test}
    assert not {one.goal for one in train} & {one.goal for one in test}
    assert not {one.layout for one in train} & {one.layout for one in test}
    ours, theirs = ({word.strip(",:?") for one in of for word in one.goal.split()} for of in (train, test))
    words_of = {word for kind in KINDS for v in goals.choices(kind, "train") for p in v for word in p.split()}
    assert theirs <= ours | words_of  # 3,000 draws need not meet every time of the day
    assert len({one.key for one in train}) > 500
    for name in KINDS:
        known, held = set(goals.choices(name, "train")), set(goals.choices(name, "test"))
        assert known
        assert held
        assert not known & held
        assert {word for values in held for part in values for word in part.split()} <= words_of
    mix = Counter(one.kind for one in train)
    assert min(mix.values()) > 3000 / len(KINDS) / 3
    assert all(5 <= len(kind.wordings) <= 8 for kind in KINDS.values())


def test_a_split_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no split 'validation'"):
        task(0, "validation")


# -- the shards -----------------------------------------------------------------------------------------------


def test_simulate_writes_what_aitw_readers_read(tmp_path):
    import typer

    from data_prep.aitw import parse_record
    from data_prep.simulate import main, simulate
    from data_prep.tfrecord import read_records

    out = tmp_path / "made"
    simulate(out, 4, 2, 1, 1)
    split = json.loads((out / "split.json").read_text())
    assert (len(split["train"]), len(split["test"])) == (4, 2)
    shards = sorted((out / "simulated").iterdir())
    assert [shard.name for shard in shards] == ["simulated-00000-of-00001"]
    records = [parse_record(data) for data in read_records(shards[0])]
    episode = record(task(1_000_000, "train"))
    ours = [r for r in records if r.episode_id == episode.id]
    assert {r.episode_id for r in records} == {*split["train"], *split["test"]}
    assert len(ours) == len(episode.steps) == ours[0].episode_length
    for got, step in zip(ours, episode.steps, strict=True):
        assert got.goal == episode.goal
        assert np.array_equal(got.pixels, step.screen.pixels)
        assert got.annotations.texts == [e.text for e in step.screen.elements]
        assert type(got.action) is type(step.action)
        if isinstance(step.action, Tap):
            assert got.touch == pytest.approx((step.action.at.y, step.action.at.x), abs=1e-6)
        elif not isinstance(step.action, Swipe):
            assert got.action == step.action
            assert got.touch == (-1, -1)

    again = tmp_path / "again"
    simulate(again, 4, 2, 1, 2)
    assert (again / "simulated" / shards[0].name).read_bytes() == shards[0].read_bytes()
    assert not list(tmp_path.glob(".*"))

    app = typer.Typer()
    app.command()(main)
    for arguments, said in (
        ([str(out)], "not an empty folder"),
        ([str(tmp_path / "x"), "--episodes", "0"], "--episodes is 0"),
        ([str(tmp_path / "x"), "--workers", "0"], "--workers is 0"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert said in result.output
    assert not (tmp_path / "x").exists()

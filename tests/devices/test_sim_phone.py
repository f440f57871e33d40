"""The simulated phone: its lexicon, gestures, lists, dialogs and hostile input."""

from random import Random

import pytest

from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.devices.sim import labels
from uivlm.devices.sim.apps.shop import search_results
from uivlm.devices.sim.phone import APPS, SimPhone
from uivlm.devices.sim.world import ChatMessage, NavigationEntry, make_world

LEXICON = frozenset(labels.lexicon())


def tap(phone, name):
    box = phone.find_target(name)
    assert box is not None, f"{name} is not on the screen"
    x, y = int((box.x + box.width / 2) * phone.width), int((box.y + box.height / 2) * phone.height)
    phone.perform(Touch(((x, y),), 60))


def drag(phone, dy, dx=0.0):
    x, y = phone.width // 2, phone.height // 2
    end = (int(x + dx * phone.width), int(y + dy * phone.height))
    phone.perform(Touch(((x, y), end), 500))


def lines(phone):
    return [element.text for element in phone.screen().elements]


def make_phone(*entries, layout=5, **changes):
    """A phone of a layout with open entries and without notices."""
    world = make_world(layout)
    world.notice, world.open_entries = None, entries
    for name, value in changes.items():
        setattr(world, name, value)
    return SimPhone(world=world)


# -- the lexicon ---------------------------------------------------------------------------------------------


def test_lexicon_is_small_and_distinct():
    assert 400 <= len(LEXICON) <= 550
    assert len(labels.lexicon()) == len(LEXICON)
    assert all(word.split() == [word] and len(word) <= 10 for word in LEXICON)
    assert {f"{hour}:{quarter}" for hour in range(24) for quarter in ("00", "15", "30", "45")} <= LEXICON


@pytest.mark.parametrize("layout", range(4))
def test_every_page_of_every_app_keeps_to_the_lexicon(layout):
    world = make_world(layout)
    entries = [NavigationEntry(app) for app in (*APPS, *labels.STUB_APPS)]
    entries += [NavigationEntry("Settings", item=name) for name in labels.SETTINGS]
    entries += [NavigationEntry("Shop", "item", item) for item in labels.ITEMS] + [
        NavigationEntry("Shop", "results", "red tent")
    ]
    entries += [NavigationEntry("Shop", page) for page in ("store", "cart", "checkout", "bought")]
    entries += [NavigationEntry("Browser", "web", site) for site in labels.SITES.values()] + [
        NavigationEntry("Browser", "saved")
    ]
    entries += [NavigationEntry("Contacts", item=name) for name in world.contacts] + [
        NavigationEntry("Contacts", "new")
    ]
    entries += [NavigationEntry("Notes", item=name) for name in world.notes] + [
        NavigationEntry("Notes", "new"),
        NavigationEntry("Clock", "new"),
    ]
    entries += [NavigationEntry("Clock", tab) for tab in ("alarms", "timer")]
    for entry in entries:
        phone = make_phone(entry, layout=layout)
        assert {word for text in lines(phone) for word in text.split()} <= LEXICON, entry
    for i, (lines_of_notice, buttons, expected) in enumerate(labels.NOTICES):
        phone = make_phone(layout=layout, notice=(i, 1))
        phone.state.open_app("Shop")
        assert {*lines_of_notice, *buttons} <= set(lines(phone))
        tap(phone, f"dialog:{expected}")
        assert phone.state.dialog is None


# -- the device ----------------------------------------------------------------------------------------------


def test_typing_needs_focus_and_enter_searches():
    phone = make_phone(NavigationEntry("Shop", "store"), stock=["Red Tent", "Red Mug", "Blue Vase"])
    phone.perform(TypeText("Red Tent"))
    phone.perform(PressKey("enter"))
    assert phone.state.current.page == "store"
    assert phone.state.current.fields == {}
    tap(phone, "field:search")
    phone.perform(TypeText("Red "))
    phone.perform(TypeText("Tent"))
    assert "Red Tent" in lines(phone)
    phone.perform(PressKey("enter"))
    assert [t.name for t in phone.view.targets if t.name.startswith("row:")] == [
        "row:Red Tent",
        "row:Red Mug",
    ]
    assert search_results(["Red Tent", "Blue Vase"], "tent") == ["Red Tent"]
    stock = ["Blue Mug", "Red Mug", "Blue Tent", "Red Vase"]
    assert search_results(stock, "Blue Tent") == ["Blue Tent", "Blue Mug"]  # the best first, else as in stock


def test_lists_scroll_by_whole_rows_and_stop_at_their_ends():
    phone = make_phone(NavigationEntry("Contacts"), contacts=dict.fromkeys(labels.CONTACTS, "12 18"))
    assert "End" not in lines(phone)
    drag(phone, -5 / 16)
    assert phone.view.scroll_row == 5
    drag(phone, 3 / 16)
    assert phone.view.scroll_row == 2
    for _ in range(12):
        drag(phone, -0.4)
    assert phone.view.scroll_row == phone.view.max_scroll_row > 0
    assert "End" in lines(phone)
    assert labels.CONTACTS[-1] in lines(phone)
    for _ in range(12):
        drag(phone, 0.4)
    assert phone.view.scroll_row == 0


def test_a_swipe_follows_its_longer_axis():
    phone = make_phone()
    drag(phone, -0.2, 0.1)
    assert phone.state.current.app == "Drawer"
    drag(phone, 0.2)
    assert phone.state.current.app == "Launcher"
    drag(phone, 0.2)
    assert phone.state.current.app == "Quick"
    phone.perform(PressKey("home"))
    drag(phone, 0.1, -0.3)
    assert phone.state.current == NavigationEntry("Launcher", item="1")
    drag(phone, 0.1, 0.3)
    assert phone.state.current == NavigationEntry("Launcher", item="0")
    drag(phone, 0.0, 0.3)
    assert phone.state.current == NavigationEntry("Launcher", item="0")  # there is no page before the first


def test_back_and_home_and_the_navigation_bar():
    phone = make_phone(NavigationEntry("Settings"), NavigationEntry("Settings", item="Sound"))
    phone.perform(PressKey("back"))
    assert phone.state.current == NavigationEntry("Settings")
    tap(phone, "nav:back")
    assert phone.state.current.app == "Launcher"
    phone.perform(PressKey("back"))
    assert phone.state.current.app == "Launcher"
    phone = make_phone(NavigationEntry("Settings"), NavigationEntry("Settings", item="Sound"))
    tap(phone, "arrow")
    assert phone.state.current == NavigationEntry("Settings")
    tap(phone, "nav:home")
    assert len(phone.state.back_stack) == 1


def test_a_dialog_blocks_the_screen_below():
    phone = make_phone(notice=(0, 1))
    phone.state.open_app("Settings")
    phone.perform(TypeText("x"))
    drag(phone, -0.4)
    phone.perform(Touch(((phone.width // 2, phone.height // 5),), 60))
    assert phone.state.dialog is not None
    assert phone.state.current == NavigationEntry("Settings")
    phone.perform(PressKey("back"))
    assert phone.state.dialog is None
    assert phone.state.current == NavigationEntry("Settings")


def test_a_sent_message_is_shown_and_kept():
    phone = make_phone(threads={"Anna": [ChatMessage("hello", False)] * 30})
    phone.state.push("Messages", item="Anna", scroll=1 << 20)
    tap(phone, "field:message")
    phone.perform(TypeText("see you soon"))
    tap(phone, "button:send")
    assert phone.world.threads["Anna"][-1] == ChatMessage("see you soon", True)
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
        (NavigationEntry("Notes", "new"), ("title", "text"), "save"),
        (NavigationEntry("Contacts", "new"), ("name", "number"), "save"),
        (NavigationEntry("Clock", "new"), ("time",), "save"),
        (NavigationEntry("Shop", "store"), ("search",), ""),
        (NavigationEntry("Browser", "web"), ("address",), ""),
        (NavigationEntry("Drawer"), ("search",), ""),
        (NavigationEntry("Messages", item="Anna"), ("message",), "send"),
    ]
    for entry, fields, button in forms:
        phone = make_phone(entry, threads={"Anna": []})
        for name in fields:
            tap(phone, f"field:{name}")
            phone.perform(TypeText(text))
            phone.screen()
        if button:
            tap(phone, f"button:{button}")
        phone.screen()
        phone.perform(PressKey("enter"))
        phone.screen()
        for target in [t.name for t in phone.view.targets if t.name.startswith("row:")][:1]:
            tap(phone, target)
            phone.screen()


def test_a_monkey_never_breaks_it():
    rng = Random(7)
    seen = set()
    for layout in range(7):
        phone = SimPhone(layout)
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
                phone.perform(TypeText(rng.choice(("Red Mug", "7:30", "Anna", "zoo.net", "ü\n"))))
            else:
                phone.perform(PressKey(rng.choice(("back", "home", "enter", "enter"))))
            assert phone.screen().pixels.shape == (phone.height, phone.width, 3)
            seen.add((phone.state.current.app, phone.state.current.page))
    assert len(seen) > 20  # it reached many pages

"""The page of prepared data: every number of the report stands in it, and no text of the data does anything there."""

import copy
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from test_data_prep import FIXTURE, STYLES, made, record

from data_prep.report_page import MOST_BARS, MOST_BYTES, MOST_ROWS, WAYS, write_page
from data_prep.tfrecord import write_shard
from uivlm.page import safe
from uivlm.sentences.store import Prepared

HOSTILE = "<script>alert('\"&')</script> </title>\x00\x1b[31m \u202e 新闻 🙂 \"><img src=x onerror=1>"
VOID = {"meta", "img", "br"}


class Tree(HTMLParser):
    """Text by element; complains where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The fixture that TensorFlow wrote, by its own split: three splits, two subsets."""
    out = tmp_path_factory.mktemp("page") / "out"
    return out, made(FIXTURE, out, FIXTURE / STYLES[0])


@pytest.fixture
def report(prepared: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """To be changed by a test."""
    return copy.deepcopy(prepared[1])


@pytest.fixture
def page(prepared: tuple[Path, dict[str, Any]], report: dict[str, Any]) -> Any:
    """The page of a report about the fixture."""
    return lambda: write_page(prepared[0], report).read_text("utf-8")


def drawings(text: str) -> dict[str, ElementTree.Element]:
    """The pictures by what they say they are. Each is XML by itself."""
    found = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", text, re.S)]
    return {svg.get("aria-label", ""): svg for svg in found}


def titled(svg: ElementTree.Element, tag: str) -> dict[str, ElementTree.Element]:
    return {title.text or "": shape for shape in svg.iter(tag) if (title := shape.find("title")) is not None}


def rows(text: str) -> list[list[str]]:
    """The tables' cells as text."""
    lines = re.findall("<tr>(.*?)</tr>", text, re.S)
    return [
        [re.sub("<.*?>", "", cell) for cell in re.findall("<t[dh].*?>(.*?)</t[dh]>", line)] for line in lines
    ]


def test_the_page_is_well_formed_and_asks_for_nothing(page: Any) -> None:
    text = page()
    tree = Tree(text)
    assert not tree.tags["script"]
    assert len(drawings(text)) == 4  # bars have no name
    assert not [name for name, _ in tree.attributes if name.startswith("on") or name == "href"]
    assert all(str(value).startswith("data:image/jpeg;") for name, value in tree.attributes if name == "src")
    colours = [shape.get("fill") for svg in drawings(text).values() for shape in svg.iter("text")]
    assert colours
    assert set(colours) == {None}  # the style gives letters currentColor
    assert "svg text { fill: currentColor }" in text


def test_the_numbers_stand_in_it(page: Any, report: dict[str, Any]) -> None:
    text = page()
    found = rows(text)
    assert f"<b>{report['episodes']}</b> episodes" in text
    assert f"<b>{report['steps']}</b> steps" in text
    for part, count in [*report["by_split"].items(), *report["by_subset"].items()]:
        assert [part, str(count["episodes"]), str(count["steps"])] in [row[:3] for row in found]
    steps, episodes = report["dropped_steps"], report["dropped_episodes"]
    for why in {**steps, **episodes}:
        assert [f"dropped: {why}", str(episodes.get(why, 0)), str(steps.get(why, 0))] in [
            row[:3] for row in found
        ]
    for what, count in [
        *report["notes"].items(),
        *report["actions"].items(),
        *report["screens"].items(),
    ]:
        assert [what, str(count)] in [row[:2] for row in found]
    for rule in (report["gap_policy"], report["split_rule"], "37 records from 3 of 3 parts"):
        assert f"<dd>{safe(rule)}</dd>" in text
    assert ["written", "9", "32", "86.5 %"] in [row[:4] for row in found]


def test_large_numbers_have_separators(page: Any, report: dict[str, Any]) -> None:
    report["episodes"], report["actions"] = 1234567, {"tap": 7654321, "swipe": 1}
    text = page()
    assert "1,234,567" in text
    assert "<td>7,654,321</td><td>100.0 %</td>" in text


@pytest.mark.parametrize("key", ["shares", "split_ids_not_written", "absent_by_name"])
def test_rules_that_hold_now_and_then(key: str, page: Any, report: dict[str, Any]) -> None:
    said = {
        "shares": "10 % of google_apps",
        "split_ids_not_written": "1,200: 17, &lt;b&gt;",
        "absent_by_name": "6 of i&amp;j",
    }[key]
    assert said not in page()
    report["shares"] = {"google_apps": 0.1}
    report["split_ids_not_written"] = {"count": 1200, "examples": ["17", "<b>"]}
    report["shards"]["absent_by_name"] = {"i&j": 6}
    assert f"<dd>{said}</dd>" in page()


def test_what_is_damaged_is_in_a_box(page: Any, report: dict[str, Any]) -> None:
    assert '<section class="' not in page()
    report["damaged"] = [{"name": f"part<{i}>", "error": f"it is cut & {HOSTILE}"} for i in range(30)]
    report["shards"] |= {"read": 1030, "found": 1030}
    report["unusable_examples"] = ["the action_type is <99>"]
    text = page()
    tree = Tree(text)
    assert not tree.tags["script"]
    assert tree.tags["section"] == 2
    assert "⚠ Left out: 30 of 1,030 parts could not be read" in tree.texts["h2"]
    assert f"part<0>: it is cut & {HOSTILE.split(chr(0))[0]}" in tree.texts["li"][5]
    assert f"and {30 - MOST_ROWS} more" in tree.texts["li"]
    assert "the action_type is <99>" in tree.texts["li"]
    assert "1,000 of 1,030 parts" in text
    assert text.index("part&lt;0&gt;") < text.index("What was dropped")


def test_hostile_text_does_nothing(tmp_path: Path) -> None:
    """Goals, ids, subsets and typed text. A lone surrogate cannot be in the data, but in an id of a split file."""
    data = [
        record(
            f"{i}.{HOSTILE}",
            0,
            1,
            goal=HOSTILE,
            action_type=3,
            touch=(-1.0, -1.0),
            lift=(-1.0, -1.0),
            text=HOSTILE,
        )
        for i in range(2)
    ]
    write_shard(tmp_path / "general-00000-of-00001", data)
    out = tmp_path / "out"
    report = made(tmp_path, out)
    shared = {"test_episodes": 1, "of": 1, "examples": [HOSTILE, "\ud800"]}
    report["leaks_of_test_into_train"]["goal"] = shared
    report["notes"] = {HOSTILE: 1}
    report["split_ids_not_written"] = {"count": 1, "examples": [HOSTILE]}
    text = write_page(out, report).read_text("utf-8")
    tree = Tree(text)
    assert not tree.tags["script"]
    assert tree.tags["img"] == 2
    assert tree.tags["title"] == 1 + sum(
        map(len, (titled(svg, tag) for svg in drawings(text).values() for tag in ("rect", "path")))
    )
    assert not [c for c in text if ord(c) < 32 and c != "\n"]
    assert all(name != "onerror" for name, _ in tree.attributes)
    shown = HOSTILE.replace("\0", "\\x00").replace("\x1b", "\\x1b")
    assert tree.texts["h3"] == [shown, shown]
    assert shown in tree.texts["li"]
    assert "\\ud800" in tree.texts["li"]
    assert "alert(" in tree.texts["code"][0]


def test_long_text_is_cut(page: Any, report: dict[str, Any]) -> None:
    report["leaks_of_test_into_train"]["goal"]["examples"] = ["x" * 5000]
    assert f"<li>{'x' * 300}... (5,000 characters)</li>" in page()


# --- pictures -------------------------------------------------------------------------------------------------------


def test_the_heat_map_is_the_reports(page: Any, report: dict[str, Any]) -> None:
    report["taps"] = np.random.default_rng(0).integers(0, 2000, (20, 10)).tolist()
    report["taps"][3][7] = 0
    cells = titled(drawings(page())["heat map of taps"], "rect")
    found = np.full((20, 10), -1)
    for title, cell in cells.items():
        match = re.fullmatch(r"row (\d+), column (\d+): ([\d,]+) taps \([\d.]+ %\)", title)
        assert match
        row, column, n = (int(group.replace(",", "")) for group in match.groups())
        found[row - 1, column - 1] = n
        assert (float(cell.get("y", "")), float(cell.get("x", ""))) == (20 * (row - 1), 20 * (column - 1))
    np.testing.assert_array_equal(found, report["taps"])
    flat = sorted(cells.items(), key=lambda each: int(each[0].split(" ")[4].replace(",", "")))
    strong = [float(cell.get("fill-opacity", "")) for _, cell in flat]
    assert strong == sorted(strong)
    assert (strong[0], strong[-1]) == (0.0, 0.9)


def test_the_fixtures_taps_and_swipes_are_all_drawn(page: Any, report: dict[str, Any]) -> None:
    pictures = drawings(page())
    for name, tag, action in (
        ("heat map of taps", "rect", "tap"),
        ("swipes by direction of the finger", "path", "swipe"),
    ):
        counts = [int(title.split(": ")[1].split(" ")[0]) for title in titled(pictures[name], tag)]
        assert sum(counts) == report["actions"][action] > 0


@pytest.mark.parametrize(
    ("index", "x", "y"),
    [(0, 1, 0), (1, 1, 1), (2, 0, 1), (3, -1, 1), (4, -1, 0), (5, -1, -1), (6, 0, -1), (7, 1, -1)],
)
def test_petals_and_their_names_point_the_right_way(
    index: int, x: int, y: int, page: Any, report: dict[str, Any]
) -> None:
    report["swipes"] = [0] * 8
    report["swipes"][index] = 1234
    rose = drawings(page())["swipes by direction of the finger"]
    shape = titled(rose, "path")[f"{WAYS[index]}: 1,234 swipes (100.0 %)"].get("d", "")
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", shape)]
    middle = (numbers[2] + numbers[9]) / 2, (numbers[3] + numbers[10]) / 2  # of the two outer corners
    signs = [0 if abs(at) < 1e-6 else int(np.sign(at)) for at in middle]
    assert signs == [x, y]
    assert np.hypot(*numbers[2:4]) == pytest.approx(90, abs=0.02)
    words = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
    assert np.sum([words[word] for word in WAYS[index].split(" ")], axis=0).tolist() == [x, y]
    (label,) = [text for text in rose.iter("text") if "1,234" in (text.text or "")]
    at = float(label.get("x", "")), float(label.get("y", "")) - 4
    assert [0 if abs(side) < 1e-6 else int(np.sign(side)) for side in at] == [x, y]


@pytest.mark.parametrize(
    ("lift", "way"),
    [((0.5, 0.9), "right"), ((0.9, 0.5), "down"), ((0.5, 0.1), "left"), ((0.1, 0.5), "up")],
)
def test_a_recorded_swipe_has_the_petal_of_its_finger(
    lift: tuple[float, float], way: str, tmp_path: Path
) -> None:
    """From the recorded (y, x) to the page: nothing on the way turns up into down."""
    write_shard(tmp_path / "general-00000-of-00001", [record("1", 0, 1, lift=lift)])
    text = write_page(tmp_path / "out", made(tmp_path, tmp_path / "out")).read_text("utf-8")
    petals = titled(drawings(text)["swipes by direction of the finger"], "path")
    assert f"{way}: 1 swipes (100.0 %)" in petals
    assert sum("0 swipes (0.0 %)" in title for title in petals) == 7


def test_petals_have_areas_as_counts(page: Any, report: dict[str, Any]) -> None:
    report["swipes"] = [400, 0, 100, 0, 0, 0, 25, 0]
    petals = titled(drawings(page())["swipes by direction of the finger"], "path")
    radii = {
        title.split(":")[0]: float(petal.get("d", "").split("A")[1].split(" ")[0])
        for title, petal in petals.items()
    }
    assert [radii[way] for way in ("right", "down", "up", "left")] == [90, 45, 22.5, 0]


def test_no_taps_and_no_swipes(page: Any, report: dict[str, Any]) -> None:
    report["taps"], report["swipes"] = [[0] * 10] * 20, [0] * 8
    pictures = drawings(page())
    assert len(titled(pictures["heat map of taps"], "rect")) == 200
    assert "row 20, column 10: 0 taps (-)" in titled(pictures["heat map of taps"], "rect")
    assert not list(pictures["heat map of taps"].iter("text"))
    assert "up: 0 swipes (-)" in titled(pictures["swipes by direction of the finger"], "path")


def test_episode_lengths_with_a_long_tail(page: Any, report: dict[str, Any]) -> None:
    name = "histogram of episode lengths"
    bars = titled(drawings(page())[name], "rect")
    assert {f"{steps} steps: {n} episodes" for steps, n in report["episode_lengths"].items()} <= set(bars)
    report["episode_lengths"] = {"1": 1000, "3": 2000, f"{MOST_BARS}": 5, "70": 6, "900": 7}
    bars = titled(drawings(page())[name], "rect")
    assert len(bars) == MOST_BARS
    tall = {title: float(bar.get("height", "")) for title, bar in bars.items()}
    assert f"{MOST_BARS}+ steps: 18 episodes" in tall
    assert tall["3 steps: 2,000 episodes"] == 2 * tall["1 steps: 1,000 episodes"] > 0
    assert tall["2 steps: 0 episodes"] == 0
    report["episode_lengths"] = {f"{MOST_BARS}": 5}
    assert f"{MOST_BARS} steps: 5 episodes" in titled(drawings(page())[name], "rect")


# --- tables that come and go ----------------------------------------------------------------------------------------


def test_leaks_are_named(page: Any, report: dict[str, Any]) -> None:
    assert ["goal text", "0 of 3", "0.0 %", "none"] in rows(page())
    report["leaks_of_test_into_train"]["goal"] = {
        "test_episodes": 1200,
        "of": 3600,
        "examples": ["open <it>"],
    }
    report["leaks_of_test_into_train"]["id"] = {"test_episodes": 0, "of": 0, "examples": []}
    found = rows(page())
    assert ["goal text", "1,200 of 3,600", "33.3 %", "open &lt;it&gt;"] in found
    assert ["episode id", "0 of 0", "-", "none"] in found


def test_tokens_where_they_were_counted(page: Any, report: dict[str, Any]) -> None:
    assert "Tokens" not in page()
    report["tokens"] = {}
    assert "Tokens" not in page()
    report["tokens"] = {
        "qwenvl": {
            "episodes": 1000, "tokens a screen": 256.0, "tokens a step": 1273.25, "median": 8200, "95 %": 20100,
            "longest": 65536, "longest sentence": 10240,
        }
    }  # fmt: skip
    found = rows(page())
    assert ["qwenvl", "1,000", "256.0", "1,273.2", "8,200", "20,100", "65,536", "10,240"] in found


def test_many_kinds_of_screens_are_cut(page: Any, report: dict[str, Any]) -> None:
    report["screens"] = {f"{i}x{i}": 100 - i for i in range(MOST_ROWS + 3)}
    text = page()
    assert "and 3 more" in text
    assert f"{MOST_ROWS + 1}x" not in text


# --- samples --------------------------------------------------------------------------------------------------------


def test_each_split_and_subset_has_a_sample(page: Any, prepared: tuple[Path, dict[str, Any]]) -> None:
    tree = Tree(page())
    samples = [re.match(r"(\w+), (\w+), episode (.*): (\d+) of (\d+) steps", p) for p in tree.texts["p"]]
    shown = [match.groups() for match in samples if match]
    assert len(shown) == len(tree.texts["h3"]) == 4
    assert {split for split, *_ in shown} == {"train", "validation", "test"}
    assert {subset for _, subset, *_ in shown} == set(prepared[1]["by_subset"])
    assert len({episode for _, _, episode, *_ in shown}) == 4
    assert tree.tags["img"] == sum(int(n) for *_, n, _ in shown) <= 32
    first = Prepared.open(prepared[0]).episodes("train", shown[0][1])[0]
    assert (shown[0][2], tree.texts["h3"][0]) == (first.id, first.goal)


def test_a_large_screen_and_a_long_episode_stay_small(tmp_path: Path) -> None:
    """The worst that can be: four episodes of noise, each longer than is shown."""
    data = []
    for i in range(4):
        for t in range(9):
            pixels = np.random.default_rng(10 * i + t).integers(0, 256, (320, 240, 3), np.uint8)
            data.append(record(f"{i}", t, 9, pixels=pixels, goal="&" * 5000))
    write_shard(tmp_path / "general-00000-of-00001", data)
    path = write_page(tmp_path / "out", made(tmp_path, tmp_path / "out"))
    assert path.stat().st_size < MOST_BYTES
    tree = Tree(path.read_text("utf-8"))
    assert tree.tags["img"] == 32
    assert sum("8 of 9 steps" in p for p in tree.texts["p"]) == 4


def test_the_same_data_gives_the_same_bytes(tmp_path: Path, prepared: tuple[Path, dict[str, Any]]) -> None:
    first = write_page(*prepared)
    assert first == prepared[0] / "report.html"
    kept = first.read_bytes()
    assert write_page(*prepared).read_bytes() == kept
    again = made(FIXTURE, tmp_path / "out", FIXTURE / STYLES[0])
    assert write_page(tmp_path / "out", again).read_bytes() == kept
    assert not list(prepared[0].glob("*.partial"))

"""The HTML report of prepared data: it shows every number of the report and escapes every text."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.report_html import MAX_BYTES, MAX_ROWS, render_report
from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import FIXTURE, STYLES, content, made, record
from tests.helpers.report_pages import Tree, drawings, rows, titled
from uivlm.episodes.dataset import PreparedData
from uivlm.reports.html import escape

HOSTILE = "<script>alert('\"&')</script> </title>\x00\x1b[31m \u202e 新闻 🙂 \"><img src=x onerror=1>"


def test_the_page_is_well_formed_and_requests_nothing(page: Any) -> None:
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


def test_it_shows_the_numbers(page: Any, report: dict[str, Any]) -> None:
    text = page()
    table_rows = rows(text)
    assert f"<b>{report['episodes']}</b> episodes" in text
    assert f"<b>{report['steps']}</b> steps" in text
    for part, count in [*report["by_split"].items(), *report["by_subset"].items()]:
        assert [part, str(count["episodes"]), str(count["steps"])] in [row[:3] for row in table_rows]
    steps, episodes = report["dropped_steps"], report["dropped_episodes"]
    for why in {**steps, **episodes}:
        assert [f"dropped: {why}", str(episodes.get(why, 0)), str(steps.get(why, 0))] in [
            row[:3] for row in table_rows
        ]
    for what, count in [
        *report["notes"].items(),
        *report["actions"].items(),
        *report["screens"].items(),
    ]:
        assert [what, str(count)] in [row[:2] for row in table_rows]
    for rule in (report["missing_steps_policy"], report["split_rule"], "37 records from 3 of 3 parts"):
        assert f"<dd>{escape(rule)}</dd>" in text
    assert ["written", "9", "32", "86.5 %"] in [row[:4] for row in table_rows]


def test_large_numbers_have_separators(page: Any, report: dict[str, Any]) -> None:
    report["episodes"], report["actions"] = 1234567, {"tap": 7654321, "swipe": 1}
    text = page()
    assert "1,234,567" in text
    assert "<td>7,654,321</td><td>100.0 %</td>" in text


@pytest.mark.parametrize("key", ["subsample", "split_ids_not_written", "missing"])
def test_optional_rules(key: str, page: Any, report: dict[str, Any]) -> None:
    text = {
        "subsample": "10 % of google_apps",
        "split_ids_not_written": "1,200: 17, &lt;b&gt;",
        "missing": "6 of i&amp;j",
    }[key]
    assert text not in page()
    report["subsample"] = {"google_apps": 0.1}
    report["split_ids_not_written"] = {"count": 1200, "examples": ["17", "<b>"]}
    report["shards"]["missing"] = {"i&j": 6}
    assert f"<dd>{text}</dd>" in page()


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
    assert f"and {30 - MAX_ROWS} more" in tree.texts["li"]
    assert "the action_type is <99>" in tree.texts["li"]
    assert "1,000 of 1,030 parts" in text
    assert text.index("part&lt;0&gt;") < text.index("Dropped and noted")


def test_hostile_text_does_nothing(tmp_path: Path) -> None:
    """Goals, ids, subsets and typed text. A lone surrogate can be in an id of a split file."""
    data = [
        record(
            f"{i}.{HOSTILE}",
            0,
            1,
            goal=HOSTILE,
            aitw=(3, (-1.0, -1.0), (-1.0, -1.0), HOSTILE),
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
    text = render_report(out, report).encode(errors="backslashreplace").decode()
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


# --- optional tables ----------------------------------------------------------------------


def test_leaks_are_named(page: Any, report: dict[str, Any]) -> None:
    assert ["goal text", "0 of 3", "0.0 %", "none"] in rows(page())
    report["leaks_of_test_into_train"]["goal"] = {
        "test_episodes": 1200,
        "of": 3600,
        "examples": ["open <it>"],
    }
    report["leaks_of_test_into_train"]["id"] = {"test_episodes": 0, "of": 0, "examples": []}
    table_rows = rows(page())
    assert ["goal text", "1,200 of 3,600", "33.3 %", "open &lt;it&gt;"] in table_rows
    assert ["episode id", "0 of 0", "-", "none"] in table_rows


def test_tokens_where_they_were_counted(page: Any, report: dict[str, Any]) -> None:
    assert "Tokens" not in page()
    report["tokens"] = {}
    assert "Tokens" not in page()
    report["tokens"] = {
        "qwenvl": {
            "num_episodes": 1000, "visual_tokens_per_screen": 256.0, "tokens_per_step": 1273.25,
            "median": 8200,
            "p95": 20100, "longest": 65536, "longest_sentence": 10240,
        }
    }  # fmt: skip
    table_rows = rows(page())
    assert ["qwenvl", "1,000", "256.0", "1,273.2", "8,200", "20,100", "65,536", "10,240"] in table_rows


def test_many_kinds_of_screens_are_cut(page: Any, report: dict[str, Any]) -> None:
    report["screens"] = {f"{i}x{i}": 100 - i for i in range(MAX_ROWS + 3)}
    text = page()
    assert "and 3 more" in text
    assert f"{MAX_ROWS + 1}x" not in text


# --- samples --------------------------------------------------------------------------------------


def test_each_split_and_subset_has_a_sample(page: Any, prepared: tuple[Path, dict[str, Any]]) -> None:
    tree = Tree(page())
    samples = [re.match(r"(\w+), (\w+), episode (.*): (\d+) of (\d+) steps", p) for p in tree.texts["p"]]
    shown = [match.groups() for match in samples if match]
    assert len(shown) == len(tree.texts["h3"]) == 4
    assert {split for split, *_ in shown} == {"train", "validation", "test"}
    assert {subset for _, subset, *_ in shown} == set(prepared[1]["by_subset"])
    assert len({episode for _, _, episode, *_ in shown}) == 4
    assert tree.tags["img"] == sum(int(n) for *_, n, _ in shown) <= 32
    first = PreparedData.open(prepared[0]).episodes("train", shown[0][1])[0]
    assert (shown[0][2], tree.texts["h3"][0]) == (first.id, first.goal)


def test_a_large_screen_and_a_long_episode_stay_small(tmp_path: Path) -> None:
    """The worst case: four episodes of noise, each longer than the maximum shown."""
    data = []
    for i in range(4):
        for t in range(9):
            pixels = np.random.default_rng(10 * i + t).integers(0, 256, (320, 240, 3), np.uint8)
            data.append(record(f"{i}", t, 9, pixels=pixels, goal="&" * 5000))
    write_shard(tmp_path / "general-00000-of-00001", data)
    made(tmp_path, tmp_path / "out")
    path = tmp_path / "out" / "report.html"
    assert path.stat().st_size < MAX_BYTES
    tree = Tree(path.read_text("utf-8"))
    assert tree.tags["img"] == 32
    assert sum("8 of 9 steps" in p for p in tree.texts["p"]) == 4


def test_the_same_data_gives_the_same_bytes(tmp_path: Path, prepared: tuple[Path, dict[str, Any]]) -> None:
    page = render_report(*prepared)
    assert page == (prepared[0] / "report.html").read_text("utf-8")
    again = made(FIXTURE, tmp_path / "out", FIXTURE / STYLES[0])
    assert render_report(tmp_path / "out", again) == page
    assert content(tmp_path / "out") == content(prepared[0])

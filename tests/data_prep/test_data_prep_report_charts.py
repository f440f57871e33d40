"""The charts of the HTML report: every tap, swipe and episode length, at its place and to scale."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.report_html import DIRECTIONS, MAX_BARS, render_report
from data_prep.tfrecord import write_shard
from tests.helpers.prepared_data import made, record
from tests.helpers.report_pages import drawings, titled


def test_the_heat_map_is_the_reports(page: Any, report: dict[str, Any]) -> None:
    report["tap_heatmap"] = np.random.default_rng(0).integers(0, 2000, (20, 10)).tolist()
    report["tap_heatmap"][3][7] = 0
    cells = titled(drawings(page())["heat map of taps"], "rect")
    counts = np.full((20, 10), -1)
    for title, cell in cells.items():
        match = re.fullmatch(r"row (\d+), column (\d+): ([\d,]+) taps \([\d.]+ %\)", title)
        assert match
        row, column, n = (int(group.replace(",", "")) for group in match.groups())
        counts[row - 1, column - 1] = n
        assert (float(cell.get("y", "")), float(cell.get("x", ""))) == (20 * (row - 1), 20 * (column - 1))
    np.testing.assert_array_equal(counts, report["tap_heatmap"])
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
    report["swipe_directions"] = [0] * 8
    report["swipe_directions"][index] = 1234
    rose = drawings(page())["swipes by direction of the finger"]
    shape = titled(rose, "path")[f"{DIRECTIONS[index]}: 1,234 swipes (100.0 %)"].get("d", "")
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", shape)]
    middle = (numbers[2] + numbers[9]) / 2, (numbers[3] + numbers[10]) / 2  # of the two outer corners
    signs = [0 if abs(at) < 1e-6 else int(np.sign(at)) for at in middle]
    assert signs == [x, y]
    assert np.hypot(*numbers[2:4]) == pytest.approx(90, abs=0.02)
    words = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
    assert np.sum([words[word] for word in DIRECTIONS[index].split(" ")], axis=0).tolist() == [x, y]
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
    """From the recorded (y, x) to the page, up stays up."""
    write_shard(tmp_path / "general-00000-of-00001", [record("1", 0, 1, aitw=(4, (0.5, 0.5), lift, ""))])
    text = render_report(tmp_path / "out", made(tmp_path, tmp_path / "out"))
    petals = titled(drawings(text)["swipes by direction of the finger"], "path")
    assert f"{way}: 1 swipes (100.0 %)" in petals
    assert sum("0 swipes (0.0 %)" in title for title in petals) == 7


def test_petals_have_areas_as_counts(page: Any, report: dict[str, Any]) -> None:
    report["swipe_directions"] = [400, 0, 100, 0, 0, 0, 25, 0]
    petals = titled(drawings(page())["swipes by direction of the finger"], "path")
    radii = {
        title.split(":")[0]: float(petal.get("d", "").split("A")[1].split(" ")[0])
        for title, petal in petals.items()
    }
    assert [radii[way] for way in ("right", "down", "up", "left")] == [90, 45, 22.5, 0]


def test_no_taps_and_no_swipes(page: Any, report: dict[str, Any]) -> None:
    report["tap_heatmap"], report["swipe_directions"] = [[0] * 10] * 20, [0] * 8
    pictures = drawings(page())
    assert len(titled(pictures["heat map of taps"], "rect")) == 200
    assert "row 20, column 10: 0 taps (-)" in titled(pictures["heat map of taps"], "rect")
    assert not list(pictures["heat map of taps"].iter("text"))
    assert "up: 0 swipes (-)" in titled(pictures["swipes by direction of the finger"], "path")


def test_episode_lengths_with_a_long_tail(page: Any, report: dict[str, Any]) -> None:
    name = "histogram of episode lengths"
    bars = titled(drawings(page())[name], "rect")
    assert {f"{steps} steps: {n} episodes" for steps, n in report["episode_lengths"].items()} <= set(bars)
    report["episode_lengths"] = {"1": 1000, "3": 2000, f"{MAX_BARS}": 5, "70": 6, "900": 7}
    bars = titled(drawings(page())[name], "rect")
    assert len(bars) == MAX_BARS
    tall = {title: float(bar.get("height", "")) for title, bar in bars.items()}
    assert f"{MAX_BARS}+ steps: 18 episodes" in tall
    assert tall["3 steps: 2,000 episodes"] == 2 * tall["1 steps: 1,000 episodes"] > 0
    assert tall["2 steps: 0 episodes"] == 0
    report["episode_lengths"] = {f"{MAX_BARS}": 5}
    assert f"{MAX_BARS} steps: 5 episodes" in titled(drawings(page())[name], "rect")

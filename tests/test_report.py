"""Reports: the page is safe to open and complete, tables show the numbers, actions are drawn where they belong."""

import dataclasses
import html.parser
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import Episode, Screen, Step
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.protocols.score import Result
from uivlm.evaluation.report import kind_table, protocol_table, table
from uivlm.evaluation.report_page import write_page
from uivlm.evaluation.verdict import Verdict, judge
from uivlm.picture import caption, data_url, draw_action

TAP, UP = Tap(Point(0.2, 0.3)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
DONE = Finish("complete")
HOSTILE = "<script>alert('x')</script><img src=http://evil.example/a onerror=alert(1)>\x00\ud800[red]"


def episode(name: str, subset: str, *actions: Action, goal: str = "open the clock") -> Episode:
    screen = Screen(np.full((60, 30, 3), 200, np.uint8))
    return Episode(name, goal, subset, tuple(Step(screen, action) for action in actions))


EPISODES = [
    episode("1", "A", TAP),
    episode("2", "A", TAP, UP, DONE),
    episode("3", "B", Press("home"), Type("milk")),
]


def verdicts_on(episodes: list[Episode], words: tuple[str, ...] = ()) -> list[Verdict]:
    """Verdicts by hand: right where no words are given, else wrong with the words of each step."""
    found = []
    for i, one in enumerate(episodes):
        for t, step in enumerate(one.steps):
            said = words[t] if words else Language().say(step.action)
            found.append(judge(i, one, t, Decision(Language().parse(said), said, 0.5), 1.0))
    return found


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a page, as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_safe_and_complete(tmp_path: Path) -> None:
    goal = "BODY TITLE " + HOSTILE
    episodes = [episode(f"{i}{HOSTILE}", HOSTILE, TAP, UP, Type(HOSTILE), goal=goal) for i in range(30)]
    says = ("tap at 90 90", HOSTILE, "swipe from 10 10 to 10 90")
    verdicts = verdicts_on(episodes, says)
    summaries = {HOSTILE: summarise(verdicts), "base": summarise(verdicts)}
    page = write_page(tmp_path / "report.html", summaries, verdicts, episodes, simulated=True, title=HOSTILE)
    seen = Tags()
    seen.feed(page.read_text(encoding="utf-8"))
    assert "script" not in seen.tags
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert len(seen.sources) == 40  # at most 40 errors of 90
    assert all(source.startswith("data:image/jpeg;base64,") for source in seen.sources)
    assert "<script>alert('x')</script>" in seen.text  # shown as the text it is
    assert "Simulated data" in seen.text
    assert "not live success" in seen.text
    assert "90 of 90 steps are wrong; 40 are shown" in seen.text
    assert "not a phrase of the language" in seen.text
    assert page.stat().st_size < 2_000_000
    assert {file.name for file in tmp_path.iterdir()} == {"report.html"}


def test_a_page_of_recorded_data_is_not_called_simulated(tmp_path: Path) -> None:
    verdicts = verdicts_on(EPISODES)
    wrong = [dataclasses.replace(v, correct=False) for v in verdicts]
    page = write_page(
        tmp_path / "report.html", {"run": summarise(verdicts)}, verdicts, EPISODES, simulated=False
    )
    text = page.read_text()
    assert "imulated" not in text
    assert "0 of 6 steps are wrong" in text
    with pytest.raises(ValueError, match="not made from these episodes"):
        write_page(
            tmp_path / "report.html", {"run": summarise(verdicts)}, wrong, EPISODES[::-1], simulated=False
        )
    with pytest.raises(ValueError, match="but 1 were given"):
        write_page(
            tmp_path / "report.html", {"run": summarise(verdicts)}, wrong, EPISODES[:1], simulated=False
        )


def test_tables_show_the_numbers(tmp_path: Path) -> None:
    good = summarise(verdicts_on(EPISODES))
    bad = summarise([dataclasses.replace(v, correct=v.kind == "tap") for v in verdicts_on(EPISODES)])
    narrow = Console(width=80, record=True, file=(tmp_path / "narrow").open("w"))
    narrow.print(table({"qwen-vl": good, "untuned": bad}, simulated=True))
    shown = narrow.export_text()
    assert re.search(r"overall +3 +6 +100.0 +100.0-100.0 +100.0 +100.0 +100.0 +0.0", shown)
    assert {"qwen-vl", "untuned"} <= set(shown.split())
    console = Console(width=200, record=True, quiet=False, file=(tmp_path / "out").open("w"))
    console.print(table({"oracle": good, "[red]tap[/red]": bad}, simulated=True))
    console.print(kind_table({"oracle": good, "[red]tap[/red]": bad}))
    text = console.export_text()
    assert "[red]tap[/red]" in text  # no markup of a name is obeyed
    assert "Simulated data" in text
    assert "offline, not live success" in text
    cells = [re.split(r"\s*[│|]\s*|\s+", line.strip(" │|")) for line in text.splitlines()]
    rows = [row[:4] for row in cells]
    assert rows.index(["A", "2", "4", "66.7"]) > rows.index(["[red]tap[/red]"])
    assert ["overall", "3", "6", "100.0", "100.0-100.0", "100.0", "100.0", "100.0", "0.0"] in cells
    assert re.search(r"swipe\W+100.0 \(1 of 1\)\W+0.0 \(0 of 1\)", text)


def test_protocols_stand_beside_each_other(tmp_path: Path) -> None:
    results = [
        Result("aitw", False, 0.5, {"A": 0.5}, 8, 0.125, 0.5, {}),
        Result("seeclick", True, 0.625, {"A": 0.625}, 7, 0.0, 0.525, {"text": 1.0}),
    ]
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    console.print(protocol_table(results))
    text = console.export_text()
    assert re.search(r"aitw\W+50.0\W+0.0\W+0.0\W+8\W+12.5", text)
    assert re.search(r"seeclick, with its defects\W+62.5 │ +\+2.5 │ +\+10.0 │ +7\W+0.0\W+text 100.0", text)


def test_published_figures_stand_beside_scores_of_recorded_data_alone(tmp_path: Path) -> None:
    verdicts = verdicts_on(EPISODES)
    summaries = {"run": summarise(verdicts)}
    pages = [
        write_page(
            tmp_path / f"{simulated}.html", summaries, verdicts, EPISODES, simulated, about={"data": "<b>"}
        )
        for simulated in (False, True)
    ]
    recorded, simulated = (page.read_text() for page in pages)
    for figure in ("78.9", "74.27", "73.7", "76.9", "73.1", "70"):
        assert f"<td>{figure}</td>" in recorded
    assert (
        recorded.index("Episode-wise splits")
        < recorded.index("BC-history")
        < recorded.index("SeeClick&#x27;s split")
    )
    assert recorded.index("SeeClick&#x27;s split") < recorded.index("ShowUI-2B")
    assert "UI-VLM" not in simulated
    for page in (recorded, simulated):
        assert "&lt;b&gt;" in page
        assert "Expected calibration error 0.500" in page


def test_errors_are_chosen_without_a_script(tmp_path: Path) -> None:
    says = ("tap at 90 90", "what?", "swipe from 10 10 to 10 90")
    verdicts = verdicts_on([episode("1", "A", TAP, UP, DONE)], says)
    page = write_page(
        tmp_path / "r.html", {"run": summarise(verdicts)}, verdicts, [episode("1", "A", TAP, UP, DONE)], True
    )
    text = page.read_text()
    for chosen in (
        "recorded-tap error-place",
        "recorded-swipe error-no-action",
        "recorded-complete error-kind",
    ):
        assert f'<figure class="{chosen}">' in text
    for group, name in (("recorded", "tap"), ("error", "no-action")):
        assert f'id="{group}-{name}"' in text
        assert (
            f"body:has(#{group}-{name}:checked) main figure:not(.{group}-{name}) {{ display: none }}" in text
        )


def changed(before: np.ndarray, image: Image.Image) -> np.ndarray:
    """(y, x) fractions of the pixels that differ."""
    after = np.asarray(image)
    assert after.shape == before.shape
    return np.argwhere((after != before).any(axis=2)) / before.shape[:2]


def test_drawn_actions_are_where_they_belong() -> None:
    pixels = np.full((600, 270, 3), 90, np.uint8)
    ring = changed(pixels, draw_action(pixels, Tap(Point(0.25, 0.75)), "red"))
    assert ring.mean(axis=0) == pytest.approx([0.25, 0.75], abs=0.01)
    arrow = changed(pixels, draw_action(pixels, Swipe(Point(0.9, 0.5), Point(0.1, 0.5)), "red"))
    assert arrow[:, 0].min() == pytest.approx(0.1, abs=0.02)
    assert arrow[:, 0].max() == pytest.approx(0.9, abs=0.02)
    assert abs(arrow[:, 1] - 0.5).max() < 0.06
    head = abs(arrow[:, 0] - 0.1) < 0.05
    assert (
        np.ptp(arrow[head, 1]) > np.ptp(arrow[~head & (arrow[:, 0] < 0.85), 1]) * 2
    )  # the head is at the end
    bar = changed(pixels, draw_action(pixels, Type("milk"), "red"))
    assert bar[:, 0].min() > 0.9
    assert (pixels == 90).all()  # the screen itself is not touched


@pytest.mark.parametrize(
    "action",
    [Tap(Point(-3, 9)), Tap(Point(float("nan"), 0.5)), Swipe(Point(0, 0), Point(float("inf"), 0)), Swipe(Point(1, 1), Point(1, 1)),
     Type("漢字😀\ud800\n" * 50), Press("back"), DONE],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("size", [(1, 1), (60, 27), (300, 130)])
def test_any_action_is_drawn_on_any_screen(action: Action, size: tuple[int, int]) -> None:
    image = draw_action(np.zeros((*size, 3), np.uint8), action, "#00ff00")
    assert image.size == size[::-1]
    assert caption(action)
    assert data_url(image).startswith("data:image/jpeg;base64,/9j/")

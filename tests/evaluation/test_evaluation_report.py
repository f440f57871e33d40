"""Reports: the page is safe and complete, tables show the rates, actions are drawn at their coordinates."""

import html.parser
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from tests.helpers.episodes import DONE, HOSTILE, SWIPE_UP, TAP, make_episode
from tests.helpers.episodes import EPISODES as ALL_EPISODES
from uivlm.actions.action import Type
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import Episode
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.protocols.score import ProtocolScore
from uivlm.evaluation.published_scores import DataKind, data_kind
from uivlm.evaluation.report import action_type_table, protocol_table, score_table
from uivlm.evaluation.report_html import write_eval_report
from uivlm.evaluation.verdict import Verdict, to_verdict

# Subset B without its last two steps.
EPISODES = [*ALL_EPISODES[:2], replace(ALL_EPISODES[2], steps=ALL_EPISODES[2].steps[:2])]


def verdicts_on(episodes: list[Episode], texts: tuple[str, ...] = ()) -> list[Verdict]:
    """Verdicts on the text of each step; default: the recorded actions."""
    verdicts = []
    for i, episode in enumerate(episodes):
        for t, step in enumerate(episode.steps):
            text = texts[t] if texts else ActionText().format(step.action)
            verdicts.append(to_verdict(i, episode, t, Decision(ActionText().parse(text), text, 0.5), 1.0))
    return verdicts


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
    episodes = [
        make_episode(f"{i}{HOSTILE}", HOSTILE, TAP, SWIPE_UP, Type(HOSTILE), goal=goal) for i in range(30)
    ]
    verdicts = verdicts_on(episodes, ("tap at 90 90", HOSTILE, "swipe from 10 10 to 10 90"))
    summaries = {HOSTILE: summarize(verdicts), "base": summarize(verdicts)}
    page = write_eval_report(
        tmp_path / "report.html", summaries, verdicts, episodes, kind="simulated", title=HOSTILE
    )
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert "script" not in tags.tags
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert len(tags.sources) == 40  # at most 40 errors of 90
    assert all(source.startswith("data:image/jpeg;base64,") for source in tags.sources)
    assert "<script>alert('x')</script>" in tags.text  # shown as the text it is
    assert "Simulated data" in tags.text
    assert "not online success" in tags.text
    assert "90 of 90 steps are wrong; 40 are shown" in tags.text
    assert verdicts[1].reason in tags.text
    assert page.stat().st_size < 2_000_000
    assert {file.name for file in tmp_path.iterdir()} == {"report.html"}


def test_verdicts_of_others_are_escaped_in_attributes(tmp_path: Path) -> None:
    """Their fields name the classes of figures."""
    (verdict,) = verdicts_on([make_episode("0", "general", TAP)], ("tap at 90 90",))
    summaries = {"run": summarize([verdict])}
    hostile: Any = replace(verdict, action_type=f'"{HOSTILE}', error=f'" onclick="x {HOSTILE}')
    episodes = [make_episode("0", "general", TAP)]
    tags = Tags()
    tags.feed(
        write_eval_report(
            tmp_path / "report.html", summaries, [hostile], episodes, kind="simulated"
        ).read_text()
    )
    assert "script" not in tags.tags
    assert not {name for name in tags.attributes if name.startswith("on")}


def test_a_page_of_recorded_data_is_not_called_simulated(tmp_path: Path) -> None:
    verdicts = verdicts_on(EPISODES)
    wrong = [replace(v, correct=False) for v in verdicts]
    page = write_eval_report(
        tmp_path / "report.html", {"run": summarize(verdicts)}, verdicts, EPISODES, kind="aitw"
    )
    text = page.read_text()
    assert "imulated" not in text
    assert "0 of 6 steps are wrong" in text
    with pytest.raises(ValueError, match="not made from these episodes"):
        write_eval_report(
            tmp_path / "report.html", {"run": summarize(verdicts)}, wrong, EPISODES[::-1], kind="aitw"
        )
    with pytest.raises(ValueError, match="got verdicts on episode 1 and 1 episodes"):
        write_eval_report(
            tmp_path / "report.html", {"run": summarize(verdicts)}, wrong, EPISODES[:1], kind="aitw"
        )


def test_tables_show_the_numbers(tmp_path: Path) -> None:
    good = summarize(verdicts_on(EPISODES))
    bad = summarize([replace(v, correct=v.action_type == "tap") for v in verdicts_on(EPISODES)])
    narrow = Console(width=80, record=True, file=(tmp_path / "narrow").open("w"))
    narrow.print(score_table({"qwen-vl": good, "untuned": bad}, kind="simulated"))
    shown = narrow.export_text()
    assert re.search(r"overall +3 +6 +100.0 +48.5-100.0 +100.0 +100.0 +100.0 +0.0", shown)
    assert {"qwen-vl", "untuned"} <= set(shown.split())
    console = Console(width=200, record=True, quiet=False, file=(tmp_path / "out").open("w"))
    console.print(score_table({"oracle": good, "[red]tap[/red]": bad}, kind="simulated"))
    console.print(action_type_table({"oracle": good, "[red]tap[/red]": bad}))
    text = console.export_text()
    assert "[red]tap[/red]" in text  # no markup of a name is obeyed
    assert "Simulated data" in text
    assert "offline scores, not online success" in text
    cells = [re.split(r"\s*[│|]\s*|\s+", line.strip(" │|")) for line in text.splitlines()]
    rows = [row[:4] for row in cells]
    assert rows.index(["A", "2", "4", "66.7"]) > rows.index(["[red]tap[/red]"])
    assert ["overall", "3", "6", "100.0", "48.5-100.0", "100.0", "100.0", "100.0", "0.0"] in cells
    assert re.search(r"swipe\W+100.0 \(1 of 1\)\W+0.0 \(0 of 1\)", text)


def test_protocol_table(tmp_path: Path) -> None:
    results = [
        ProtocolScore("aitw", False, 0.5, {"A": 0.5}, 8, 1, 2, 0.5, {}),
        ProtocolScore("seeclick", True, 0.625, {"A": 0.625}, 7, 0, 2, 0.525, {"text": 1.0}),
    ]
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    console.print(protocol_table(results, num_surplus=3))
    text = console.export_text()
    assert re.search(r"steps +missing +unreadable +surplus", text)
    assert re.search(r"aitw +50.0 +\+0.0 +\+0.0 +8 +1 +2 +3", text)
    assert re.search(r"seeclick, as released +62.5 +\+2.5 +\+10.0 +7 +0 +2 +3 +text 100.0", text)


def test_published_scores_are_shown_for_aitw_data_only(tmp_path: Path) -> None:
    verdicts = verdicts_on(EPISODES)
    summaries = {"run": summarize(verdicts)}
    pages = [
        write_eval_report(
            tmp_path / f"{kind}.html", summaries, verdicts, EPISODES, kind, run_info={"data": "<b>"}
        )
        for kind in get_args(DataKind)
    ]
    recorded, simulated, other = (page.read_text() for page in pages)
    for published in ("78.9", "74.27", "73.7", "76.9", "73.1", "70"):
        assert f"<td>{published}</td>" in recorded
    assert (
        recorded.index("Episode-wise splits")
        < recorded.index("BC-history")
        < recorded.index("SeeClick&#x27;s split")
    )
    assert recorded.index("SeeClick&#x27;s split") < recorded.index("ShowUI-2B")
    for page in (simulated, other):
        assert "UI-VLM" not in page
        assert "Published scores" not in page
    assert "imulated" not in other
    for page in (recorded, simulated, other):
        assert "&lt;b&gt;" in page
        assert "Expected calibration error 0.500" in page


@pytest.mark.parametrize(("source_format", "subsets", "kind"), [
    ("aitw", ["general", "google_apps"], "aitw"), ("seeclick", ["install", "single"], "aitw"),
    ("showui", ["web_shopping"], "aitw"), ("aitw", ["simulated"], "simulated"), ("aitw", ["my_app"], "other"),
    ("androidcontrol", ["android_control"], "other"), ("jsonl", ["general"], "other"),
    ("trace", ["trace"], "other"), ("aitz", ["general"], "other"), (None, ["general"], "other"),
])  # fmt: skip
def test_the_source_format_decides_what_data_is_aitw(
    source_format: str | None, subsets: list[str], kind: DataKind
) -> None:
    recorded_format = {} if source_format is None else {"source_format": source_format}
    meta = {"subsets": dict.fromkeys(subsets, 1), **recorded_format}
    assert data_kind(meta, simulated_subset="simulated") == kind


def test_tables_and_pages_tell_how_episodes_were_chosen(tmp_path: Path) -> None:
    note = "up to 2 of each subset, chosen by a hash of their ids"
    verdicts = verdicts_on(EPISODES)
    summaries = {"run": summarize(verdicts)}
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    console.print(score_table(summaries, "aitw", note))
    console.print(protocol_table([ProtocolScore("aitw", False, 0.5, {}, 8, 1, 2, 0.5, {})], note=note))
    assert " ".join(console.export_text().split()).count(note) == 2
    page = write_eval_report(tmp_path / "r.html", summaries, verdicts, EPISODES, "aitw", note=note)
    assert note in page.read_text()


def test_errors_are_filtered_without_a_script(tmp_path: Path) -> None:
    episodes = [make_episode("1", "A", TAP, SWIPE_UP, DONE)]
    verdicts = verdicts_on(episodes, ("tap at 90 90", "what?", "swipe from 10 10 to 10 90"))
    page = write_eval_report(
        tmp_path / "r.html", {"run": summarize(verdicts)}, verdicts, episodes, "simulated"
    )
    text = page.read_text()
    for classes in (
        "recorded-tap error-wrong_location",
        "recorded-swipe error-invalid",
        "recorded-complete error-wrong_type",
    ):
        assert f'<figure class="{classes}">' in text
    for group, name in (("recorded", "tap"), ("error", "invalid")):
        assert f'id="{group}-{name}"' in text
        assert (
            f"body:has(#{group}-{name}:checked) main figure:not(.{group}-{name}) {{ display: none }}" in text
        )

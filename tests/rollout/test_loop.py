"""The loop and the trace it leaves, with agents that say what a list says."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.helpers.scripted_loop import GARBLED, SWIPE, TAP, Phone, Scripted
from uivlm.actions.action import Finish, InvalidAction, Press, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.agents.agent import AgentError
from uivlm.episodes.episode import Step
from uivlm.rollout.loop import EXIT_STATUS, run_episode
from uivlm.rollout.trace_html import write_page
from uivlm.rollout.trace_writer import TraceWriter


def read(folder):
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    return json.loads((folder / "run.json").read_text()), rows, (folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("script", "phone", "status", "steps", "exit_status"),
    [
        ([TAP, Finish("complete")], Phone(), "complete", 2, 0),
        ([TAP, SWIPE, Finish("impossible")], Phone(), "impossible", 3, 3),
        ([TAP, TAP, TAP, TAP], Phone(), "max_steps", 3, 4),
        ([TAP, GARBLED, TAP], Phone(), "invalid_action", 1, 5),
        ([TAP, TAP], Phone(screens=1), "device_error", 1, 6),
        ([TAP, TAP], Phone(gestures=1), "device_error", 1, 6),
        ([TAP, AgentError("nobody answers")], Phone(), "agent_error", 1, 7),
        ([TAP, KeyboardInterrupt()], Phone(), "interrupted", 1, 130),
    ],
)
def test_every_ending(script, phone, status, steps, exit_status, tmp_path):
    phone.shades.clear()
    phone.done.clear()
    agent = Scripted(*script)
    outcome = run_episode(agent, phone, "a goal", 3, [TraceWriter(tmp_path / "run", "a goal")])
    assert (outcome.status, len(outcome.steps), outcome.exit_status) == (status, steps, exit_status)
    assert outcome.message
    assert agent.num_resets == 1
    run, rows, page = read(tmp_path / "run")
    assert (run["status"], run["message"], run["goal"]) == (status, outcome.message, "a goal")
    assert run["ended"] >= run["started"]
    assert run["num_steps"] == len(rows) == len(phone.shades) == page.count("<figure>")
    for row, screen in zip(rows, phone.shades, strict=True):
        assert np.array_equal(np.array(Image.open(tmp_path / "run" / row["screen"])), screen.pixels)
    assert len(list((tmp_path / "run").glob("*.png"))) == len(rows)
    assert sum(row["execute_ms"] is not None for row in rows) == steps


def test_endings_have_different_exit_statuses():
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)
    assert not {1, 2} & set(EXIT_STATUS.values())


def test_the_agent_is_handed_the_exact_history():
    phone = Phone()
    actions = [TAP, Type("a\n%s"), Press("back"), SWIPE, Finish("complete")]
    agent = Scripted(*actions)
    outcome = run_episode(agent, phone, "the goal", 9)
    for t, history in enumerate(agent.histories):
        assert history.goal == "the goal"
        assert history.screen is phone.shades[t]
        assert [step.screen for step in history.steps] == phone.shades[:t]
        assert [step.action for step in history.steps] == actions[:t]
        assert all(isinstance(step, Step) for step in history.steps)
    assert [step.action for step in outcome.steps] == actions
    assert phone.done == [
        Touch(((20, 50),), 60),
        TypeText("a\n%s"),
        PressKey("back"),
        Touch(((40, 90), (40, 10)), 500),
    ]


def test_nothing_is_performed_after_words_that_are_no_action(tmp_path):
    phone = Phone()
    agent = Scripted(GARBLED, TAP)
    outcome = run_episode(agent, phone, "goal", 5, [TraceWriter(tmp_path / "run", "goal")])
    assert phone.done == []
    assert len(agent.histories) == len(phone.shades) == 1
    assert "no coordinates" in outcome.message
    _, (row,), page = read(tmp_path / "run")
    assert row["action"] == {"type": "invalid", "text": "tap somewhere", "reason": "no coordinates"}
    assert row["gesture"] is None
    assert "no coordinates" in page


def test_a_limit_of_no_steps_is_refused():
    phone = Phone()
    with pytest.raises(ValueError, match="max_steps: got 0"):
        run_episode(Scripted(), phone, "goal", 0)
    assert phone.shades == []


def test_rows_say_what_was_done(tmp_path):
    run_episode(
        Scripted(TAP, SWIPE, Finish("complete")), Phone(), "goal", 5, [TraceWriter(tmp_path / "run", "goal")]
    )
    _, rows, _ = read(tmp_path / "run")
    assert [row["t"] for row in rows] == [0, 1, 2]
    assert rows[0]["action"] == {"type": "tap", "at": {"y": 0.5, "x": 0.25}}
    assert rows[0]["gesture"] == {"type": "touch", "points": [[20, 50]], "duration_ms": 60}
    assert rows[1]["gesture"]["points"] == [[40, 90], [40, 10]]
    assert rows[2]["gesture"] is None
    for row in rows:
        assert row["text"] == f"words {row['t'] + 1}"
        assert row["confidence"] == 0.5
        assert min(row[f"{name}_ms"] for name in ("screenshot", "inference", "execute")) >= 0


def test_rows_are_written_as_they_happen(tmp_path):
    folder = tmp_path / "run"
    seen = []

    class Looking(Scripted):
        def act(self, history) -> Decision:
            seen.append(
                (
                    len((folder / "trace.jsonl").read_text().splitlines()),
                    len(list(folder.glob("*.png"))),
                    json.loads((folder / "run.json").read_text())["status"],
                )
            )
            return super().act(history)

    run_episode(Looking(TAP, TAP, Finish("complete")), Phone(), "goal", 5, [TraceWriter(folder, "goal")])
    assert [(rows, status) for rows, _, status in seen] == [(0, "running"), (1, "running"), (2, "running")]
    assert all(screens >= rows for rows, screens, _ in seen), "a row's screen is there before it"


def test_a_defect_is_not_swallowed_and_the_trace_is_whole(tmp_path):
    with pytest.raises(KeyError, match="defect"):
        run_episode(
            Scripted(TAP, KeyError("defect")), Phone(), "goal", 5, [TraceWriter(tmp_path / "run", "goal")]
        )
    run, rows, page = read(tmp_path / "run")
    assert run["status"] == "crashed"
    assert "KeyError" in run["message"]
    assert [row["action"] is None for row in rows] == [False, True]
    assert "no decision" in page


def test_the_page_escapes_goals_and_words(tmp_path):
    evil = "<script>alert('1')</script> \"&amp; \ud800 \x1b[31m TITLE BODY"

    class Evil(Scripted):
        def act(self, history) -> Decision:
            super().act(history)
            return Decision(InvalidAction(evil, f"<img src=x onerror=1>{evil}"), evil)

    run_episode(Evil(TAP), Phone(), evil, 2, [TraceWriter(tmp_path / "run", evil, {"agent": "<b>evil</b>"})])
    page = (tmp_path / "run" / "index.html").read_bytes().decode()  # it is UTF-8
    assert not re.search(r"<script|<img src=x|<b>evil|\x1b", page)
    assert page.count("&lt;script&gt;") >= 4
    assert "&lt;b&gt;evil" in page
    assert page.count("<figure>") == 1
    assert re.search(r"<title>&lt;script&gt;.* TITLE BODY</title>", page)
    run, (row,), _ = read(tmp_path / "run")
    assert run["goal"] == row["text"] == evil.replace("\ud800", r"\ud800")  # files hold valid Unicode


def test_the_page_shows_where_the_finger_was(tmp_path):
    run_episode(
        Scripted(TAP, Finish("complete")), Phone(), "goal", 5, [TraceWriter(tmp_path / "run", "goal")]
    )
    _, _, page = read(tmp_path / "run")
    pictures = re.findall(r'src="data:image/[a-z]+;base64,([^"]+)"', page)
    assert len(pictures) == 2
    import base64
    import io

    drawn = np.array(Image.open(io.BytesIO(base64.b64decode(pictures[0]))).convert("RGB")).astype(int)
    assert drawn.shape == (100, 80, 3)
    assert abs(drawn[40:60, 10:30]).max() > 100  # the screen is all black but for the ring
    assert drawn[80:].max() < 30
    assert write_page(tmp_path / "run").read_text() == page  # and it can be made again


def test_a_used_folder_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    TraceWriter(tmp_path / "run", "goal")
    with pytest.raises(ValueError, match="already exists"):
        TraceWriter(tmp_path / "run", "goal")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="already exists"):
        TraceWriter(tmp_path / "file", "goal")

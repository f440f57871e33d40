"""A run as an animated GIF: every screen, what was done on it, for how long, and never too large."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_loop import GARBLED, SWIPE, TAP, Phone, Scripted

from uivlm.actions.action import Finish, Type
from uivlm.agents.agent import AgentError, Decision
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import task
from uivlm.episode import Episode, Screen
from uivlm.film import HEIGHT, LAST_MS, LONGEST_MS, MOST_PIXELS, SHORTEST_MS, WIDTH, durations, film
from uivlm.loop import run_episode
from uivlm.trace import Trace
from uivlm.trace_page import drawn
from uivlm.trace_read import read_trace


def saved(folder: Path, *said: object) -> Path:
    run_episode(Scripted(*said), Phone(), "goal", 9, Trace(folder, "goal"))
    return folder


def told(folder: Path, episode: Episode) -> Path:
    trace = Trace(folder, episode.goal)
    for t, step in enumerate(episode.steps):
        trace.saw(t, step.screen, 1.0)
        trace.decided(t, Decision(step.action, "words"), 2.0)
        trace.performed(t, None, 3.0)
    trace.ended("complete", "")
    return folder


def frames(path: Path) -> list[tuple[np.ndarray, int]]:
    """Pixels and milliseconds of each."""
    with Image.open(path, formats=["GIF"]) as film:
        found = []
        for i in range(film.n_frames):
            film.seek(i)
            found.append((np.array(film.convert("RGB")), film.info["duration"]))
        assert film.info["loop"] == 0
    return found


def test_every_step_is_shown_with_its_action(tmp_path: Path) -> None:
    """Seen beside what the trace says: each frame is the screen with the action on it, in fewer colours."""
    episode = record(task(3, "test"))
    folder = told(tmp_path / "run", episode)
    found = frames(film(folder, tmp_path / "a" / "film.gif"))
    rows = read_trace(folder).rows
    assert len(found) == len(rows) == len(episode.steps)
    height, width = episode.steps[0].screen.pixels.shape[:2]
    scale = min(1, WIDTH / width, HEIGHT / height)
    for row, step, (pixels, _) in zip(rows, episode.steps, found, strict=True):
        assert pixels.shape == (round(scale * height), round(scale * width), 3)
        wanted = drawn(row).resize((pixels.shape[1], pixels.shape[0]))
        plain = Image.fromarray(step.screen.pixels).resize(wanted.size)
        away, from_plain = (np.abs(pixels - np.asarray(each, np.int16)) for each in (wanted, plain))
        assert away.mean() < 3
        assert away.mean() < from_plain.mean()  # the action is on it
    assert [ms for _, ms in found] == [SHORTEST_MS] * (len(rows) - 1) + [LAST_MS]
    assert (tmp_path / "a" / "film.gif").stat().st_size < 40_000 * len(rows)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["film.gif"]


def test_frames_last_as_long_as_their_step(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", TAP, SWIPE, TAP, Finish("complete"))
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    for row, (agent, perform, screen) in zip(
        rows, [(900, 300, 0), (5000, 0, 0), (1, 1, 0), (0, 0, 1)], strict=True
    ):
        row |= {"agent_ms": agent, "perform_ms": perform, "screen_ms": screen}
    (folder / "trace.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wanted = [1200, LONGEST_MS, SHORTEST_MS, LAST_MS]
    assert durations(read_trace(folder)) == wanted
    assert [ms for _, ms in frames(film(folder, tmp_path / "film.gif"))] == wanted


@pytest.mark.parametrize("said", [[GARBLED], [AgentError("no")], [Type('a "\n 北京 \ud800')], [TAP]])
def test_runs_that_ended_badly_are_shown(said: list[object], tmp_path: Path) -> None:
    assert len(frames(film(saved(tmp_path / "run", *said, AgentError("no")), tmp_path / "film.gif"))) >= 1


def test_a_turned_phone_is_shown_whole(tmp_path: Path) -> None:
    white = [Screen(np.full(size, 255, np.uint8)) for size in ((1200, 500, 3), (500, 1200, 3), (60, 30, 3))]
    trace = Trace(tmp_path / "run", "goal")
    for t, screen in enumerate(white):
        trace.saw(t, screen, 1.0)
    trace.ended("stopped", "")
    found = [pixels for pixels, _ in frames(film(tmp_path / "run", tmp_path / "film.gif"))]
    assert {pixels.shape for pixels in found} == {(800, 360, 3)}
    shares = [(pixels.min(axis=2) > 200).mean() for pixels in found]
    assert shares[0] == pytest.approx(1200 / 500 * 333 * 333 / (800 * 360), abs=0.01)
    assert shares[1] == pytest.approx(360 * 150 / (800 * 360), abs=0.01)
    assert shares[2] == pytest.approx(60 * 30 / (800 * 360), abs=0.01)


def test_a_long_run_has_small_frames(tmp_path: Path) -> None:
    screens = [Screen(np.full((900, 400, 3), 3 * i % 256, np.uint8)) for i in range(80)]
    trace = Trace(tmp_path / "run", "goal")
    for t, screen in enumerate(screens):
        trace.saw(t, screen, 1.0)
    trace.ended("stopped", "")
    found = [pixels for pixels, _ in frames(film(tmp_path / "run", tmp_path / "film.gif"))]
    assert len(found) == 80
    assert sum(pixels.shape[0] * pixels.shape[1] for pixels in found) == pytest.approx(MOST_PIXELS, rel=0.01)


def test_what_cannot_be_shown_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "film.gif"
    with pytest.raises(ValueError, match=r"nowhere is no trace: it has no run\.json"):
        film(tmp_path / "nowhere", out)
    Trace(tmp_path / "empty", "goal")
    with pytest.raises(ValueError, match="nothing was seen in the run in .*empty: there is nothing to show"):
        film(tmp_path / "empty", out)
    folder = saved(tmp_path / "run", TAP, Finish("complete"))
    with pytest.raises(ValueError, match=r"film\.mp4 is no name of a GIF: .*film\.gif"):
        film(folder, tmp_path / "film.mp4")
    (folder / "001.png").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"001\.png is damaged"):
        film(folder, out)
    assert not out.exists()

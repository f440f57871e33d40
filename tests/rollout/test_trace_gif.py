"""A run as an animated GIF: every screen, what was done on it, for how long, and never too large."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.scripted_loop import GARBLED, SWIPE, TAP, Phone, Scripted
from uivlm.actions.action import Finish, Type
from uivlm.actions.decision import Decision
from uivlm.agents.agent import AgentError
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.episode import Episode, Screen
from uivlm.rollout.loop import run_episode
from uivlm.rollout.trace_gif import (
    LAST_FRAME_MS,
    MAX_FRAME_MS,
    MAX_HEIGHT,
    MAX_TOTAL_PIXELS,
    MAX_WIDTH,
    MIN_FRAME_MS,
    frame_durations_ms,
    write_gif,
)
from uivlm.rollout.trace_html import draw_step
from uivlm.rollout.trace_reader import read_trace
from uivlm.rollout.trace_writer import TraceWriter


def saved(folder: Path, *script: object) -> Path:
    run_episode(Scripted(*script), Phone(), "goal", 9, [TraceWriter(folder, "goal")])
    return folder


def record(folder: Path, episode: Episode) -> Path:
    trace = TraceWriter(folder, episode.goal)
    for t, step in enumerate(episode.steps):
        trace.on_screen(t, step.screen, 1.0)
        trace.on_decision(t, Decision(step.action, "words"), 2.0)
        trace.on_action(t, None, 3.0)
    trace.on_end("complete", "")
    return folder


def frames(path: Path) -> list[tuple[np.ndarray, int]]:
    """Pixels and milliseconds of each."""
    with Image.open(path, formats=["GIF"]) as film:
        result = []
        for i in range(film.n_frames):
            film.seek(i)
            result.append((np.array(film.convert("RGB")), film.info["duration"]))
        assert film.info["loop"] == 0
    return result


def test_every_step_is_shown_with_its_action(tmp_path: Path) -> None:
    """Seen beside what the trace says: each frame is the screen with the action on it, in fewer colors."""
    episode = record_demonstration(make_task(3, "test"))
    folder = record(tmp_path / "run", episode)
    result = frames(write_gif(folder, tmp_path / "a" / "film.gif"))
    run = read_trace(folder)
    rows = run.steps
    assert len(result) == len(rows) == len(episode.steps)
    height, width = episode.steps[0].screen.pixels.shape[:2]
    scale = min(1, MAX_WIDTH / width, MAX_HEIGHT / height)
    for row, step, (pixels, _) in zip(rows, episode.steps, result, strict=True):
        assert pixels.shape == (round(scale * height), round(scale * width), 3)
        expected = draw_step(run, row).resize((pixels.shape[1], pixels.shape[0]))
        plain = Image.fromarray(step.screen.pixels).resize(expected.size)
        away, from_plain = (np.abs(pixels - np.asarray(each, np.int16)) for each in (expected, plain))
        assert away.mean() < 3
        assert away.mean() < from_plain.mean()  # the action is on it
    assert [ms for _, ms in result] == [MIN_FRAME_MS] * (len(rows) - 1) + [LAST_FRAME_MS]
    assert (tmp_path / "a" / "film.gif").stat().st_size < 40_000 * len(rows)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["film.gif"]


def test_frames_last_as_long_as_their_step(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", TAP, SWIPE, TAP, Finish("complete"))
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    for row, (agent, perform, screen) in zip(
        rows, [(900, 300, 0), (5000, 0, 0), (1, 1, 0), (0, 0, 1)], strict=True
    ):
        row |= {"inference_ms": agent, "execute_ms": perform, "screenshot_ms": screen}
    (folder / "trace.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    expected = [1200, MAX_FRAME_MS, MIN_FRAME_MS, LAST_FRAME_MS]
    assert frame_durations_ms(read_trace(folder)) == expected
    assert [ms for _, ms in frames(write_gif(folder, tmp_path / "film.gif"))] == expected


@pytest.mark.parametrize("script", [[GARBLED], [AgentError("no")], [Type('a "\n 北京 \ud800')], [TAP]])
def test_runs_that_ended_badly_are_shown(script: list[object], tmp_path: Path) -> None:
    assert (
        len(frames(write_gif(saved(tmp_path / "run", *script, AgentError("no")), tmp_path / "film.gif"))) >= 1
    )


def test_a_turned_phone_is_shown_whole(tmp_path: Path) -> None:
    white = [Screen(np.full(size, 255, np.uint8)) for size in ((1200, 500, 3), (500, 1200, 3), (60, 30, 3))]
    trace = TraceWriter(tmp_path / "run", "goal")
    for t, screen in enumerate(white):
        trace.on_screen(t, screen, 1.0)
    trace.on_end("stopped", "")
    result = [pixels for pixels, _ in frames(write_gif(tmp_path / "run", tmp_path / "film.gif"))]
    assert {pixels.shape for pixels in result} == {(800, 360, 3)}
    shares = [(pixels.min(axis=2) > 200).mean() for pixels in result]
    assert shares[0] == pytest.approx(1200 / 500 * 333 * 333 / (800 * 360), abs=0.01)
    assert shares[1] == pytest.approx(360 * 150 / (800 * 360), abs=0.01)
    assert shares[2] == pytest.approx(60 * 30 / (800 * 360), abs=0.01)


@pytest.mark.slow
def test_a_long_run_has_small_frames(tmp_path: Path) -> None:
    screens = [Screen(np.full((900, 400, 3), 3 * i % 256, np.uint8)) for i in range(80)]
    trace = TraceWriter(tmp_path / "run", "goal")
    for t, screen in enumerate(screens):
        trace.on_screen(t, screen, 1.0)
    trace.on_end("stopped", "")
    result = [pixels for pixels, _ in frames(write_gif(tmp_path / "run", tmp_path / "film.gif"))]
    assert len(result) == 80
    assert sum(pixels.shape[0] * pixels.shape[1] for pixels in result) == pytest.approx(
        MAX_TOTAL_PIXELS, rel=0.01
    )


def test_what_cannot_be_shown_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "film.gif"
    with pytest.raises(ValueError, match=r"nowhere is not a trace: it has no run\.json"):
        write_gif(tmp_path / "nowhere", out)
    TraceWriter(tmp_path / "empty", "goal")
    with pytest.raises(ValueError, match="the run in .*empty has no screens"):
        write_gif(tmp_path / "empty", out)
    folder = saved(tmp_path / "run", TAP, Finish("complete"))
    with pytest.raises(ValueError, match=r"got .*film\.mp4; expected a GIF file.*film\.gif"):
        write_gif(folder, tmp_path / "film.mp4")
    (folder / "001.png").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"001\.png is damaged"):
        write_gif(folder, out)
    assert not out.exists()

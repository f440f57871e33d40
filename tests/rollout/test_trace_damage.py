"""A damaged trace is refused in one sentence that names the damage."""

import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data_prep.formats.trace import find, read
from data_prep.source import UnusableStepError
from tests.helpers.scripted_loop import SWIPE, TAP, Phone, Scripted
from uivlm.actions.action import Finish
from uivlm.rollout.loop import run_episode
from uivlm.rollout.trace_reader import read_trace
from uivlm.rollout.trace_writer import TraceWriter


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    run_episode(
        Scripted(TAP, SWIPE, Finish("complete")), Phone(), "goal", 9, [TraceWriter(tmp_path / "run", "goal")]
    )
    return tmp_path / "run"


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=re.escape(str(folder))) as refused:
        read_trace(folder)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


def change_row(folder: Path, number: int, **changes: object) -> None:
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    rows[number] |= changes
    (folder / "trace.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def change_run(folder: Path, **changes: object) -> None:
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | changes))


@pytest.mark.parametrize("name", ["run.json", "trace.jsonl", "001.png"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_only_plain_files_are_opened(whole: Path, tmp_path: Path, name: str, kind: str) -> None:
    (whole / name).rename(tmp_path / name)
    match kind:
        case "link":
            (whole / name).symlink_to(tmp_path / name)
        case "pipe":
            os.mkfifo(whole / name)  # opening it would wait for a writer
        case _:
            (whole / name).symlink_to("/dev/zero")
    assert name in refusal(whole)
    found = [record for part in find(str(tmp_path)) for record in read(part)] if name != "trace.jsonl" else []
    for step in found:
        if name == "run.json" or step.step_id == 1:
            with pytest.raises(UnusableStepError, match=re.escape(name)):
                step.load()


def test_what_is_missing_is_named(whole: Path) -> None:
    picture = (whole / "001.png").read_bytes()
    (whole / "001.png").unlink()
    assert "row 1" in refusal(whole)
    assert "001.png is missing" in refusal(whole)
    for kept in (0, 20, len(picture) - 20):
        (whole / "001.png").write_bytes(picture[:kept])
        assert "001.png is damaged" in refusal(whole)
    (whole / "001.png").write_bytes(picture.replace(b"IDAT", b"IDAX"))
    assert "001.png is damaged" in refusal(whole)
    flipped = bytearray(picture)
    flipped[len(picture) // 2] ^= 1
    (whole / "001.png").write_bytes(flipped)
    assert "001.png is damaged" in refusal(whole)
    Image.fromarray(np.zeros((10, 20, 3), np.uint8)).save(whole / "001.png")
    assert "20 x 10 pixels; expected 80 x 100" in refusal(whole)
    (whole / "001.png").write_bytes(picture)
    read_trace(whole)
    (whole / "trace.jsonl").unlink()
    assert "it has no trace.jsonl" in refusal(whole)
    (whole / "run.json").unlink()
    assert "it has no run.json" in refusal(whole)
    assert "is not a trace" in refusal(whole.parent)
    assert "is not a trace" in refusal(whole / "nowhere")


@pytest.mark.parametrize(
    "name",
    ["../out.png", "/etc/passwd", "a/b.png", "..", "", "x" * 300 + ".png", "a\0.png", "link.png", "run.json"],
)
def test_a_picture_lies_in_the_folder(whole: Path, name: str) -> None:
    (whole.parent / "out.png").write_bytes((whole / "001.png").read_bytes())
    (whole / "link.png").symlink_to(whole.parent / "out.png")
    change_row(whole, 1, screen=name)
    assert "step.screen" in refusal(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"t": 2}, "step.t: got 2; expected 1"),
        ({"t": "1"}, "step.t: expected an integer, got '1'"),
        ({"t": True}, "step.t: expected an integer, got True"),
        ({"screen": None}, "step.screen: expected a string, got None"),
        ({"height": 99}, "80 x 100 pixels; expected 80 x 99"),
        ({"width": "8"}, "step.width: expected an integer"),
        ({"width": 8.5}, "step.width: expected an integer"),
        ({"text": 3}, "step.text: expected a string, got 3"),
        ({"confidence": "0.5"}, "step.confidence: expected a number"),
        ({"execute_ms": []}, "step.execute_ms: expected a number"),
        ({"actor": "robot"}, "step.actor: expected 'agent' or 'human', got 'robot'"),
        ({"action": {"type": "long_press"}}, "step.action.type: expected one of"),
        ({"action": "tap"}, "step.action"),
        ({"gesture": {"type": "touch", "points": [], "ms": 1}}, "step.gesture"),
        ({"proposed": {"action": None}}, "step.proposed"),
        ({"proposed": 3}, "step.proposed"),
        ({"words": "x"}, "step.words: unknown field"),
    ],
)  # fmt: skip
def test_a_damaged_row_is_named(whole: Path, changes: dict[str, object], says: str) -> None:
    change_row(whole, 1, **changes)
    assert says in refusal(whole)
    assert "row 1 of" in refusal(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"goal": None}, "run.goal: expected a string, got None"),
        ({"status": 3}, "run.status"),
        ({"status": "limit"}, "run.status"),
        ({"actor": []}, "run.actor"),
        ({"ended": 5}, "run.ended: expected a string, got 5"),
        ({"versions": "3.11"}, "run.versions"),
        ({"judged": "goal reached"}, "run.judged: unknown field"),
        ({"version": None}, "was written by uivlm 0.1: record the run again"),
        ({"version": 3}, "version: got 3; expected 2"),
    ],
)
def test_a_damaged_run_is_named(whole: Path, changes: dict[str, object], says: str) -> None:
    change_run(whole, **changes)
    assert says in refusal(whole)


def test_damaged_files_are_named(whole: Path) -> None:
    rows, run = (whole / "trace.jsonl").read_bytes(), (whole / "run.json").read_bytes()
    for text in (b"[]", b"3", b"", b"\xff", b"[" * 100_000, run[:-3]):
        (whole / "run.json").write_bytes(text)
        assert "run.json is damaged" in refusal(whole)
    (whole / "run.json").write_bytes(run)
    first, second, third, _ = rows.split(b"\n")
    for lines in (
        [first, b"", third, b""],
        [first, second[:-4], third, b""],
        [b"[]", second, b""],
        [first, b"\xff", b""],
    ):
        (whole / "trace.jsonl").write_bytes(b"\n".join(lines))
        assert re.search(r"row [01] of .* is damaged", refusal(whole))
    (whole / "trace.jsonl").write_bytes(rows[:-1])
    assert "row 2 of" in refusal(whole)
    assert "its end is missing" in refusal(whole)
    (whole / "trace.jsonl").write_bytes(first + b"\n" + third + b"\n")
    assert "step.t: got 2; expected 1" in refusal(whole)


def test_no_damage_is_a_crash(whole: Path) -> None:
    """Bytes changed at random: it is read, or refused in one sentence."""
    rng = random.Random(5)
    kept = {path: path.read_bytes() for path in whole.iterdir() if path.suffix != ".html"}
    refused: list[str] = []
    for _ in range(400):
        path = rng.choice(sorted(kept))
        data = bytearray(kept[path])
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'\x00\xff{}[]":,0n')
        path.write_bytes(data[: rng.choice((None, rng.randrange(len(data))))])
        try:
            run = read_trace(whole)
            for step in run.steps:
                run.pixels(step)
        except ValueError as error:
            refused.append(str(error))
        path.write_bytes(kept[path])
    assert len(refused) > 100
    assert not any("\n" in sentence for sentence in refused)
    read_trace(whole)

"""Traces as data: what was written is read again, damage is one sentence, demonstrations become training data, pages are safe."""

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from test_loop import GARBLED, SWIPE, TAP, Phone, Scripted
from typer.testing import CliRunner

from uivlm.actions.action import Action, Finish, Press, Type
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.actions.language import Language, NotAnAction
from uivlm.actions.told import UnknownKindError, told, untold, untold_gesture
from uivlm.agents.agent import AgentError, Decision
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import task
from uivlm.episode import Screen, Step
from uivlm.loop import run_episode
from uivlm.safety.halt import Halt, TakenOver
from uivlm.sentences.sentence import Grammar, Words
from uivlm.sentences.store import Prepared
from uivlm.trace import Trace
from uivlm.trace_page import write_index, write_page
from uivlm.trace_read import read_trace

ROOT = Path(__file__).parents[1]
HARD = 'a "quoted" \\ 北京 🚀\nline\ttab \ud800 </script>'
ACTIONS = [TAP, SWIPE, Type(HARD), Type(""), *map(Press, ("back", "home", "enter"))]
ACTIONS += [Finish("complete"), Finish("impossible"), NotAnAction(HARD, "no")]
GESTURES = [Touch(((0, 0),), 60), Touch(((1, 2), (3, 4)), 500), Keys(HARD), Button("back")]


# -- actions as JSON -----------------------------------------------------------------------------------------------


def test_every_action_and_gesture_comes_back() -> None:
    assert {type(each) for each in ACTIONS} == {*get_args(Action), NotAnAction}
    assert {type(each) for each in GESTURES} == {*get_args(Gesture)}
    for action in ACTIONS:
        assert untold(json.loads(json.dumps(told(action)))) == action
    for gesture in GESTURES:
        assert untold_gesture(json.loads(json.dumps(told(gesture)))) == gesture


JUNK = [
    None,
    True,
    1,
    10**400,
    -1.5,
    "x",
    [],
    [1, 2],
    {},
    {"kind": 3},
    {"y": "0", "x": 0},
    {"y": True, "x": 0},
    {"x": 0},
]


@pytest.mark.parametrize("whole", [*map(told, ACTIONS), *map(told, GESTURES)], ids=str)
def test_no_junk_is_an_action(whole: dict[str, object]) -> None:
    """Any value anywhere: an action, or one ValueError."""
    decode = untold_gesture if whole["kind"] in ("Touch", "Keys", "Button") else untold
    for name in whole:
        for junk in JUNK:
            if type(junk) is type(whole[name]):
                continue  # another text or number of the same type may well be one
            with pytest.raises(ValueError, match=r"stands|point|known|pixel"):
                decode({**whole, name: junk})
        if name != "kind":
            with pytest.raises(UnknownKindError, match="not whole"):
                decode({key: value for key, value in whole.items() if key != name})
    for junk in JUNK:
        with pytest.raises(ValueError, match=r"one (action|gesture)"):
            decode(junk)
    with pytest.raises(UnknownKindError, match="'LongPress' is no"):
        decode(whole | {"kind": "LongPress"})


# -- writing and reading -------------------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path) -> None:
    phone = Phone()
    said = [*ACTIONS[:7], Finish("complete")]
    outcome = run_episode(Scripted(*said), phone, HARD, 20, Trace(tmp_path / "run", HARD, {"agent": "<x>"}))
    run = read_trace(tmp_path / "run")
    assert (run.goal, run.by, run.status, run.message) == (HARD, "agent", "complete", outcome.message)
    assert run.ended_well
    assert run.facts == {"agent": "<x>"}
    assert run.ended is not None
    assert run.ended >= run.started
    assert "uivlm" in run.versions
    assert [row.action for row in run.rows] == said
    assert [row.gesture for row in run.rows] == [*phone.done, None]
    for t, row in enumerate(run.rows):
        assert (row.t, row.by, row.words, row.confidence, row.proposed) == (
            t,
            "agent",
            f"words {t + 1}",
            0.5,
            None,
        )
        assert np.array_equal(row.pixels(), phone.shades[t].pixels)
        assert row.done


@pytest.mark.parametrize(
    ("said", "phone", "actions", "done"),
    [
        ([TAP, GARBLED], Phone(), [TAP, GARBLED], [True, False]),
        ([TAP, AgentError("no")], Phone(), [TAP, None], [True, False]),
        ([TAP, TAP], Phone(gestures=1), [TAP, TAP], [True, False]),
        ([TAP, TAP], Phone(screens=1), [TAP], [True]),
        ([TAP], Phone(screens=0), [], []),
        ([Halt("denied", "not confirmed")], Phone(), [None], [False]),
    ],
)
def test_runs_that_end_badly_are_read(said, phone, actions, done, tmp_path: Path) -> None:
    phone.shades.clear()
    phone.done.clear()
    outcome = run_episode(Scripted(*said), phone, "goal", 9, Trace(tmp_path / "run", "goal"))
    run = read_trace(tmp_path / "run")
    assert run.status == outcome.status
    assert not run.ended_well
    assert [row.action for row in run.rows] == actions
    assert [row.done for row in run.rows] == done


class TakenFrom(Phone):
    """At the first gesture a person takes over and does these steps instead."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps: tuple[Step, ...] | None = steps

    def perform(self, gesture) -> None:
        if self.steps is not None:
            steps, self.steps = self.steps, None
            raise TakenOver(steps)
        super().perform(gesture)


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_what_a_person_did_instead(num_steps: int, tmp_path: Path) -> None:
    by_hand = [
        Step(Screen(np.full((100, 80, 3), 200 + i, np.uint8)), Press("back")) for i in range(num_steps)
    ]
    phone = TakenFrom(*by_hand)
    agent = Scripted(TAP, SWIPE, Finish("complete"))
    outcome = run_episode(agent, phone, "goal", 9, Trace(tmp_path / "run", "goal"))
    run = read_trace(tmp_path / "run")
    assert [row.action for row in run.rows] == [step.action for step in outcome.steps]
    assert [row.by for row in run.rows] == ["person"] * num_steps + ["agent"] * 2
    assert [row.proposed for row in run.rows] == [TAP, *[None] * (num_steps + 1)]
    for row, step in zip(run.rows, outcome.steps, strict=True):
        assert np.array_equal(row.pixels(), step.screen.pixels)
    page = (tmp_path / "run" / "index.html").read_text()
    assert page.count("instead of tap at 0.500 0.250") == 1
    assert page.count("by a person") == num_steps


def test_a_demonstration_is_a_run_of_a_person(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "shown", "goal", by="person")
    run_episode(Scripted(TAP, Finish("complete")), Phone(), "goal", 9, trace)
    run = read_trace(tmp_path / "shown")
    assert run.by == "person"
    assert [row.by for row in run.rows] == ["person", "person"]
    assert json.loads((tmp_path / "shown" / "run.json").read_text())["by"] == "person"


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, "tests")
from test_loop import TAP, Phone, Scripted
from uivlm.loop import run_episode
from uivlm.trace import Trace
class Deadly(Scripted):
    def act(self, history):
        if len(history.steps) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(history)
run_episode(Deadly(*[TAP] * 9), Phone(), "goal", 9, Trace(Path(sys.argv[1]), "goal"))
"""


def test_a_killed_run_is_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "run")], cwd=ROOT, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    rows = tmp_path / "run" / "trace.jsonl"
    # the last screen was seen, and perhaps written; nothing was decided on it
    assert len(list((tmp_path / "run").glob("*.png"))) in (3, 4)
    for torn in (b"", b'{"t": 3, "scr', rows.read_bytes().split(b"\n")[0][:-1]):
        whole = rows.read_bytes()
        rows.write_bytes(whole + torn)
        run = read_trace(tmp_path / "run")
        assert (run.status, run.ended, run.ended_well) == ("running", None, False)
        assert [row.action for row in run.rows] == [TAP] * 3
        rows.write_bytes(whole)
    assert write_page(tmp_path / "run").read_text().count("<figure>") == 3


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    run_episode(Scripted(TAP, SWIPE, Finish("complete")), Phone(), "goal", 9, Trace(tmp_path / "run", "goal"))
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
    assert "20 x 10 pixels, not 80 x 100" in refusal(whole)
    (whole / "001.png").write_bytes(picture)
    read_trace(whole)
    (whole / "trace.jsonl").unlink()
    assert "it has no trace.jsonl" in refusal(whole)
    (whole / "run.json").unlink()
    assert "it has no run.json" in refusal(whole)
    assert "is no trace" in refusal(whole.parent)
    assert "is no trace" in refusal(whole / "nowhere")


@pytest.mark.parametrize(
    "name",
    ["../out.png", "/etc/passwd", "a/b.png", "..", "", "x" * 300 + ".png", "a\0.png", "link.png", "run.json"],
)
def test_a_picture_lies_in_the_folder(whole: Path, name: str) -> None:
    (whole.parent / "out.png").write_bytes((whole / "001.png").read_bytes())
    (whole / "link.png").symlink_to(whole.parent / "out.png")
    change_row(whole, 1, screen=name)
    assert "no PNG file in the trace's folder" in refusal(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"t": 2}, "it says that it is row 2"),
        ({"t": "1"}, "its t is str, not int"),
        ({"t": True}, "its t is bool, not int"),
        ({"screen": None}, "its screen is NoneType, not str"),
        ({"height": 99}, "80 x 100 pixels, not 80 x 99"),
        ({"width": 8.0}, "its width is float"),
        ({"words": 3}, "its words is int, not str"),
        ({"confidence": "0.5"}, "its confidence is str, not float"),
        ({"perform_ms": []}, "its perform_ms is list"),
        ({"by": "robot"}, "its by is neither agent nor person"),
        ({"action": {"kind": "LongPress"}}, "its action is no action: 'LongPress'"),
        ({"action": "Tap"}, "its action is no action"),
        ({"gesture": {"kind": "Touch", "path": [], "ms": 1}}, "its gesture is no gesture"),
        ({"proposed": {"action": None}}, "its proposed is no proposed"),
        ({"proposed": 3}, "its proposed is no proposed"),
    ],
)  # fmt: skip
def test_a_damaged_row_is_named(whole: Path, changes: dict[str, object], says: str) -> None:
    change_row(whole, 1, **changes)
    assert says in refusal(whole)
    assert "row 1 of" in refusal(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"goal": None}, "its goal is NoneType"),
        ({"status": 3}, "its status is int"),
        ({"by": []}, "its by is neither"),
        ({"ended": 5}, "its ended is int"),
        ({"versions": "3.11"}, "its versions is str, not dict"),
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
    assert "it says that it is row 2" in refusal(whole)


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
            for row in read_trace(whole).rows:
                row.pixels()
        except ValueError as error:
            refused.append(str(error))
        path.write_bytes(kept[path])
    assert len(refused) > 100
    assert not any("\n" in sentence for sentence in refused)
    read_trace(whole)


# -- pages ---------------------------------------------------------------------------------------------------------

EVIL = "<script>alert('1')</script><img src=x onerror=1> \"&amp; \ud800 \x1b[31m"


def test_the_index_lists_every_trace(tmp_path: Path) -> None:
    for name, by, said in (
        ("b", "agent", [TAP, Finish("complete")]),
        ("a/deep & <b>x\"'#?%41", "person", [TAP, TAP, Finish("impossible")]),
        ("c", "agent", [GARBLED]),
    ):
        trace = Trace(tmp_path / name, f"{name} {EVIL}", by=by)
        run_episode(Scripted(*said), Phone(), "goal", 9, trace)
    Trace(tmp_path / "running", EVIL)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text('{"goal": "<b>torn')
    page = write_index(tmp_path).read_bytes().decode()
    assert not re.search(r"<script|<img|<b>|\x1b", page)
    assert "<title>5 traces</title>" in page
    lines = re.findall(r"<tr><td>.*?</tr>", page, re.DOTALL)
    assert len(lines) == 5
    links = [unquote(link) for link in re.findall(r'href="([^"]*)"', page)]
    assert sorted(links) == ["a/deep & <b>x\"'#?%41/index.html", "b/index.html", "c/index.html"]
    assert all((tmp_path / link).is_file() for link in links)
    deep, good, garbled, running, torn = lines
    assert all(word in deep for word in (">person<", ">impossible<", ">3<"))
    assert all(word in good for word in (">agent<", ">complete<", ">2<"))
    assert "not an action: step 1" in garbled
    assert ">running<" in running
    assert "href" not in running + torn
    assert "run.json is damaged" in torn
    assert write_index(tmp_path).read_bytes().decode() == page


def test_the_index_of_nothing(tmp_path: Path) -> None:
    assert "0 traces" in write_index(tmp_path).read_text()
    with pytest.raises(ValueError, match="there is no folder"):
        write_index(tmp_path / "nowhere")
    Trace(tmp_path / "run", "goal")
    with pytest.raises(ValueError, match="is itself a trace"):
        write_index(tmp_path / "run")


# -- training data and scores --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Demonstrations on the simulated phone with two runs that ended badly among them, and the data prepared of them."""
    from data_prep.__main__ import app

    root = tmp_path_factory.mktemp("shown")
    for seed in range(6):
        episode = record(task(seed, "train"))
        good = seed < 4
        trace = Trace(root / "traces" / f"{seed:04d}", episode.goal, by="person" if good else "agent")
        for t, step in enumerate(episode.steps if good else episode.steps[:1]):
            trace.saw(t, step.screen, 1.0)
            trace.decided(t, Decision(step.action, "by hand"), 2.0)
            trace.performed(t, None, 3.0)
        trace.ended(episode.steps[-1].action.status if good else ("limit", "stopped")[seed % 2], "")
    words = [
        str(root / "traces"),
        str(root / "data"),
        "--format",
        "trace",
        "--codec",
        "png",
        "--workers",
        "1",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return root / "traces", root / "data"


def test_demonstrations_are_training_data(shown: tuple[Path, Path]) -> None:
    """Sentences whose trained words are exactly the actions; nothing of the runs that ended badly."""
    data = Prepared.open(shown[1])
    prepared = {e.goal: e for split in data.meta["splits"] for e in data.episodes(split)}
    episodes = [record(task(seed, "train")) for seed in range(4)]
    assert sorted(prepared) == sorted(episode.goal for episode in episodes)
    for episode in episodes:
        found = prepared[episode.goal]
        assert [step.action for step in found.steps] == [rounded(step.action) for step in episode.steps]
        pieces = [piece for window in Grammar().windows(found) for piece in Grammar().sentence(window)]
        trained = [piece.text for piece in pieces if isinstance(piece, Words) and piece.trained]
        assert trained == [Language().say(step.action) for step in episode.steps]
        for step, gold in zip(found.steps, episode.steps, strict=True):
            assert np.array_equal(step.screen.pixels, gold.screen.pixels)


def rounded(action: Action) -> Action:
    """Prepared data keeps float32."""
    return untold(json.loads(json.dumps(told(action)), parse_float=lambda digits: float(np.float32(digits))))


def test_prepared_traces_are_scored(shown: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys) -> None:
    """`uivlm eval` on them: one verdict a step."""
    pytest.importorskip("torch", reason="a checkpoint needs the extra `model`")
    import bridges

    from uivlm import cli
    from uivlm.training.checkpoint import base_checkpoint

    checkpoint = base_checkpoint(bridges.recipe(bridges.base(tmp_path / "base"), shown[1]), tmp_path / "ckpt")
    splits = Prepared.open(shown[1]).meta["splits"]
    split = max(splits, key=splits.__getitem__)
    out = tmp_path / "scores"
    words = ["eval", str(checkpoint), str(shown[1]), "--split", split, "--limit", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["uivlm", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, capsys.readouterr().err
    verdicts = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    assert len(verdicts) == len(Prepared.open(shown[1]).episodes(split)[0].steps)
    assert {verdict["subset"] for verdict in verdicts} == {"trace"}

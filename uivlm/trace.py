"""What a run leaves behind: a folder to read and one page to look at.

    000.png, 001.png, ...   the screens as the agent saw them
    trace.jsonl             one row a step, written as it happens: words, action, gesture, confidence, times in ms
    run.json                goal, status and versions: written at the start, and again at the end
    index.html              the page: each screen with its tap or swipe drawn on it

The page reads only this folder, so it can be made again from it.
"""

import json
import os
import platform
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import Gesture
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Decision
from uivlm.episode import Screen
from uivlm.page import page, safe
from uivlm.picture import data_url, draw_action

COLOUR = "#e8175d"
PAGE_WIDTH = 360  # pixels of a screen on the page
PAGE_HEIGHT = 800


class Trace:
    """The folder of one run, which must be new or empty. It is a loop's Witness."""

    def __init__(self, folder: Path, goal: str, facts: dict[str, str] | None = None) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} already holds something: name a new folder for the trace")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._row: dict[str, Any] = {}
        self._num_steps = 0
        self._run: dict[str, Any] = {
            "goal": goal,
            "status": "running",
            "message": "",
            "steps": 0,
            "started": _now(),
            "ended": None,
            "versions": _versions(),
            **(facts or {}),
        }
        self._write_run()
        (folder / "trace.jsonl").touch()

    def saw(self, t: int, screen: Screen, ms: float) -> None:
        proposed = None
        if (
            self._row and self._row["t"] == t
        ):  # a person acted instead: what the agent wanted is kept beside it
            proposed = {name: self._row[name] for name in ("words", "action", "confidence")}
        else:
            self._finish_row()
        name = f"{t:03d}.png"
        Image.fromarray(screen.pixels).save(self.folder / name, compress_level=1)
        height, width = screen.pixels.shape[:2]
        self._row = {
            "t": t,
            "screen": name,
            "height": height,
            "width": width,
            "words": None,
            "action": None,
            "gesture": None,
            "confidence": None,
            "kind_confidence": None,
            "by": None,
            "proposed": proposed,
            "screen_ms": round(ms, 3),
            "agent_ms": None,
            "perform_ms": None,
        }

    def decided(self, t: int, decision: Decision, ms: float) -> None:
        self._row |= {
            "words": decision.words,
            "action": told(decision.action),
            "confidence": decision.confidence,
            "kind_confidence": decision.kind_confidence,
            "agent_ms": round(ms, 3),
        }

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        self._row |= {
            "gesture": None if done is None else told(done),
            "by": "person" if by_hand else "agent",
            "perform_ms": round(ms, 3),
        }
        self._finish_row()

    def ended(self, status: str, message: str) -> None:
        """Whatever was begun is written, then the page. The last row of a broken run has no `perform_ms`."""
        self._finish_row()
        self._run |= {"status": status, "message": message, "steps": self._num_steps, "ended": _now()}
        self._write_run()
        write_page(self.folder)

    def _finish_row(self) -> None:
        if not self._row:
            return
        with open(self.folder / "trace.jsonl", "a", encoding="ascii") as rows:
            rows.write(json.dumps(self._row) + "\n")
        self._row = {}
        self._num_steps += 1

    def _write_run(self) -> None:
        partial = self.folder / "run.json.partial"
        partial.write_text(json.dumps(self._run, indent=1) + "\n", encoding="ascii")
        os.replace(partial, self.folder / "run.json")


def told(thing: Action | NotAnAction | Gesture) -> dict[str, Any]:
    """An action or gesture as JSON: its kind, then its fields."""
    return {"kind": type(thing).__name__, **asdict(thing)}


def write_page(folder: Path) -> Path:
    """The folder's `index.html`, made from its other files."""
    run = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    facts = "".join(
        f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>"
        for name, value in run.items()
        if name not in ("goal", "versions")
    )
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    body = (
        f"<h1>{safe(run['goal'])}</h1><dl>{facts}</dl><main>{''.join(_figure(folder, row) for row in rows)}</main>"
        f"<footer>{safe(versions)}</footer>"
    )
    path = folder / "index.html"
    path.write_text(page(run["goal"], STYLE, body), encoding="utf-8", errors="backslashreplace")
    return path


def _figure(folder: Path, row: dict[str, Any]) -> str:
    with Image.open(folder / row["screen"]) as screen:
        pixels = np.array(screen.convert("RGB"))
    action = _action(row["action"])
    picture = Image.fromarray(pixels) if action is None else draw_action(pixels, action, COLOUR)
    picture.thumbnail((PAGE_WIDTH, PAGE_HEIGHT))
    confidence = "" if row["confidence"] is None else f" · confidence {row['confidence']:.2f}"
    times = " · ".join(
        f"{name} {row[f'{name}_ms']:.0f} ms"
        for name in ("screen", "agent", "perform")
        if row[f"{name}_ms"] is not None
    )
    words = "nothing was decided" if row["words"] is None else row["words"]
    reason = row["action"]["reason"] if row["action"] and row["action"]["kind"] == "NotAnAction" else ""
    return (
        f'<figure><img src="{data_url(picture)}" alt="screen {row["t"]}"><figcaption><b>{row["t"] + 1}.</b> '
        f"<code>{safe(words)}</code> <em>{safe(reason)}</em><small>{times}{confidence}</small></figcaption></figure>"
    )


def _action(row: dict[str, Any] | None) -> Action | None:
    """The action of a row, for drawing; None where there is none."""
    match row:
        case {"kind": "Tap", "at": at}:
            return Tap(Point(**at))
        case {"kind": "Swipe", "start": start, "end": end}:
            return Swipe(Point(**start), Point(**end))
        case {"kind": "Type", "text": text}:
            return Type(text)
        case {"kind": "Press", "key": key}:
            return Press(key)
        case {"kind": "Finish", "status": status}:
            return Finish(status)
    return None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("uivlm", "numpy", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


STYLE = """
h1 { font-size: 1.3rem; white-space: pre-wrap }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem }
dt { color: #777 } dd { margin: 0; overflow-wrap: anywhere }
main { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 240px } img { width: 100%; border: 1px solid #ccc; border-radius: 8px }
code { white-space: pre-wrap; overflow-wrap: anywhere } small { display: block; color: #777 }
footer { color: #777; margin-top: 2rem }
"""

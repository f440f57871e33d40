"""Golden episodes with AITW's values, and each foreign format written from them as its documentation says.

Not the code under test read backwards: what a format documents is stated here a second time, by hand.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from data_prep.formats import aitz, androidcontrol, jsonl, seeclick, showui, trace
from data_prep.formats.aitw import to_example
from data_prep.source import SourcePart, StepHandle, StepRecord, UnusableStepError
from data_prep.tf_example import make_example
from data_prep.tfrecord import write_shard
from uivlm.actions.action import Action, Finish, InvalidAction, Point, Tap
from uivlm.actions.aitw import from_aitw, to_aitw
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import Screen, boxes_of
from uivlm.rollout.trace_writer import TraceWriter

MODULES = {m.__name__.rpartition(".")[2]: m for m in (seeclick, aitz, androidcontrol, showui, jsonl, trace)}
NONE = (-1.0, -1.0)
HEIGHT, WIDTH = 60, 27
SCREEN = np.full((HEIGHT, WIDTH, 3), 200, np.uint8)
BOXES = ((6, 3, 9, 12), (0, 0, 60, 27), (30, 20, 1, 7))  # pixels: y, x, height, width
HARD_TEXT = 'a "quoted" \\ back\\slash, 北京 🚀\nnew line\tand tab'


@dataclass(frozen=True)
class Gold:
    """A step: AITW's values, points (y, x)."""

    action_type: int
    touch: tuple[float, float] = NONE
    lift: tuple[float, float] = NONE
    text: str = ""
    screen: int = 0  # seed of the picture

    @property
    def pixels(self) -> NDArray[np.uint8]:
        return np.random.default_rng(self.screen).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)

    @property
    def boxes(self) -> list[list[float]]:
        """As fractions."""
        return [[y / HEIGHT, x / WIDTH, h / HEIGHT, w / WIDTH] for y, x, h, w in BOXES[: self.screen % 4]]

    @property
    def pixel_boxes(self) -> list[list[int]]:
        return [list(box) for box in BOXES[: self.screen % 4]]

    @property
    def action(self) -> Action:
        return from_aitw(self.action_type, self.touch, self.lift, self.text)


@dataclass(frozen=True)
class GoldEpisode:
    subset: str
    id: str
    goal: str
    steps: tuple[Gold, ...]


def swipes() -> list[Gold]:
    """From the middle in 16 directions, long, short and at the edge of a tap; some to the very edge."""
    gestures = []
    for length in (0.45, 0.2, 0.0405):
        for angle in np.arange(16) * np.pi / 8 + 0.01:
            lift = 0.5 + length * np.sin(angle), 0.5 + length * np.cos(angle)
            gestures.append(Gold(4, (0.5, 0.5), lift))
    return [*gestures, Gold(4, (1.0, 0.0), (0.0, 1.0)), Gold(4, (0.541, 0.507), (0.0011, 0.5788))]


def taps() -> list[Gold]:
    random = np.random.default_rng(7)
    points = [tuple(map(float, random.random(2))) for _ in range(20)]
    return [Gold(4, at, at) for at in [*points, (0.0, 0.0), (1.0, 1.0), (0.9, 0.1)]] + [
        Gold(4, (0.50, 0.50), (0.53, 0.50)), Gold(4, (0.2, 0.7), (0.2, 0.72)),
    ]  # fmt: skip


def golden() -> list[GoldEpisode]:
    """All action types, in episodes of all subsets, with ids as hostile as AITW's."""
    rest = [Gold(3, text=HARD_TEXT), Gold(3, text=""), Gold(5), Gold(6), Gold(7), Gold(11), Gold(10)]
    steps = [*swipes(), *taps(), *rest]
    numbered = [Gold(s.action_type, s.touch, s.lift, s.text, screen=i) for i, s in enumerate(steps)]
    subsets = ["general", "install", "google_apps", "web_shopping", "single"]
    ids = ["18260339861117453695", "7", "../../etc/passwd", "a/b", "3.0-4." + "say “x” / " * 38]
    pieces = [numbered[i::5] for i in range(5)]
    return [
        GoldEpisode(*each, f"goal of {each[0]}, 买 “{i}”", tuple(steps))
        for i, (*each, steps) in enumerate(zip(subsets, ids, pieces, strict=True))
    ]


def seeclick_step(episode: GoldEpisode, index: int, image: str) -> dict[str, Any]:
    """Points (x, y); boxes flat (y, x, h, w); texts wrong on purpose: no reader may use them."""
    gold = episode.steps[index]
    return {
        "ep_id": episode.id, "step": index, "img_filename": image, "goal": episode.goal,
        "action_type_id": gold.action_type, "action_type_text": "scroll up",
        "touch": [gold.touch[1], gold.touch[0]], "lift": [gold.lift[1], gold.lift[0]], "type_text": gold.text,
        "annot_position": [value for box in gold.boxes for value in box], "action_addition": "tap the answer",
    }  # fmt: skip


THEIRS = {"google_apps": "googleapps", "web_shopping": "webshopping"}


def write_seeclick(
    folder: Path, episodes: Iterable[GoldEpisode], label: str = "train", root: str = ""
) -> None:
    content: dict[str, list[Any]] = {}
    for e, episode in enumerate(episodes):
        subset = THEIRS.get(episode.subset, episode.subset)
        names = [f"{subset}/{e}_{i}" for i in range(len(episode.steps))]
        for name, gold in zip(names, episode.steps, strict=True):
            save(folder / root / f"{name}.png", gold.pixels)
        content.setdefault(subset, []).append(
            [seeclick_step(episode, i, name) for i, name in enumerate(names)]
        )
    put(folder / f"aitw_data_{label}.json", content)


def write_showui(
    folder: Path, episodes: Iterable[GoldEpisode], label: str = "train", whole_step: bool = True
) -> None:
    """One flat list, here back to front; `step` is SeeClick's step, or its number."""
    rows = []
    for e, episode in enumerate(episodes):
        subset = THEIRS.get(episode.subset, episode.subset)
        for i, gold in enumerate(episode.steps):
            name = f"{subset}/{e}_{i}"
            save(folder / "images" / f"{name}.png", gold.pixels)
            step = seeclick_step(episode, i, name)
            kept = {
                k: v for k, v in step.items() if k not in ("step", "img_filename", "goal", "action_addition")
            }
            rows.append(kept | {
                "split": label, "id": f"aitw_{len(rows)}", "domain": subset, "step_id": i,
                "task": episode.goal,
                "img_url": name, "img_size": [WIDTH, HEIGHT], "step": step if whole_step else i,
                "step_history": [step],
            })  # fmt: skip
    put(folder / "metadata" / f"hf_{label}.json", rows[::-1])


def write_aitz(
    folder: Path, episodes: Iterable[GoldEpisode], label: str = "train", beside: bool = True
) -> None:
    """JSON in strings, points (y, x) as fractions, boxes in pixels."""
    for e, episode in enumerate(episodes):
        name = f"{episode.subset.upper()}-{e}"
        rows = []
        for i, gold in enumerate(episode.steps):
            image = f"{episode.subset}/{name}/{name}_{i}.png"
            save(folder / label / (image if beside else f"pictures/{image}"), gold.pixels)
            rows.append({
                "episode_id": episode.id, "episode_length": len(episode.steps), "step_id": i,
                "instruction": episode.goal, "ui_positions": json.dumps(gold.pixel_boxes),
                "ui_text": json.dumps([f"box {n}" for n in range(len(gold.boxes))]),
                "ui_types": json.dumps(["ICON_HOME"] * len(gold.boxes)),
                "result_action_type": gold.action_type,
                "result_action_text": gold.text, "result_touch_yx": json.dumps(gold.touch),
                "result_lift_yx": json.dumps(gold.lift),
                "image_path": image if beside else f"pictures/{image}",
                "image_full_path": f"elsewhere/{image}", "coat_action_desc": "scroll down",
            })  # fmt: skip
        put(folder / label / episode.subset / name / f"{name}.json", rows)


def write_jsonl(file: Path, episodes: Iterable[GoldEpisode]) -> None:
    names = {3: "TYPE", 4: "DUAL_POINT", 5: 5, 6: "PRESS_HOME", 7: 7, 10: "STATUS_TASK_COMPLETE", 11: 11}
    lines = []
    for e, episode in enumerate(episodes):
        for i, gold in enumerate(episode.steps):
            save(file.parent / "screens" / f"{e}-{i}.png", gold.pixels)
        steps = [
            {
                "step_id": i, "image": f"screens/{e}-{i}.png", "action_type": names[gold.action_type],
                "touch_yx": gold.touch, "lift_yx": gold.lift, "text": gold.text, "boxes": gold.boxes,
            }
            for i, gold in enumerate(episode.steps)
        ]  # fmt: skip
        lines.append(
            {"subset": episode.subset, "episode_id": episode.id, "goal": episode.goal, "steps": steps}
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def example(name: int, goal: str, actions: list[dict[str, Any]], screens: list[bytes], **other: Any) -> bytes:
    """An episode of AndroidControl."""
    return make_example({
        "episode_id": [name], "goal": [goal.encode()], "screenshots": screens,
        "actions": [json.dumps(action).encode() for action in actions],
        "accessibility_trees": [b"\x00tree"] * len(screens),
        "step_instructions": [b"scroll up"] * len(actions), **other,
    })  # fmt: skip


def write_androidcontrol(folder: Path, episodes: list[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_shard(folder / "android_control-00000-of-00001", episodes)
    return folder / "android_control-00000-of-00001"


def write_trace(
    folder: Path,
    goal: str,
    actions: Iterable[tuple[NDArray[np.uint8], Action | InvalidAction]],
    status: str = "complete",
) -> None:
    """By the rollout's own trace writer."""
    trace = TraceWriter(folder, goal)
    for t, (pixels, action) in enumerate(actions):
        trace.on_screen(t, Screen(pixels), 1.0)
        trace.on_decision(t, Decision(action, "text", 0.5), 2.0)
        trace.on_action(t, None, 3.0)
    trace.on_end(status, "")


def save(path: Path, pixels: NDArray[np.uint8], mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def png(path: Path, pixels: NDArray[np.uint8]) -> bytes:
    return save(path, pixels).read_bytes()


def put(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")
    return path


def found_in(module: Any, source: Path) -> Iterator[StepHandle]:
    """Every step, after each part went through JSON, as between processes."""
    parts: list[SourcePart] = module.find(str(source))
    assert len({part.name for part in parts}) == len(parts)
    assert parts == module.find(str(source)), "the same source must have the same parts"
    for part in parts:
        items = tuple(json.loads(json.dumps(part.items)))
        yield from module.read(SourcePart(part.name, part.path, part.stamp, items))


def loaded(module: Any, source: Path) -> list[tuple[StepHandle, StepRecord]]:
    return [(handle, handle.load()) for handle in found_in(module, source)]


def fields(gold: Gold) -> tuple[Any, ...]:
    """AITW's fields of the step, without points and text where they do not count."""
    if gold.action_type == 4:
        return 4, gold.touch, gold.lift, ""
    return to_aitw(gold.action)


def boxes_in(record: StepRecord) -> list[list[float]]:
    return boxes_of(Screen(record.pixels, record.annotations.elements)).tolist()


def reject_reason(handle: StepHandle) -> str:
    """Why a step is unusable; "" for a usable step, which then has a text and an AITW Example."""
    try:
        record = handle.load()
    except UnusableStepError as error:
        str(error).encode()  # without lone surrogates
        return error.reason
    assert ActionText(100).format(record.action)
    assert to_example(record)
    return ""


def reasons(module: Any, source: Path) -> list[str]:
    return [reject_reason(handle) for handle in found_in(module, source)]


def write_all(folder: Path) -> None:
    few = [replace(episode, steps=episode.steps[:2] + episode.steps[-2:]) for episode in golden()[:2]]
    write_seeclick(folder / "seeclick", few)
    write_showui(folder / "showui", few)
    write_aitz(folder / "aitz", few)
    write_jsonl(folder / "jsonl" / "a.jsonl", few)
    write_trace(folder / "trace" / "1", "g", [(SCREEN, Tap(Point(0.5, 0.5))), (SCREEN, Finish("complete"))])
    screen = png(folder / "s.png", SCREEN)
    actions = [{"action_type": "click", "x": 1, "y": 2}, {"action_type": "input_text", "text": "x"}]
    write_androidcontrol(folder / "androidcontrol", [example(0, "g", actions, [screen] * 3)])

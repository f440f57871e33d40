"""Foreign formats with bad steps: every fault is an UnusableStepError with a reason, and no other error."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_prep.formats import jsonl, seeclick, showui
from data_prep.formats.image_files import find_image
from data_prep.source import UnusableStepError
from tests.helpers.foreign_formats import (
    HEIGHT,
    MODULES,
    SCREEN,
    WIDTH,
    found_in,
    golden,
    png,
    put,
    reasons,
    save,
    write_all,
    write_seeclick,
    write_showui,
)

DEEP = "[" * 100_000
HUGE = 10**400


def line(step: dict[str, Any] | None = None, **other: Any) -> dict[str, Any]:
    """A neutral episode of one tap, with changes in its step or itself."""
    tap = {"step_id": 0, "image": "a.png", "action_type": 4, "touch_yx": [0.5, 0.5], "lift_yx": [0.5, 0.5]}
    return {"subset": "s", "episode_id": "e", "goal": "g", "steps": [tap | (step or {})]} | other


def neutral(folder: Path, *episodes: Any) -> list[str]:
    """The reasons of neutral episodes with one good image; a string is a raw line."""
    save(folder / "a.png", SCREEN)
    lines = [each if isinstance(each, str) else json.dumps(each) for each in episodes]
    (folder / "a.jsonl").write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    return reasons(jsonl, folder)


POINTS: list[tuple[Any, str]] = [
    ([0, 1], ""), ([1.0, 0.0], ""), ([1.01, 0.5], "point off the screen"),
    ([-0.01, 0.5], "point off the screen"),
    ([540, 1200], "point off the screen"), ([float("nan"), 0.5], "point off the screen"),
    ([0.5, float("inf")], "point off the screen"), ([HUGE, 0], "point off the screen"),
    ([-1.0, -1.0], "point off the screen"), ([True, False], "damaged step"), (["0.5", "0.5"], "damaged step"),
    ("0.5", "damaged step"), ("ab", "damaged step"), ([0.5], "damaged step"),
    ([0.5, 0.5, 0.5], "damaged step"),
    (None, "damaged step"), ([None, None], "damaged step"), ([[0.5], [0.5]], "damaged step"),
    ({}, "damaged step"),
]  # fmt: skip


@pytest.mark.parametrize(("point", "reason"), POINTS)
@pytest.mark.parametrize("end", ["touch", "lift"])
def test_points(tmp_path: Path, point: Any, reason: str, end: str) -> None:
    assert neutral(tmp_path, line({f"{end}_yx": point})) == [reason]
    step = {
        "ep_id": "1", "step": 0, "img_filename": "a", "goal": "g", "action_type_id": 4, "type_text": "",
        "touch": [0.5, 0.5], "lift": [0.5, 0.5], "annot_position": [], end: point,
    }  # fmt: skip
    put(tmp_path / "aitw_data_val.json", {"general": [[step]]})
    assert reasons(seeclick, tmp_path) == [reason]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"action_type": 0}, "unsupported action"), ({"action_type": "LONG_PRESS"}, "unsupported action"),
        ({"action_type": HUGE}, "damaged step"), ({"action_type": True}, "damaged step"),
        ({"action_type": 4.0}, "damaged step"), ({"action_type": None}, "damaged step"),
        ({"action_type": [4]}, "damaged step"), ({"action_type": 3}, "damaged step"),
        ({"action_type": 3, "text": 5}, "damaged step"),
        ({"action_type": 3, "text": "\ud800"}, "damaged step"),
        ({"action_type": 3, "text": "", "touch_yx": "x"}, ""), ({"action_type": 10, "lift_yx": None}, ""),
        ({"step_id": -1}, "damaged step"), ({"step_id": "0"}, "damaged step"),
        ({"step_id": True}, "damaged step"),
        ({"step_id": 2**63}, "damaged step"), ({"step_id": 2**62}, ""),
        ({"boxes": [[0, 0, 1, 1]]}, ""), ({"boxes": []}, ""), ({"boxes": None}, ""),
        ({"boxes": [[0, 0, 60, 27]]}, ""),
        ({"boxes": [[0, 0, -0.1, 0]]}, ""),
        ({"boxes": [0, 0, 1, 1]}, ""), ({"boxes": "[[0, 0, 1, 1]]"}, "damaged step"),
        ({"boxes": [[0, 0, 1]]}, ""), ({"boxes": [[0, 0, 1, True]]}, ""),
        ({"boxes": [[0, 0, 1, 1]], "box_texts": []}, "damaged step"),
        ({"box_ui_types": ["TEXT"]}, "damaged step"),
        ({"box_kinds": []}, "damaged step"),
        ({"boxes": [[0, 0, 1, 1]], "box_texts": [1]}, ""), ({"box_texts": "ab"}, "damaged step"),
        ({"image": "b.png"}, "image missing"), ({"image": ""}, "image missing"),
        ({"image": "."}, "image missing"),
        ({"image": None}, "damaged step"), ({"image": 3}, "damaged step"),
        ({"image": "\ud800.png"}, "damaged step"),
        ({"image": "x" * 5000}, "image missing"), ({"image": "a\0.png"}, "image missing"),
        ({"image": "../a.png"}, "image outside the source"),
        ({"image": "..\\a.png"}, "image outside the source"),
        ({"image": "b/../a.png"}, "image outside the source"),
        ({"image": "/etc/passwd"}, "image outside the source"),
    ],
)  # fmt: skip
def test_neutral_steps(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    assert neutral(tmp_path, line(change)) == [reason]


@pytest.mark.parametrize(
    "bad",
    [
        "{", DEEP, '{"a": NaN', "[]", "null", "3", '"x"', "\ud800", '{"steps": 1' + "0" * 5000 + "}",
        line(subset=None),
        line(subset=""), line(subset="\ud800"), line(subset="a\0b"), line(episode_id=None),
        line(episode_id=True),
        line(episode_id=[]),
        line(split="dev"), line(split=["train"]), line(split={}), line(steps=[]), line(steps="abc"),
        line(steps=None),
    ],
)  # fmt: skip
def test_a_damaged_line_harms_no_other(tmp_path: Path, bad: Any) -> None:
    assert neutral(tmp_path, line(), "", bad, line(goal=5), line(steps=[3])) == [
        "", "damaged episode", "damaged step", "damaged step",
    ]  # fmt: skip
    faulty = list(found_in(jsonl, tmp_path))[1]
    with pytest.raises(UnusableStepError, match="^line 3 of a.jsonl: "):
        faulty.load()


@pytest.mark.parametrize("domain", [None, "", "a\0b"])
def test_rows_of_showui_without_a_subset_are_damaged(domain: Any, tmp_path: Path) -> None:
    """An empty name would become a subset of the prepared data."""
    write_showui(tmp_path, golden()[:1])
    file = tmp_path / "metadata" / "hf_train.json"
    put(file, [row | {"domain": domain} for row in json.loads(file.read_text("utf-8"))])
    assert reasons(showui, tmp_path) == ["damaged episode"]


def test_ids_are_only_text(tmp_path: Path) -> None:
    names = ["../x", "a/b", "x" * 385, "\0", "CON", "a\nb", "{}", 7, -1, 18260339861117453695]
    save(tmp_path / "a.png", SCREEN)
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps(line(episode_id=n, split="val")) for n in names), "utf-8"
    )
    found = list(found_in(jsonl, tmp_path))
    assert [f.episode_id for f in found] == [f.load().episode_id for f in found] == list(map(str, names))
    assert {f.split for f in found} == {"validation"}


def test_duplicate_steps_are_all_told(tmp_path: Path) -> None:
    twice = line()
    twice["steps"] *= 2
    assert neutral(tmp_path, twice, twice) == [""] * 4


def test_pictures_of_every_mode_and_damage(tmp_path: Path) -> None:
    for mode in ("RGB", "RGBA", "P", "L", "LA", "1", "CMYK"):
        name = "a.jpg" if mode == "CMYK" else "a.png"
        save(tmp_path / name, SCREEN, mode)
        screen = find_image(name, [tmp_path], "here")
        assert screen.shape == (HEIGHT, WIDTH, 3)
        assert screen.dtype == np.uint8
        assert screen.flags.owndata
        assert np.abs(screen.astype(int) - 200).max() <= {"P": 60, "1": 200}.get(mode, 2)  # Pillow dithers
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "16.png")
    good = png(tmp_path / "good.png", np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))
    bad = {
        "empty": b"", "text": b"no picture", "half": good[: len(good) // 2], "head": good[:20],
        "flipped": good[:60] + bytes([good[60] ^ 255]) + good[61:],
        "gif": b"GIF89a\x01\x00\x01\x00\x00\x00\x00;",
        "ps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "bomb": good[:16] + (60000).to_bytes(4) * 2 + good[24:],
    }  # fmt: skip
    Image.fromarray(SCREEN).save(tmp_path / "x.bmp")
    bad["another format"] = (tmp_path / "x.bmp").read_bytes()
    for name, data in bad.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    (tmp_path / "folder.png").mkdir()
    for name in [*bad, "16"]:
        with pytest.raises(UnusableStepError) as error:
            find_image(f"{name}.png", [tmp_path], "here")
        assert error.value.reason == "image damaged", name
    with pytest.raises(UnusableStepError, match="there is no image"):
        find_image("folder.png", [tmp_path], "here")


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    """A folder of pictures may be a link that the user made; a picture in it may not."""
    save(tmp_path / "elsewhere" / "general" / "0_0.png", SCREEN)
    source = tmp_path / "source"
    write_seeclick(source, golden()[:1])
    assert set(reasons(seeclick, source)) == {""}
    shutil.move(source / "general", tmp_path / "pictures" / "general")
    assert set(reasons(seeclick, source)) == {"image missing"}
    (source / "images").symlink_to(tmp_path / "pictures")
    assert set(reasons(seeclick, source)) == {""}
    inside = tmp_path / "pictures" / "general" / "0_0.png"
    inside.unlink()
    inside.symlink_to(tmp_path / "elsewhere" / "general" / "0_0.png")
    assert reasons(seeclick, source)[:2] == ["image outside the source", ""]


def test_nothing_is_opened_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)
    monkeypatch.setattr(Image, "open", lambda *a, **k: pytest.fail("a picture was opened"))
    for name, module in MODULES.items():
        assert list(found_in(module, tmp_path / name))


def test_parts_are_small_and_stamped(tmp_path: Path) -> None:
    save(tmp_path / "a.png", SCREEN)
    lines = [json.dumps(line(episode_id=str(i))) for i in range(150)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    before = jsonl.find(str(tmp_path))
    assert [len(part.items) for part in before] == [64, 64, 22]
    lines[70] = json.dumps(line(episode_id="other"))
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    after = jsonl.find(str(tmp_path))
    assert [a.stamp == b.stamp for a, b in zip(before, after, strict=True)] == [True, False, True]

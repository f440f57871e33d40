"""Hostile texts through the very line that `adb shell` gets, in real shells: nothing of them may run."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from row import Attack

from uivlm.devices.adb.link import shell_join
from uivlm.devices.adb.text_input import input_commands

SHELLS = ("mksh", "dash", "bash")  # Android's, and two more
NUM_TEXTS = 500
PARTS = (
    *(
        "$(touch hit)",
        "`touch hit`",
        ";touch hit;",
        "&& touch hit",
        "| touch hit",
        "> hit",
        "${x:-$(touch hit)}",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\'",
        "'\\''",
        "$'\\n'",
        "$",
        "!",
        "!!",
        "*",
        "?",
        "[a-z]*",
        "~",
        "#",
        "{a,b}",
        "%s",
        "%",
    ),
    *("\n", "\n touch hit\n", "<<x\n", "\t", " ", "-n", "--", "&", "(", ")", "a", "$IFS", "$((1/0))", "\r"),
)
# Each call of `input` appends its arguments, each with a NUL at its end.
RECORDER = '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word" >> calls; done\n'


def attacks(folder: Path) -> Iterator[Attack]:
    for shell in SHELLS:
        name = f"{NUM_TEXTS} hostile texts through {shell}"
        yield Attack(name, "each arrives as written, nothing runs", partial(through, shell, folder))


def texts() -> list[str]:
    draw = random.Random(7)
    return [
        *PARTS,
        *("".join(draw.choices(PARTS, k=draw.randint(2, 6))) for _ in range(NUM_TEXTS - len(PARTS))),
    ]


def through(shell: str, folder: Path) -> tuple[str, bool]:
    if shutil.which(shell) is None:
        return "not measured: the shell is not installed", True
    place = folder / f"shell_{shell}"
    place.mkdir()
    (place / "input").write_text(RECORDER)
    (place / "input").chmod(0o755)
    lines, expected = list[str](), list[str]()
    for text in texts():
        typed = input_commands(text) or []  # what `input text` types, key by key where it must
        for command in (("input", "text", text), *typed):
            lines.append(shell_join(command))
            expected += command[1:]
    (place / "lines").write_text("\n".join(lines) + "\n", newline="")
    done = subprocess.run(
        [shell, "lines"], cwd=place, env={"PATH": f"{place}:/usr/bin:/bin"}, capture_output=True, timeout=300
    )
    calls = (place / "calls").read_bytes().decode().split("\0")[:-1]
    wrong = sum(a != b for a, b in zip(calls, expected, strict=False)) + abs(len(calls) - len(expected))
    extra = sorted(file.name for file in place.iterdir() if file.name not in ("input", "lines", "calls"))
    return f"{len(lines)} lines, {wrong} wrong, ran: {extra or 'nothing'}", not (
        wrong or extra or done.stderr
    )

"""Prepared data as `messages`: the same sentences, for trainers that read chats (LLaMA-Factory, ms-swift, TRL).

    python -m data_prep.messages DATA OUT [--form tags|parts] [--screens 8] [--before 8]

OUT holds {train,validation,test}.jsonl, one sentence a line; images/, the screens as they were kept, each once; and
dataset_info.json, by which LLaMA-Factory knows the files. A user turn is what is seen and told, an assistant turn is an
action that this sentence trains: every action of an episode is an assistant turn of exactly one line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track

from data_prep.folder import new_folder
from uivlm.episode import Episode
from uivlm.sentences.sentence import Grammar, Picture, Sentence, Words
from uivlm.sentences.store import JPEG, Prepared

Form = Literal["tags", "parts"]
TAG = "<image>"  # stands for a screen in the form `tags`
IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says: words, and screens by their file names, in order."""

    role: Literal["user", "assistant"]
    parts: tuple[str | Path, ...]


def turns(sentence: Sentence, files: list[str]) -> tuple[Turn, ...]:
    """A sentence as a chat; `files` are its screens. Actions trained elsewhere are told by the user."""
    found: list[Turn] = []
    screens = iter(files)
    for piece in sentence:
        role: Literal["user", "assistant"] = "user"
        part: str | Path
        match piece:
            case Words(text, trained, closed):
                role = "assistant" if trained else "user"
                part = f"{text}\n" if closed and not trained else text
            case Picture():
                part = Path(next(screens))
        if found and found[-1].role == role == "user":
            found[-1] = Turn(role, (*found[-1].parts, part))
        else:
            found.append(Turn(role, (part,)))
    return tuple(found)


def line(chat: tuple[Turn, ...], form: Form) -> dict[str, Any]:
    """One line of a file. ValueError where its own words would be taken for a screen."""
    images = [part.as_posix() for turn in chat for part in turn.parts if isinstance(part, Path)]
    if form == "parts":
        return {"messages": [{"role": t.role, "content": _as_parts(t)} for t in chat], "images": images}
    if any(TAG in part for turn in chat for part in turn.parts if isinstance(part, str)):
        raise ValueError(f"its words hold {TAG}")
    content = [
        "".join(TAG if isinstance(part, Path) else part for part in turn.parts).strip("\n") for turn in chat
    ]
    messages = [{"role": turn.role, "content": said} for turn, said in zip(chat, content, strict=True)]
    return {"messages": messages, "images": images}


def _as_parts(turn: Turn) -> list[dict[str, str]]:
    return [
        {"type": "image", "text": ""} if isinstance(part, Path) else {"type": "text", "text": part}
        for part in turn.parts
        if isinstance(part, Path) or part.strip("\n")
    ]


def write_messages(data: Path, out: Path, grammar: Grammar, form: Form) -> dict[str, dict[str, int]]:
    """Write the folder; by split, how many lines, and how many were left out because their words hold a tag."""
    prepared = Prepared.open(data)
    with new_folder(out) as folder:
        counts = {
            split: _write_split(prepared, split, folder, grammar, form) for split in prepared.meta["splits"]
        }
        told = {f"uivlm_{split}": _told(split) for split, count in counts.items() if count["lines"]}
        (folder / "dataset_info.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return counts


def _write_split(
    prepared: Prepared, split: str, folder: Path, grammar: Grammar, form: Form
) -> dict[str, int]:
    episodes = prepared.episodes(split)
    counts = {"lines": 0, "left out": 0}
    if not len(episodes):
        return counts
    (folder / IMAGES / split).mkdir(parents=True)
    with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
        for number in track(range(len(episodes)), split, console=Console(stderr=True), transient=True):
            screens = episodes.encoded(number)
            names = [f"{IMAGES}/{split}/{number:06d}-{t:03d}.{_ending(one)}" for t, one in enumerate(screens)]
            for name, screen in zip(names, screens, strict=True):
                (folder / name).write_bytes(screen)
            for chat in _chats(episodes[number], names, grammar):
                try:
                    file.write(json.dumps(line(chat, form), ensure_ascii=False) + "\n")
                    counts["lines"] += 1
                except ValueError:
                    counts["left out"] += 1
    return counts


def _chats(episode: Episode, names: list[str], grammar: Grammar) -> Iterator[tuple[Turn, ...]]:
    spans = grammar.spans(len(episode.steps))
    for window, (start, _, stop) in zip(grammar.windows(episode), spans, strict=True):
        yield turns(grammar.sentence(window), names[start:stop])


def _ending(screen: bytes) -> str:
    return "jpg" if screen.startswith(JPEG) else "png"


def _told(split: str) -> dict[str, Any]:
    """A file as LLaMA-Factory's list of data sets describes it."""
    return {
        "file_name": f"{split}.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages", "images": IMAGES},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
        },
    }


def main(
    data: Annotated[Path, typer.Argument(help="prepared data")],
    out: Annotated[Path, typer.Argument(help="the folder to make")],
    form: Annotated[
        Form, typer.Option(help="tags: <image> in the text; parts: lists, as TRL reads them")
    ] = "tags",
    screens: Annotated[int, typer.Option(min=1, help="most screens in one sentence")] = 8,
    before: Annotated[int, typer.Option(min=0, help="most older actions told in words")] = 8,
) -> None:
    """Write prepared data as chats for other trainers."""
    try:
        grammar = Grammar(int(Prepared.open(data).meta["bins"]), screens, before)
        counts = write_messages(data, out, grammar, form)
    except (ValueError, OSError) as error:
        typer.echo(f"messages: {error}", err=True)
        raise typer.Exit(2) from None
    for split, count in counts.items():
        left = f", {count['left out']} left out: their words hold {TAG}" if count["left out"] else ""
        typer.echo(f"{split}: {count['lines']} sentences{left}")
    typer.echo(f"Written to {out}")


if __name__ == "__main__":
    typer.run(main)

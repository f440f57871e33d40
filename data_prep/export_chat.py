"""Prepared data as conversations for other trainers: LLaMA-Factory, ms-swift, TRL.

OUT holds {train,validation,test}.jsonl, one sentence per line; images/, every stored screen once; and
LLaMA-Factory's dataset_info.json. Screens, the goal and older actions are user turns. An action that the
sentence trains is an assistant turn, so that every action of an episode is an assistant turn of exactly
one line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import track

from uivlm.atomic import new_dir
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Episode
from uivlm.episodes.rows import JPEG_MAGIC
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, Sentence, TextPiece

ChatFormat = Literal["tags", "parts"]
IMAGE_TAG = "<image>"  # a screen in the format `tags`
IMAGES_DIR = "images"


@dataclass(frozen=True, slots=True)
class ExportMessage:
    """One turn of a conversation: texts, and screens by their file names, in order."""

    role: Literal["user", "assistant"]
    content: tuple[str | Path, ...]


def to_messages(sentence: Sentence, files: list[str]) -> tuple[ExportMessage, ...]:
    """A sentence as a conversation with the screens `files`. Actions trained elsewhere are in user turns."""
    messages: list[ExportMessage] = []
    screens = iter(files)
    for piece in sentence:
        role: Literal["user", "assistant"] = "user"
        part: str | Path
        match piece:
            case TextPiece(text, trained, action):
                role = "assistant" if trained else "user"
                part = f"{text}\n" if action is not None and not trained else text
            case ScreenPiece():
                part = Path(next(screens))
        if messages and messages[-1].role == role == "user":
            messages[-1] = ExportMessage(role, (*messages[-1].content, part))
        else:
            messages.append(ExportMessage(role, (part,)))
    return tuple(messages)


def to_json_row(conversation: tuple[ExportMessage, ...], chat_format: ChatFormat) -> dict[str, Any]:
    """One line of a file. Raises ValueError if its text has the tag of a screen."""
    images = [part.as_posix() for turn in conversation for part in turn.content if isinstance(part, Path)]
    if chat_format == "parts":
        return {
            "messages": [{"role": t.role, "content": _content_parts(t)} for t in conversation],
            "images": images,
        }
    if any(IMAGE_TAG in part for turn in conversation for part in turn.content if isinstance(part, str)):
        raise ValueError(f"the text has {IMAGE_TAG}")
    content = [
        "".join(IMAGE_TAG if isinstance(part, Path) else part for part in turn.content).strip("\n")
        for turn in conversation
    ]
    messages = [
        {"role": turn.role, "content": text} for turn, text in zip(conversation, content, strict=True)
    ]
    return {"messages": messages, "images": images}


def _content_parts(message: ExportMessage) -> list[dict[str, str]]:
    return [
        {"type": "image", "text": ""} if isinstance(part, Path) else {"type": "text", "text": part}
        for part in message.content
        if isinstance(part, Path) or part.strip("\n")
    ]


def export_chat(
    data: Path, out: Path, prompt_format: PromptFormat, chat_format: ChatFormat
) -> dict[str, dict[str, int]]:
    """Write the folder. Returns per split the number of `lines`, and of those `left out` because of a tag."""
    prepared = PreparedData.open(data)
    with new_dir(out) as folder:
        counts = {
            split: _write_split(prepared, split, folder, prompt_format, chat_format)
            for split in prepared.meta["splits"]
        }
        info = {f"uivlm_{split}": _dataset_info(split) for split, count in counts.items() if count["lines"]}
        (folder / "dataset_info.json").write_text(json.dumps(info, indent=1) + "\n", "utf-8")
    return counts


def _write_split(
    prepared: PreparedData, split: str, folder: Path, prompt_format: PromptFormat, chat_format: ChatFormat
) -> dict[str, int]:
    episodes = prepared.episodes(split)
    counts = {"lines": 0, "left out": 0}
    if not len(episodes):
        return counts
    (folder / IMAGES_DIR / split).mkdir(parents=True)
    with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
        for index in track(range(len(episodes)), split, console=Console(stderr=True), transient=True):
            screens = episodes.encoded_screens(index)
            names = [
                f"{IMAGES_DIR}/{split}/{index:06d}-{t:03d}.{_image_extension(screen)}"
                for t, screen in enumerate(screens)
            ]
            for name, screen in zip(names, screens, strict=True):
                (folder / name).write_bytes(screen)
            for chat in _iter_chats(episodes[index], names, prompt_format):
                try:
                    file.write(json.dumps(to_json_row(chat, chat_format), ensure_ascii=False) + "\n")
                    counts["lines"] += 1
                except ValueError:
                    counts["left out"] += 1
    return counts


def _iter_chats(
    episode: Episode, names: list[str], prompt_format: PromptFormat
) -> Iterator[tuple[ExportMessage, ...]]:
    spans = prompt_format.spans(len(episode.steps))
    for window, (start, _, stop) in zip(prompt_format.windows(episode), spans, strict=True):
        yield to_messages(prompt_format.sentence(window), names[start:stop])


def _image_extension(screen: bytes) -> str:
    return "jpg" if screen.startswith(JPEG_MAGIC) else "png"


def _dataset_info(split: str) -> dict[str, Any]:
    """The entry of a file in LLaMA-Factory's dataset_info.json."""
    return {
        "file_name": f"{split}.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages", "images": IMAGES_DIR},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
        },
    }

"""One episode as the model reads it: prepared data in; coloured words in the terminal and a picture out.

Trained words are green, the others dim. In the picture each row is one sentence: its screens side by side, each with
the action drawn on it and the words below.
"""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.text import Text

from uivlm.episode import Episode
from uivlm.picture import draw_action
from uivlm.sentences.sentence import Grammar, Picture, Window, Words
from uivlm.sentences.store import Prepared

TRAINED, UNTRAINED = "#1a8f3c", "#7a7a7a"
ACTION = "#e6194b"
HEIGHT = 480  # pixels of a screen in the picture, at most
LINE = 16  # pixels of a line of words
GAP = 12
END = "■"  # the model's end token


def show(
    prepared: Prepared,
    index: int = 0,
    split: str = "train",
    picture: Path | None = None,
    grammar: Grammar | None = None,
    console: Console | None = None,
) -> Episode:
    """Print the sentences of an episode and, where a path is given, write them as a PNG; returns the episode."""
    episodes = prepared.episodes(split)
    if not 0 <= index < len(episodes):
        raise ValueError(f"there is no episode {index} in {split}: it has {len(episodes)}, counted from 0")
    grammar = grammar or Grammar(bins=int(prepared.meta["bins"]))
    episode = episodes[index]
    windows = list(grammar.windows(episode))
    screen = console or Console()
    screen.print(
        Text(f"{split} {index}: {episode.subset}, episode {episode.id}, {len(episode.steps)} steps", "bold")
    )
    for window in windows:
        screen.print(sentence_text(window, grammar))
    if picture:
        strip(episode, windows, grammar).save(picture, "PNG")
        screen.print(Text(f"picture: {picture}"))
    return episode


def sentence_text(window: Window, grammar: Grammar) -> Text:
    """A sentence for the terminal. Text of the data is never read as mark-up."""
    text = Text()
    for piece in grammar.sentence(window):
        match piece:
            case Words(words, trained, closed):
                text.append(words + (f"{END}\n" if closed else ""), "green" if trained else "dim")
            case Picture(screen):
                height, width, _ = screen.pixels.shape
                text.append(f"[screen {width}x{height}]", "cyan")
    return text


def strip(episode: Episode, windows: list[Window], grammar: Grammar) -> Image.Image:
    """The sentences of an episode as one picture, one row each."""
    rows = [_row(window, grammar) for window in windows]
    header = GAP + 2 * LINE
    width = max(row.width for row in rows)
    image = Image.new("RGB", (width, header + sum(row.height for row in rows)), "white")
    goal = _fit(_plain(episode.goal), width - 2 * GAP)
    ImageDraw.Draw(image).text((GAP, GAP), goal, fill=UNTRAINED, font=_font())
    y = header
    for row in rows:
        image.paste(row, (0, y))
        y += row.height
    return image


def _row(window: Window, grammar: Grammar) -> Image.Image:
    cells = [
        _cell(
            draw_action(step.screen.pixels, step.action, ACTION), grammar.language.say(step.action), trained
        )
        for step, trained in ((step, i >= window.first_trained) for i, step in enumerate(window.steps))
    ]
    width = GAP + sum(cell.width + GAP for cell in cells)
    image = Image.new("RGB", (width, max(cell.height for cell in cells) + GAP), "white")
    x = GAP
    for cell in cells:
        image.paste(cell, (x, 0))
        x += cell.width + GAP
    return image


def _cell(screen: Image.Image, words: str, trained: bool) -> Image.Image:
    """A screen, made smaller where it is tall, above its words."""
    scale = min(1.0, HEIGHT / screen.height)
    small = screen.resize((max(1, round(screen.width * scale)), max(1, round(screen.height * scale))))
    width = max(small.width, 200)
    lines = _lines(_plain(words), width)
    image = Image.new("RGB", (width, small.height + LINE * (len(lines) + 1)), "white")
    image.paste(small, (0, 0))
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        draw.text((0, small.height + LINE // 4 + LINE * i), line, TRAINED if trained else UNTRAINED, _font())
    return image


def _lines(words: str, width: int, most: int = 3) -> list[str]:
    """Words broken into at most `most` lines that fit; the last is cut where there is more."""
    lines: list[str] = []
    rest = words.strip()
    while rest and len(lines) < most - 1:
        line = rest[:width]  # no letter is narrower than a pixel
        while len(line) > 1 and _font().getlength(line) > width:
            line = line[: line.rfind(" ")] if " " in line.rstrip() else line[:-1]
        lines.append(line)
        rest = rest[len(line) :].lstrip()
    return [*lines, _fit(rest, width)] if rest else lines


def _fit(text: str, width: int) -> str:
    if len(text) <= width and _font().getlength(text) <= width:
        return text
    most = min(len(text), width)
    while most and _font().getlength(f"{text[:most]}...") > width:
        most -= 1
    return f"{text[:most]}..."


def _plain(text: str) -> str:
    """One line of what the font has letters for; the rest as escapes."""
    return text.replace("\n", " ").encode("latin-1", "backslashreplace").decode("latin-1")


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(12)

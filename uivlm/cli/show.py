"""One episode as the model reads it: prepared data in; colored text in the terminal and an image out.

Trained text is green, the rest dim. In the image each row is one sentence: its screens from left to right,
each with the action drawn on it and the text below.
"""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.text import Text

from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, TextPiece, Window
from uivlm.reports.draw import draw_action
from uivlm.terminal import Terminal

TRAINED_COLOR, UNTRAINED_COLOR = "#1a8f3c", "#7a7a7a"
ACTION_COLOR = "#e6194b"
MAX_SCREEN_HEIGHT = 480  # pixels of a screen in the image
LINE_HEIGHT = 16  # pixels of a line of text
GAP = 12
END_MARK = "■"  # the model's end token


def show(
    prepared: PreparedData,
    index: int = 0,
    split: str = "train",
    image_path: Path | None = None,
    prompt_format: PromptFormat | None = None,
    console: Console | None = None,
) -> Episode:
    """Print the sentences of an episode; write them as a PNG if a path is given. Returns the episode."""
    episodes = prepared.episodes(split)
    if not 0 <= index < len(episodes):
        raise ValueError(f"no episode {index} in split {split}: it has {len(episodes)}, counted from 0")
    prompt_format = prompt_format or PromptFormat(num_bins=int(prepared.meta["num_bins"]))
    episode = episodes[index]
    windows = list(prompt_format.windows(episode))
    screen = console or Terminal()
    screen.print(
        Text(f"{split} {index}: {episode.subset}, episode {episode.id}, {len(episode.steps)} steps", "bold")
    )
    for window in windows:
        screen.print(sentence_text(window, prompt_format))
    if image_path:
        draw_windows(episode, windows, prompt_format).save(image_path, "PNG")
        screen.print(Text(f"image: {image_path}"))
    return episode


def sentence_text(window: Window, prompt_format: PromptFormat) -> Text:
    """A sentence for the terminal. Text of the data is never read as markup."""
    text = Text()
    for piece in prompt_format.sentence(window):
        match piece:
            case TextPiece(content, trained, action):
                end = "" if action is None else f"{END_MARK}\n"
                text.append(content + end, "green" if trained else "dim")
            case ScreenPiece(screen):
                height, width, _ = screen.pixels.shape
                text.append(f"[screen {width}x{height}]", "cyan")
    return text


def draw_windows(episode: Episode, windows: list[Window], prompt_format: PromptFormat) -> Image.Image:
    """The sentences of an episode as one image, one row each."""
    rows = [_draw_window(window, prompt_format) for window in windows]
    header = GAP + 2 * LINE_HEIGHT
    width = max(row.width for row in rows)
    image = Image.new("RGB", (width, header + sum(row.height for row in rows)), "white")
    goal = _truncate(_to_latin1(episode.goal), width - 2 * GAP)
    ImageDraw.Draw(image).text((GAP, GAP), goal, fill=UNTRAINED_COLOR, font=_font())
    y = header
    for row in rows:
        image.paste(row, (0, y))
        y += row.height
    return image


def _draw_window(window: Window, prompt_format: PromptFormat) -> Image.Image:
    cells = [
        _draw_step(
            draw_action(step.screen.pixels, step.action, ACTION_COLOR),
            step.text,
            trained,
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


def _draw_step(screen: Image.Image, text: str, trained: bool) -> Image.Image:
    """A screen, scaled down if it is tall, above its text."""
    scale = min(1.0, MAX_SCREEN_HEIGHT / screen.height)
    small = screen.resize((max(1, round(screen.width * scale)), max(1, round(screen.height * scale))))
    width = max(small.width, 200)
    lines = _wrap(_to_latin1(text), width)
    image = Image.new("RGB", (width, small.height + LINE_HEIGHT * (len(lines) + 1)), "white")
    image.paste(small, (0, 0))
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        draw.text(
            (0, small.height + LINE_HEIGHT // 4 + LINE_HEIGHT * i),
            line,
            TRAINED_COLOR if trained else UNTRAINED_COLOR,
            _font(),
        )
    return image


def _wrap(text: str, width: int, max_lines: int = 3) -> list[str]:
    """Text wrapped to at most `max_lines` lines of `width` pixels; the last is cut if there is more."""
    lines: list[str] = []
    rest = text.strip()
    while rest and len(lines) < max_lines - 1:
        line = rest[:width]  # every letter is at least a pixel wide
        while len(line) > 1 and _font().getlength(line) > width:
            line = line[: line.rfind(" ")] if " " in line.rstrip() else line[:-1]
        lines.append(line)
        rest = rest[len(line) :].lstrip()
    return [*lines, _truncate(rest, width)] if rest else lines


def _truncate(text: str, width: int) -> str:
    if len(text) <= width and _font().getlength(text) <= width:
        return text
    length = min(len(text), width)
    while length and _font().getlength(f"{text[:length]}...") > width:
        length -= 1
    return f"{text[:length]}..."


def _to_latin1(text: str) -> str:
    """One line of letters that the font has; the rest as escapes."""
    return text.replace("\n", " ").encode("latin-1", "backslashreplace").decode("latin-1")


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(12)

"""Episodes as sentences: text and screens in the order in which they happened.

    goal, screen, action, screen, action, ...            (UI-VLM, section on training: complete trajectories)

With `thoughts`, a sentence trains one step: a line of text that ends with a newline, then the action. Actions
have no newline, so the two cannot be confused. Past actions are shown without thoughts, as an agent has them.

A prompt is a training sentence cut before the trained words. The same code builds both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from uivlm.actions.action import Action
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import Episode, History, Screen, Step

Thoughts = Literal["none", "instruction", "thought"]  # the note of a step that is trained before its action
THOUGHT_END = "\n"


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str
    trained: bool = False  # does the loss count these tokens? Those of no action are a thought
    action: Action | None = None  # the action that `text` renders; the model's end token follows it


@dataclass(frozen=True, slots=True)
class ScreenPiece:
    """A screen and its age in steps.

    The age counts back from the first step that the window trains, not from the newest screen. So a prompt
    remains a prefix of its training sentence, and the age of a screen does not change within a window.
    """

    screen: Screen
    age: int = 0


Sentence = tuple[TextPiece | ScreenPiece, ...]


@dataclass(frozen=True, slots=True)
class RenderedStep:
    """A step and the text of its action."""

    screen: Screen
    action: Action
    text: str
    thought: str = ""  # one line without its end; empty if the format has no thoughts, or the step none


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an episode that one sentence shows: past actions as text, `steps` with their screens."""

    goal: str
    past_actions: tuple[str, ...]  # texts of the actions before `steps`, oldest first
    steps: tuple[RenderedStep, ...]
    first_trained: int = 0  # index into `steps`: windows before train the earlier actions
    age_origin: int | None = None  # index into `steps`: ages count from there; None: from `first_trained`


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """How episodes become sentences.

    A checkpoint keeps it: a model reads only the format it was trained on.
    """

    num_bins: int = 100  # bins of a coordinate
    max_screens: int = 8  # maximum number of screens in a sentence
    max_past_actions: int = 8  # maximum number of earlier actions given as text
    thoughts: Thoughts = "none"  # trained words before each action

    def __post_init__(self) -> None:
        for name, minimum in (("num_bins", 2), ("max_screens", 1), ("max_past_actions", 0)):
            if (value := getattr(self, name)) < minimum:
                raise ValueError(f"prompt.{name}: got {value}; expected at least {minimum}")
        if self.thoughts not in get_args(Thoughts):
            raise ValueError(
                f"prompt.thoughts: got {self.thoughts!r}; expected one of {', '.join(get_args(Thoughts))}"
            )

    @property
    def action_text(self) -> ActionText:
        return ActionText(self.num_bins)

    def window_start(self, t: int) -> int:
        """The first step whose screen is shown at step `t`.

        It depends on t alone and advances by half a window. Between two advances each prompt extends the
        previous one, so a prefix cache stays valid, and training uses the same windows.
        """
        if t < self.max_screens:
            return 0
        stride = max(1, self.max_screens // 2)
        return ((t - self.max_screens) // stride + 1) * stride

    def windows(self, episode: Episode) -> Iterator[Window]:
        """Windows that train each action of the episode exactly once."""
        steps = self._render(episode.steps)
        for start, t, end in self.spans(len(steps)):
            origin = self._first_trained_step(start) - start
            yield Window(episode.goal, self._recent(steps[:start]), steps[start:end], t - start, origin)

    def spans(self, num_steps: int) -> Iterator[tuple[int, int, int]]:
        """The windows of an episode of `num_steps`: first step shown, first step trained, end (exclusive).

        With thoughts, each trains one step: the thoughts of the others must not be seen.
        """
        t = 0
        while t < num_steps:
            start, end = self.window_start(t), t
            while end < num_steps and self.window_start(end) == start:
                end += 1
                if self.thoughts != "none":
                    break
            yield start, t, end
            t = end

    def sentence(self, window: Window) -> Sentence:
        """The training sentence of a window. Every action from `first_trained` on is trained."""
        pieces = self._header(window.goal, window.past_actions)
        origin = window.first_trained if window.age_origin is None else window.age_origin
        for i, step in enumerate(window.steps):
            pieces += self._screen_pieces(step.screen, origin - i)
            if i >= window.first_trained:
                pieces += self._thought_pieces(step.thought)
            pieces.append(TextPiece(step.text, i >= window.first_trained, step.action))
        return tuple(pieces)

    def prompt(self, history: History) -> Sentence:
        """What the model reads before it acts on `history.screen`."""
        t = len(history.steps)
        start = self.window_start(t)
        steps = self._render(history.steps)
        pieces = self._header(history.goal, self._recent(steps[:start]))
        first_trained = self._first_trained_step(start)
        for i, step in enumerate(steps[start:], start):
            pieces += self._screen_pieces(step.screen, first_trained - i)
            pieces.append(TextPiece(step.text, action=step.action))
        pieces += self._screen_pieces(history.screen, first_trained - t)
        return tuple(pieces)

    def later_ages(self, t: int) -> tuple[int, ...]:
        """The ages at which later windows will show the screen of step `t`, other than its age now."""
        stride = max(1, self.max_screens // 2)
        first = self.window_start(t)
        starts = range(first + stride if first else self.window_start(self.max_screens), t + 1, stride)
        ages = {max(0, self._first_trained_step(start) - t) for start in starts}
        return tuple(sorted(ages - {max(0, self._first_trained_step(first) - t)}))

    def _first_trained_step(self, start: int) -> int:
        """The smallest t for which `window_start(t)` is `start`."""
        return start + self.max_screens - max(1, self.max_screens // 2) if start else 0

    def _render(self, steps: Sequence[Step]) -> tuple[RenderedStep, ...]:
        text = self.action_text
        return tuple(
            RenderedStep(step.screen, step.action, text.format(step.action), self._thought(step))
            for step in steps
        )

    def _thought(self, step: Step) -> str:
        """The step's note as one line."""
        note = None if self.thoughts == "none" else getattr(step.notes, self.thoughts)
        return " ".join((note or "").split())

    def _thought_pieces(self, thought: str) -> list[TextPiece | ScreenPiece]:
        """The line, and its end apart: no tokenizer joins them."""
        if self.thoughts == "none":
            return []
        return [*([TextPiece(thought, True)] if thought else []), TextPiece(THOUGHT_END, True)]

    def _recent(self, steps: Sequence[RenderedStep]) -> tuple[str, ...]:
        return tuple(step.text for step in steps[max(0, len(steps) - self.max_past_actions) :])

    def _header(self, goal: str, past_actions: tuple[str, ...]) -> list[TextPiece | ScreenPiece]:
        pieces: list[TextPiece | ScreenPiece] = [TextPiece(f"{goal}\n")]
        if past_actions:
            pieces.append(TextPiece("".join(f"{text}\n" for text in past_actions)))
        return pieces

    def _screen_pieces(self, screen: Screen, age: int) -> list[TextPiece | ScreenPiece]:
        return [ScreenPiece(screen, max(0, age)), TextPiece("\n")]

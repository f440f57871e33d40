"""Episodes as sentences: words and pictures in the order in which they happened.

    goal, screen, action, screen, action, ...            (UI-VLM, section on training: complete trajectories)

A prompt is a training sentence cut before the action, made by the same lines of code.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from uivlm.actions.language import Language
from uivlm.episode import Episode, History, Screen, Step


@dataclass(frozen=True, slots=True)
class Words:
    text: str
    trained: bool = False  # does the loss count these tokens?
    closed: bool = False  # followed by the model's end token: the words of an action


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen. Its age is counted back from the first screen on which the sentence's window acts, not from the newest:
    so a prompt is still the beginning of its training sentence, and no kept screen changes while a window lasts.
    """

    screen: Screen
    age: int = 0


Sentence = tuple[Words | Picture, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an episode that one sentence shows: older actions as words, `steps` with their screens."""

    goal: str
    before: tuple[str, ...]  # words of the actions before the window
    steps: tuple[Step, ...]
    first_trained: int = 0  # index into `steps`: earlier actions were trained in the window before


@dataclass(frozen=True, slots=True)
class Grammar:
    """How episodes become sentences. Travels with a checkpoint: another grammar is another language."""

    bins: int = 100
    screens: int = 8  # most screens in one sentence
    before: int = 8  # most older actions told in words

    def __post_init__(self) -> None:
        for name, least in (("bins", 2), ("screens", 1), ("before", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"grammar.{name} is {getattr(self, name)}: it must be at least {least}")

    @property
    def language(self) -> Language:
        return Language(self.bins)

    def start(self, t: int) -> int:
        """The first step whose screen step `t` still sees.

        It depends on t alone and jumps by half a window, so that between jumps each prompt extends the one
        before it (a prefix cache stays valid) and training sees the very same windows.
        """
        if t < self.screens:
            return 0
        jump = max(1, self.screens // 2)
        return ((t - self.screens) // jump + 1) * jump

    def windows(self, episode: Episode) -> Iterator[Window]:
        """Windows that train each action of the episode exactly once."""
        spoken = [self.language.say(step.action) for step in episode.steps]
        for start, t, stop in self.spans(len(episode.steps)):
            yield Window(episode.goal, self._told(spoken[:start]), episode.steps[start:stop], t - start)

    def spans(self, num_steps: int) -> Iterator[tuple[int, int, int]]:
        """The windows of an episode of `num_steps`: first step seen, first step trained, end (exclusive)."""
        t = 0
        while t < num_steps:
            start, stop = self.start(t), t
            while stop < num_steps and self.start(stop) == start:
                stop += 1
            yield start, t, stop
            t = stop

    def sentence(self, window: Window) -> Sentence:
        """The training sentence of a window: every action from `first_trained` on carries loss."""
        pieces = self._opening(window.goal, window.before)
        for i, step in enumerate(window.steps):
            words = self.language.say(step.action)
            pieces += self._seen(step.screen, window.first_trained - i)
            pieces.append(Words(words, trained=i >= window.first_trained, closed=True))
        return tuple(pieces)

    def prompt(self, history: History) -> Sentence:
        """What the model reads before it acts on `history.screen`."""
        t = len(history.steps)
        start = self.start(t)
        told = self._told([self.language.say(step.action) for step in history.steps[:start]])
        pieces = self._opening(history.goal, told)
        first = self._first_acted(start)
        for i, step in enumerate(history.steps[start:], start):
            pieces += self._seen(step.screen, first - i)
            pieces.append(Words(self.language.say(step.action), closed=True))
        pieces += self._seen(history.screen, first - t)
        return tuple(pieces)

    def _first_acted(self, start: int) -> int:
        """The first step of the window that begins at `start`: the smallest t of which `self.start(t)` is `start`."""
        return start + self.screens - max(1, self.screens // 2) if start else 0

    def _told(self, spoken: list[str]) -> tuple[str, ...]:
        return tuple(spoken[max(0, len(spoken) - self.before) :])

    def _opening(self, goal: str, before: tuple[str, ...]) -> list[Words | Picture]:
        pieces: list[Words | Picture] = [Words(f"{goal}\n")]
        if before:
            pieces.append(Words("".join(f"{words}\n" for words in before)))
        return pieces

    def _seen(self, screen: Screen, age: int) -> list[Words | Picture]:
        return [Picture(screen, max(0, age)), Words("\n")]

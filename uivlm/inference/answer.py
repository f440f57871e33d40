"""What an engine is, and how its answers grow: prompts, tokens one after another until the end, and what the words say.

In: a History; then the tokens that a model chose. Out: what is to be read; then the words, the Action they say (or NotAnAction),
and how sure the model was. Whoever computes the tokens, they are taken here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from uivlm.actions.action import Action
from uivlm.actions.beginning import ended, kind_is_told
from uivlm.actions.language import TEXT_OPEN, Language, NotAnAction
from uivlm.episode import History, HistoryError
from uivlm.inference.bound import Bound
from uivlm.models.model import Reader
from uivlm.sentences.encode import Example, encode
from uivlm.sentences.sentence import Grammar, Sentence

LIMIT = 128  # tokens of one answer; only typed text comes near


class Answer(NamedTuple):
    """`chance`: product of the probabilities of the tokens that were chosen, the end among them; `kind`: of those that chose the
    kind of action, so that chance / kind is that of its place or text."""

    words: str
    action: Action | NotAnAction
    chance: float
    kind: float


class Engine(Protocol):
    """Computes answers. Stateless to its caller: what it keeps between calls changes their cost alone."""

    def predict_all(self, histories: Sequence[History]) -> list[Answer]:
        """Of each history, side by side. Safe to be called by several threads."""

    def forget(self) -> None:
        """What is said next is to the last bit what a new one would say."""


@dataclass(slots=True)
class Saying:
    """An answer as it grows. `why`: what it is no action for; None while it goes on."""

    room: int  # tokens
    tokens: list[int] = field(default_factory=list)
    chance: float = 1.0  # of all that was chosen, the end among it
    kind: float = 1.0  # of what chose the kind of action
    why: str | None = None


def asked(history: History, grammar: Grammar, reader: Reader) -> tuple[Sentence, Example]:
    """The prompt, and its ids; HistoryError where there is none."""
    try:
        sentence = grammar.prompt(history)
        example = encode(sentence, reader, look=False)
    except ValueError as error:  # a past action without words, a screen of impossible sides
        raise HistoryError(str(error)) from error
    if len(example.input_ids) >= reader.context:
        raise HistoryError(
            f"the prompt has {len(example.input_ids)} tokens, the model reads {reader.context}: a checkpoint with a lower "
            "grammar.screens is needed"
        )
    return sentence, example


def take(said: Saying, token: int, chance: float, reader: Reader, speech: Bound | None) -> list[int]:
    """The token that was chosen comes next. What is to be read: it, and what must follow it; nothing where the answer is over."""
    if token == reader.end:
        _choose(said, chance, reader)
        said.why = ""
        return []
    if len(said.tokens) >= said.room:
        said.why = f"no end within {said.room} tokens"
        return []
    _choose(said, chance, reader)
    said.tokens.append(token)
    if not reader.speaks(token):  # no action any more; a placeholder cannot even be read
        said.why = "a control token within the words"
        return []
    if speech is None:
        return [token]
    forced, over = speech.forced(said.tokens)
    if len(said.tokens) + len(forced) > said.room:
        said.why = f"no end within {said.room} tokens"
        return []
    said.tokens += forced
    if over:  # nothing but the end may follow
        said.why = ""
        return []
    return [token, *forced]


def _choose(said: Saying, chance: float, reader: Reader) -> None:
    said.chance *= chance
    if not kind_is_told(reader.text(said.tokens)):
        said.kind *= chance


def told(said: Saying, reader: Reader, language: Language, bound: bool) -> Answer:
    """What the tokens say; of an engine that is bound a typed text that grew too long is closed."""
    words, why = reader.text(said.tokens), said.why
    if why and bound and words.startswith(TEXT_OPEN):
        words, why = ended(words, language), ""
    action = NotAnAction(words, why) if why else language.parse(words)
    return Answer(words, action, said.chance, said.kind)

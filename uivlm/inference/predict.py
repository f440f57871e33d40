"""The project's own engine: histories become actions by greedy words until the end token.

In: a History, or several that are answered together. Out: their answers. A predictor that is `bound` says nothing but actions: of all
tokens that may go on with an action's words it takes the likeliest, what can only go on in one way is not asked for, and a typed text
that grows too long is closed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

import torch
from torch import Tensor

from uivlm.episode import History
from uivlm.inference.answer import LIMIT, Answer, Saying, asked, take, told
from uivlm.inference.bound import Bound
from uivlm.inference.cache import SCREENS, Conversation, Features, Kept, Key, Reading, screen_key
from uivlm.inference.likeliest import likeliest
from uivlm.inference.load import Loaded
from uivlm.sentences.sentence import Picture

CONVERSATIONS = 2  # kept, if not more are wanted


@dataclass(frozen=True, slots=True)
class _Prompt:
    """`ids` of the tokens and their `keys`; `screens`: each one's picture, its key and its first and last token's place."""

    ids: list[int]
    keys: list[Key]
    screens: list[tuple[Picture, bytes, int, int]]


class Predictor:
    """Stateless to its caller: what it keeps between calls changes their cost alone. Safe to share by threads.

    `kept`: how many conversations it keeps to go on with them; `bound`: to the words of actions.
    """

    def __init__(
        self,
        loaded: Loaded,
        limit: int = LIMIT,
        reuse: bool = True,
        kept: int = CONVERSATIONS,
        bound: bool = False,
    ) -> None:
        self.loaded, self.limit = loaded, limit
        self.speech = Bound(loaded.reader, loaded.grammar.language) if bound else None
        self.lock = Lock()
        self.sizes = (SCREENS, kept if loaded.reuse else 0) if reuse else (0, 0)
        self.forget()

    def forget(self) -> None:
        """What is said next is to the last bit what a new one would say: sums depend on what is read together."""
        screens, conversations = self.sizes
        with self.lock:
            self.features = Features(self.loaded.module, self.loaded.reader, screens)
            self.kept = Kept(conversations)

    def predict(self, history: History) -> Answer:
        return self.predict_all([history])[0]

    def predict_all(self, histories: Sequence[History]) -> list[Answer]:
        """Of each history, read and answered side by side."""
        if not self.loaded.reuse and len(histories) > 1:  # such a model reads rows of one length only
            return [self.predict(history) for history in histories]
        with self.lock, torch.inference_mode():
            reader, language, bound = (
                self.loaded.reader,
                self.loaded.grammar.language,
                self.speech is not None,
            )
            return [told(said, reader, language, bound) for said in self._answers(histories)]

    def rank(self, history: History, most: int) -> list[Answer]:
        """The likeliest answers of a bound model, from the likeliest on. Fewer than `most` where others are less likely than one in a
        million, or longer than the limit, or where typed texts take too long."""
        if self.speech is None:
            raise ValueError("only a predictor that is bound to the words of actions can rank them")
        speech, language = self.speech, self.loaded.grammar.language
        with self.lock, torch.inference_mode():
            prompt = self._prompt(history)
            reading, logits = self._read([prompt])
            self._keep(reading)
            room = min(self.limit, self.loaded.reader.context - len(prompt.ids))
            chances = logits[0].float().softmax(-1)
            begun = reading.conversations()[0]
            found = likeliest(speech, partial(self._after, begun), chances, most, room)
            spoken = [(self.loaded.reader.text(one.tokens), one) for one in found]
            return [Answer(words, language.parse(words), one.chance, one.kind) for words, one in spoken]

    def next_logits(self, history: History) -> Tensor:
        """Logits [V] of the first token of the answer."""
        with self.lock, torch.inference_mode():
            reading, logits = self._read([self._prompt(history)])
            self._keep(reading)
            return logits[0]

    def _after(self, begun: Conversation, tokens: list[int]) -> Tensor:
        """Probabilities [V] of the token after these. Each time from the prompt on: one prompt's keys and values are held, not one of
        each beginning."""
        logits = Reading(self.loaded.module, self.loaded.reader.pad, [begun]).read([tokens], [tokens], None)
        return logits[0].float().softmax(-1)

    def _answers(self, histories: Sequence[History]) -> list[Saying]:
        prompts = [self._prompt(history) for history in histories]
        reading, logits = self._read(prompts)
        answers = [Saying(min(self.limit, self.loaded.reader.context - len(one.ids))) for one in prompts]
        while True:
            chances = logits.float().softmax(-1)
            rows = [self._say(said, row) for said, row in zip(answers, chances, strict=True)]
            if not any(rows):
                break
            logits = reading.read(rows, rows, None)
        self._keep(reading)
        return answers

    def _say(self, said: Saying, chances: Tensor) -> list[int]:
        """Takes the next token; what is to be read of it: nothing where the answer is over."""
        if said.why is not None:
            return []
        token = int(chances.argmax()) if self.speech is None else self.speech.next(said.tokens, chances)
        return take(said, token, float(chances[token]), self.loaded.reader, self.speech)

    def _prompt(self, history: History) -> _Prompt:
        reader = self.loaded.reader
        sentence, example = asked(history, self.loaded.grammar, reader)
        ids = example.input_ids.tolist()
        keys: list[Key] = list(ids)
        places = iter([i for i, token in enumerate(ids) if token == reader.placeholder])
        pictures = [piece for piece in sentence if isinstance(piece, Picture)]
        screens = []
        for picture, tokens in zip(pictures, example.tokens, strict=True):
            key = screen_key(picture, tokens)
            mine = [next(places) for _ in range(tokens)]
            for i in mine:
                keys[i] = key
            screens.append((picture, key, mine[0], mine[-1]))
        return _Prompt(ids, keys, screens)

    def _read(self, prompts: Sequence[_Prompt]) -> tuple[Reading, Tensor]:
        """Reads what is new of each prompt; logits [B, V] of the first token of each answer."""
        begun, new = [], []
        for one in prompts:
            found = self.kept.beginning(one.keys[:-1])  # something must be read to go on
            shared = len(found.keys)
            # a screen is read as a whole
            shared = next((first for _, _, first, last in one.screens if first < shared <= last), shared)
            begun.append(found.beginning(shared))
            new += [(picture, key) for picture, key, first, _ in one.screens if first >= shared]
        features = None
        if new:
            pictures, keys = zip(*new, strict=True)
            features = torch.cat(self.features.of(pictures, keys))[None]
        reading = Reading(self.loaded.module, self.loaded.reader.pad, begun)
        rows = [one.ids[len(found.keys) :] for one, found in zip(prompts, begun, strict=True)]
        names = [one.keys[len(found.keys) :] for one, found in zip(prompts, begun, strict=True)]
        return reading, reading.read(rows, names, features)

    def _keep(self, reading: Reading) -> None:
        if self.kept.size:
            for one in reading.conversations():
                self.kept.add(one)

"""A history becomes an action: prompt, greedy words until the end token, and what the words say.

In: History. Out: the words, the Action they say (or NotAnAction), and how sure the model was.
"""

from threading import Lock
from typing import Any

import torch
from torch import Tensor

from uivlm.actions.action import Action
from uivlm.actions.language import NotAnAction
from uivlm.episode import History
from uivlm.inference.cache import Features, Key, Prefix, screen_key
from uivlm.inference.load import Loaded
from uivlm.sentences.encode import encode
from uivlm.sentences.sentence import Picture

LIMIT = 128  # tokens of one answer; only typed text comes near


class Predictor:
    """Stateless to its caller: what it keeps between calls changes their cost alone. Safe to share by threads."""

    def __init__(self, loaded: Loaded, limit: int = LIMIT, reuse: bool = True) -> None:
        self.loaded, self.limit, self.reuse = loaded, limit, reuse
        self.lock = Lock()
        self._forget()

    def predict(self, history: History) -> tuple[str, Action | NotAnAction, float]:
        """(words, action, product of the probabilities of the said tokens, its end among them)"""
        with self.lock, torch.inference_mode():
            self._begin()
            try:
                said, ended, confidence = self._answer(history)
            except BaseException:
                self._forget()  # half-read keys and values must not be taken for whole ones
                raise
        reader = self.loaded.reader
        words = reader.text(said)
        if not ended:
            return words, NotAnAction(words, f"no end within {len(said)} tokens"), confidence
        if not all(reader.speaks(token) for token in said):
            return words, NotAnAction(words, "a control token within the words"), confidence
        return words, self.loaded.grammar.language.parse(words), confidence

    def next_logits(self, history: History) -> Tensor:
        """Logits [V] of the first token of the answer."""
        with self.lock, torch.inference_mode():
            self._begin()
            return self._read(history)[0]

    def _begin(self) -> None:
        """Forget what must not be used again: all of it, or the prefix of a model for which it would be wrong."""
        if not self.reuse:
            self._forget()
        elif not self.loaded.reuse:
            self.prefix = Prefix()

    def _forget(self) -> None:
        self.features = Features(self.loaded.module, self.loaded.reader)
        self.prefix = Prefix()

    def _answer(self, history: History) -> tuple[list[int], bool, float]:
        """Greedy tokens, whether the end token came, and the probability of all of them."""
        logits, length = self._read(history)
        room = min(self.limit, self.loaded.reader.context - length)
        said: list[int] = []
        confidence = 1.0
        while True:
            chances = logits.float().softmax(-1)
            token = int(chances.argmax())
            if token == self.loaded.reader.end:
                return said, True, confidence * float(chances[token])
            if len(said) == room:
                return said, False, confidence
            said.append(token)
            confidence *= float(chances[token])
            if not self.loaded.reader.speaks(token):  # no action any more; a placeholder cannot even be read
                return said, True, confidence
            logits = self._forward(torch.tensor([[token]], device=logits.device), None)
            self.prefix.keys.append(token)

    def _read(self, history: History) -> tuple[Tensor, int]:
        """Read the prompt; the logits of its next token, and its length."""
        reader = self.loaded.reader
        sentence = self.loaded.grammar.prompt(history)
        example = encode(sentence, reader, look=False)
        ids = example.input_ids.tolist()
        if len(ids) >= reader.context:
            raise ValueError(
                f"the prompt has {len(ids)} tokens, the model reads {reader.context}: a checkpoint with a lower "
                "grammar.screens is needed"
            )
        pictures = [piece for piece in sentence if isinstance(piece, Picture)]
        screens = [screen_key(one, tokens) for one, tokens in zip(pictures, example.tokens, strict=True)]
        keys = _keys(ids, reader.placeholder, screens, example.tokens)
        shared = self.prefix.crop(keys)
        device = next(self.loaded.module.parameters()).device
        new = torch.tensor([ids[shared:]], device=device)
        num_places = ids[shared:].count(reader.placeholder)
        features = None
        if num_places:
            # the first screen that the new tokens show, perhaps in part
            first = max(k for k in range(len(screens)) if sum(example.tokens[k:]) >= num_places)
            looked = torch.cat(self.features.of(pictures[first:], screens[first:]))
            features = looked[len(looked) - num_places :][None]
        logits = self._forward(new, features)
        self.prefix.keys += keys[shared:]
        return logits, len(ids)

    def _forward(self, input_ids: Tensor, features: Tensor | None) -> Tensor:
        past: Any = self.prefix.values
        outputs = self.loaded.module(
            input_ids, features=features, past_key_values=past, use_cache=True, logits_to_keep=1
        )
        logits: Tensor = outputs.logits[0, -1]
        return logits


def _keys(ids: list[int], placeholder: int, screens: list[bytes], tokens: tuple[int, ...]) -> list[Key]:
    """Each token by its content: a placeholder by the screen it is a part of."""
    parts = iter([key for key, number in zip(screens, tokens, strict=True) for _ in range(number)])
    return [next(parts) if token == placeholder else token for token in ids]

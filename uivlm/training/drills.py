"""Drills for the language model alone: screens as tables of words, no pixels.

In: a seeded random generator. Out: batches in which each patch already is what the vision tower is taught to make of it
(the names of its words and its place, mixed), followed by many questions: where a word is, and texts to repeat. Looking a
word up and copying are learned here in minutes; with a few answers a screen they would take hours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from uivlm.models.llama_vit import LlamaVit, Reader
from uivlm.sentences.encode import IGNORE
from uivlm.training.pages import SHARE, places

QUESTIONS = 8  # after each table
WORDS = (8, 22)  # in a table
NOISE = 0.05  # of each of a patch's numbers: the tower will not be exact


@dataclass(frozen=True, slots=True)
class Drill:
    input_ids: NDArray[np.int64]  # [T]
    labels: NDArray[np.int64]  # [T]
    names: NDArray[np.int64]  # [P, 4] ids of what each patch shows: two words, y, x
    share: NDArray[np.float32]  # [P, 4]
    marks: NDArray[
        np.int64
    ]  # [T, 2] y and x of what is asked for, where question and table meet; else IGNORE


def drill(rng: Random, reader: Reader, words: Sequence[str], spots: NDArray[np.int64]) -> Drill:
    """One table; the first question stands before it, as goals do, the others after it. `spots`: ids [P, 2] of y, x."""
    cells = rng.sample(range(len(spots)), rng.randint(*WORDS))
    shown = rng.sample(words, len(cells))
    names = np.full((len(spots), 2), reader.pad, np.int64)
    share = np.tile(np.array([SHARE[0], 0, *SHARE[1:]], np.float32), (len(spots), 1))
    for cell, word in zip(cells, shown, strict=True):
        names[cell, 0] = reader.words(f" {word}")[0]
        if rng.random() < 0.3:  # a second word in the patch
            names[cell, 1] = reader.words(f" {rng.choice(words)}")[0]
            share[cell, :2] = SHARE[0] / 2
    ids, labels = list(reader.start), [IGNORE] * len(reader.start)
    nothing = (IGNORE, IGNORE)
    marks = [nothing] * len(reader.start)

    def add(new: list[int], trained: bool, marked: Sequence[tuple[int, int]] = ()) -> None:
        ids.extend(new)
        labels.extend(new if trained else [IGNORE] * len(new))
        marks.extend(marked or [nothing] * len(new))

    beside = _beside(cells, spots, {cell for cell in cells if names[cell, 1] == reader.pad})
    for i in range(QUESTIONS):
        at = rng.randrange(len(cells))
        text, asked, question = False, shown[at], f"{rng.choice(('find', 'the', 'tap'))} {shown[at]}"
        match rng.random():
            case p if p < 0.3:
                text, asked = True, " ".join(rng.choice(words) for _ in range(rng.randint(1, 4)))
                question = f"type {asked}"
            case p if p < 0.5 and beside:
                at, next_to = rng.choice(beside)
                text, asked, question = True, shown[next_to], f"what {shown[at]} says"
        y, x = spots[cells[at]]
        # it is the last word of a question that meets the table before it, and the patch that meets the question
        asking = reader.words(f"{question}\n")
        met = [*[nothing] * (len(asking) - 2), (int(y), int(x)), nothing]
        add(asking, trained=False, marked=met if i and not text else ())
        if i == 0:
            blank = (reader.pad, reader.pad)
            seen = [
                (int(y), int(x)) if not text and cell == cells[at] else blank for cell in range(len(spots))
            ]
            add([reader.config.picture_id] * len(spots), trained=False, marked=seen)
            add(reader.words("\n"), trained=False)
        answer = reader.words(f'Input text "{asked}"') if text else [*reader.words("tap at"), int(y), int(x)]
        add([*answer, reader.end], trained=True)
    return Drill(np.array(ids), np.array(labels), np.concatenate([names, spots], 1), share, np.array(marks))


def _beside(cells: Sequence[int], spots: NDArray[np.int64], plain: set[int]) -> list[tuple[int, int]]:
    """Pairs (i, j) of a cell and the next one to its right in the same row, where that shows one word alone."""
    order = sorted(range(len(cells)), key=lambda i: cells[i])
    return [
        (i, j) for i, j in pairwise(order) if spots[cells[i], 0] == spots[cells[j], 0] and cells[j] in plain
    ]


def batches(seed: int, size: int, reader: Reader, words: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Drills without end, a pure function of the seed."""
    rng, spots = Random(f"drills {seed}"), places(reader)
    while True:
        rows = [drill(rng, reader, words, spots) for _ in range(size)]
        longest = max(len(row.input_ids) for row in rows)
        ids = np.full((size, longest), reader.pad, np.int64)
        labels = np.full((size, longest), IGNORE, np.int64)
        marks = np.full((size, longest, 2), IGNORE, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.input_ids)], labels[i, : len(row.labels)] = row.input_ids, row.labels
            marks[i, : len(row.marks)] = row.marks
        arrays = {
            "input_ids": ids,
            "labels": labels,
            "marks": marks,
            "names": np.stack([r.names for r in rows]),
            "share": np.stack([r.share for r in rows]),
        }
        yield {name: torch.from_numpy(array) for name, array in arrays.items()}


def codes(model: LlamaVit) -> Tensor:
    """[V, D] directions of the token embeddings; what all have in common tells no words apart, and is left out."""
    table = cast(Tensor, model.get_input_embeddings().weight)
    return functional.normalize(table - table.mean(0), dim=-1)


def losses(model: LlamaVit, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean losses of marking and saying. Padding stands at the end of rows, where a causal model does not look."""
    mixed = (codes(model)[batch["names"]] * batch["share"].sqrt()[..., None]).sum(2)
    mixed = mixed + NOISE * torch.randn_like(mixed)
    embeds = model.get_input_embeddings()(batch["input_ids"])
    patches = batch["input_ids"] == model.config.picture_id
    embeds = embeds.masked_scatter(patches[..., None], mixed.to(embeds.dtype))
    mark, say = mark_and_say(model, model.language.model(inputs_embeds=embeds).last_hidden_state, batch)
    return {"mark": mark, "say": say}


def mark_and_say(model: LlamaVit, hidden: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Mean nats a marked position (those without anything asked for count a tenth), and a token of an action."""
    head, marks, labels = model.language.lm_head, batch["marks"], batch["labels"][:, 1:]
    marked, said = marks[..., 0] != IGNORE, labels != IGNORE
    wanted = marks[marked]
    weight = torch.where(wanted[:, 0].eq(model.config.text_config.pad_token_id or 0), 0.1, 1.0)
    mark = -functional.log_softmax(head(hidden[marked]), -1).gather(-1, wanted).mean(-1)
    return (mark * weight).sum() / weight.sum(), functional.cross_entropy(
        head(hidden[:, :-1][said]), labels[said]
    )

"""The tiny base is made here: a Llama and a ViT from random weights, on random rendered interfaces.

In: random screens and lessons on them (`uivlm/lessons`). Out: a bridge base folder. Five stages:

    reading    each patch, projected, should name the words it shows and the bins of its place: cross-entropy
               against the tied embeddings, so that a patch arrives at the language model as words it knows
    drilling   language model and projection, on lessons of one screen and many questions
    grounding  the same on lessons of up to eight screens: next-token loss on the right actions of lessons, and what decides an
               answer should mark itself. The vision encoder is frozen now, so that a shelf of screens is seen once and
               asked about many times: with a new screen for every few answers this would take hours
    relating   the goal often names what belongs to the label, as people do (an alarm: to the clock). It comes in turns, each
               with new screens, new lessons and its own rise and fall of the rate: with one shelf of screens it learns them
    settling   on sentences of the form that fine-tuning has: no question but the first, points as a finger hits them

No episode and no goal of the simulated phone is used. Shapes as in `models/llama_vit.py`.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from uivlm.devices.sim.interface import Interface
from uivlm.lessons.shelf import Shelf, shelve
from uivlm.lessons.words import vocabulary
from uivlm.models import patches
from uivlm.models.bridge_folder import load_base, save_base
from uivlm.models.llama_vit import LlamaVit, Reader
from uivlm.sentences.encode import IGNORE
from uivlm.training.pages import Course, Stream, lessons, shown_words
from uivlm.training.readers import how
from uivlm.training.untrained import config, forms_alike, look_alike, tokenizer

SHARP = 20.0  # of the likeness (a cosine) of a patch and a word: only directions count, as in the layers that read them


@dataclass(frozen=True, slots=True)
class Plan:
    """How a base is trained; the numbers are ours."""

    reading: int = 900  # steps
    drilling: int = 500
    grounding: int = 1000
    relating: tuple[int, ...] = (1500, 900, 900, 900, 900)  # of each turn
    settling: int = 150
    screens: int = 64  # a step, of reading
    shelf: int = 6000  # screens that lessons are about, in each turn
    tokens: int = 5000  # a step, of lessons
    lr: float = 1.5e-3  # peak
    warmup: int = 50  # steps, in each stage
    cooling: float = 0.4  # last share of a stage in which the rate falls to nothing
    seed: int = 0


MANY = (1, 1, 2, 3, 4, 6, 8)
COURSES = {
    # much about each screen: most of it is a look for a word
    "drilling": Course((1,), 10, 0.0, by_hand=False),
    "grounding": Course(MANY, 10, 0.3, by_hand=False),
    "relating": Course(MANY, 4, 0.85, by_hand=False),
    "settling": Course((4, 6, 8), 0, 0.5, by_hand=True),  # sentences as fine-tuning has them
}
Drawn = tuple[Interface, Tensor]  # a screen, and its pixels as the vision encoder takes them
Losses = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the plan that leaves its weights."""

    name: str
    kind: str  # reading, or a course
    steps: int
    turn: int  # whose screens it is about


def stages(plan: Plan) -> list[Stage]:
    turns = [Stage(f"relating-{turn}", "relating", steps, turn) for turn, steps in enumerate(plan.relating)]
    return [
        Stage("reading", "reading", plan.reading, 0),
        Stage("drilling", "drilling", plan.drilling, 0),
        Stage("grounding", "grounding", plan.grounding, 0),
        *turns,
        Stage("settling", "settling", plan.settling, len(turns) - 1),
    ]


def make_base(out: Path, plan: Plan, log: Callable[[str], None]) -> None:
    """Trains the tiny base from nothing and writes its folder; a folder that exists is never overwritten.

    Each stage that ends leaves its weights beside it, in OUT.stages: stopped at any moment, the same call goes on
    with the stage that it stopped in, and ends with the same weights.
    """
    if out.exists():
        raise ValueError(f"{out} exists: name a new folder for the base, or remove that one")
    kept = out.with_name(f"{out.name}.stages")
    _claim(kept / "plan.json", plan)
    done = [stage.name for stage in stages(plan) if (kept / stage.name).is_dir()]
    if done:
        log(f"{' and '.join(done)} done before")
        model, spoken = load_base(kept / done[-1])
    else:
        model, spoken = _untrained(plan.seed)
    reader = Reader(spoken, model.config)
    for stage, losses in _begun(model, reader, plan, stages(plan)[len(done) :]):
        _train(stage, plan, model, losses, log)
        save_base(kept / stage.name, model, spoken, torch.float32)
    save_base(out, model, spoken)
    shutil.rmtree(kept)


def _claim(told: Path, plan: Plan) -> None:
    wanted = json.dumps(asdict(plan))
    if told.is_file() and told.read_text("utf-8") != wanted:
        raise ValueError(
            f"{told.parent} holds stages of another plan or seed: remove it, or name another folder"
        )
    told.parent.mkdir(parents=True, exist_ok=True)
    told.write_text(wanted, "utf-8")


def _untrained(seed: int) -> tuple[LlamaVit, Tokenizer]:
    torch.manual_seed(seed)
    spoken = tokenizer(vocabulary())
    model = LlamaVit(config(spoken))
    forms_alike(model, spoken)
    look_alike(model)
    return model, spoken


def _begun(
    model: LlamaVit, reader: Reader, plan: Plan, todo: Sequence[Stage]
) -> Iterator[tuple[Stage, Iterator[Losses]]]:
    """Each stage's losses, one a step, as it begins."""
    if todo and todo[0].kind == "reading":
        screens = _drawn(reader, f"{plan.seed} reading", plan.screens)
        losses = (reading(model, list(islice(screens, plan.screens)), reader) for _ in range(plan.reading))
        yield todo[0], losses
    model.vision.requires_grad_(False)  # it reads, and what it reads stays the same
    about = [stage for stage in todo if stage.kind in COURSES]
    for turn, taken in groupby(about, attrgetter("turn")):
        screens = islice(_drawn(reader, f"{plan.seed} shelf {turn}", plan.screens), plan.shelf)
        shelf, shown, features = stock(model, reader, screens)
        for stage in taken:
            torch.manual_seed(plan.seed + turn)  # as if the stage were begun anew
            given = lessons(f"{plan.seed} {turn}", COURSES[stage.kind], plan.tokens, shelf, shown, reader)
            yield stage, _told(model, given, features)


def _told(model: LlamaVit, given: Iterable[dict[str, Tensor]], features: list[Tensor]) -> Iterator[Losses]:
    for batch in given:
        yield grounding(model, batch, features)


def _drawn(reader: Reader, seed: str, ahead: int) -> Iterator[Drawn]:
    return iter(DataLoader(Stream(reader, seed), batch_size=None, **how(2, ahead)))


@torch.no_grad()
def stock(
    model: LlamaVit, reader: Reader, screens: Iterable[Drawn]
) -> tuple[Shelf, list[NDArray[np.int64]], list[Tensor]]:
    """Screens on a shelf; of each, what its visual tokens name and their patches [S, 5], and their features [S, D]."""
    shown, names = [], []
    features: list[Tensor] = []
    for one, pixels in screens:  # one by one: all their pixels would take gigabytes
        shown.append(one)
        busy = patches.busy(pixels[None], model.config.patch_size)[0].numpy()
        named, _ = shown_words(one.screen, reader)
        names.append(np.concatenate([named, np.arange(len(named))[:, None]], 1)[busy])
        features += model.look(pixels[None])
    return shelve(shown), names, features


def _train(
    stage: Stage, plan: Plan, trained: nn.Module, losses: Iterator[Losses], log: Callable[[str], None]
) -> None:
    """As many steps as the stage has, on the sum of the losses."""
    name, steps = stage.name, stage.steps
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, plan.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps, plan))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=steps)
        for step in range(steps):
            parts = next(losses)
            optimizer.zero_grad()
            torch.stack(list(parts.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            told = " ".join(f"{part} {loss.item():.3f}" for part, loss in parts.items())
            progress.update(bar, advance=1, description=f"{name}: {told}")
            if step % 50 == 0:
                log(f"{name} {step}: {told}")


def rate(step: int, steps: int, plan: Plan) -> float:
    """Share of the peak learning rate: up, level, down."""
    return max(0.0, min((step + 1) / plan.warmup, 1.0, (steps - step) / (plan.cooling * max(1, steps))))


def reading(model: LlamaVit, drawn: Sequence[Drawn], reader: Reader) -> Losses:
    """The mean loss of naming what a patch shows, over the patches that show words and every fifth of the others."""
    pixels = torch.stack([one for _, one in drawn])
    busy = patches.busy(pixels, model.config.patch_size)
    told = [shown_words(shown.screen, reader) for shown, _ in drawn]
    ids, share = (torch.from_numpy(np.stack(part))[busy] for part in zip(*told, strict=True))
    blank = ids[:, 0].eq(reader.pad)
    chosen = ~blank | (torch.rand(blank.shape) < 0.2)
    # what all names have in common tells no words apart, and would grow: words that are never shown are pushed away
    states_VD = torch.cat(list(model.look(pixels)))
    likeness = functional.linear(
        functional.normalize(model.projection(states_VD[chosen]), dim=-1), codes(model)
    )
    log_p = functional.log_softmax(SHARP * likeness, -1).gather(-1, ids[chosen])
    return {"read": -(log_p * share[chosen]).sum(-1).mean()}


def codes(model: LlamaVit) -> Tensor:
    """[V, D] directions of the token embeddings; what all have in common tells no words apart, and is left out."""
    table = cast(Tensor, model.get_input_embeddings().weight)
    return functional.normalize(table - table.mean(0), dim=-1)


def grounding(model: LlamaVit, batch: dict[str, Tensor], features: Sequence[Tensor]) -> Losses:
    """Mean losses: of marking what decides an answer, and of saying a token of an action.

    Padding stands at the end of rows, where a causal model does not look.
    """
    embeds_BTD = model.embed(batch["input_ids"], [features[page] for page in batch["pages"].tolist()])
    hidden_BTD = model.language.model(inputs_embeds=embeds_BTD).last_hidden_state
    head, marks, labels = model.language.lm_head, batch["marks"], batch["labels"][:, 1:]
    empty = marks[..., 0].eq(model.config.text_config.pad_token_id or 0)
    marked = (marks[..., 0] != IGNORE) & (~empty | (torch.rand(empty.shape) < 0.2))  # nearly all are empty
    said = labels != IGNORE
    weight = torch.where(empty[marked], 0.5, 1.0)
    mark = -functional.log_softmax(head(hidden_BTD[marked]), -1).gather(-1, marks[marked]).mean(-1)
    return {
        "mark": (mark * weight).sum() / weight.sum(),
        "say": functional.cross_entropy(head(hidden_BTD[:, :-1][said]), labels[said]),
    }

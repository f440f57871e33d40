"""Pre-training of the tiny base: a Llama and a ViT from random weights, on random rendered interfaces.

In: random screens and lessons on them. Out: a bridge base folder. Five stages:

    reading    Each projected patch should name the words that it shows and the bins of its position:
               cross-entropy against the tied embeddings. The language model then reads patches as words.
    drilling   Language model and projection, on lessons of one screen and many questions.
    grounding  The same on lessons of up to eight screens: next-token loss on the right actions, and the
               patches that decide an answer should mark themselves. The vision encoder is frozen after
               reading, so each screen is encoded once for many questions.
    relating   The goal often names something related to the label, as people do (an alarm means the clock).
               It runs in turns, each with new screens, new lessons and its own learning-rate schedule: with a
               single set of screens the model would memorize them.
    settling   Sentences in the format of fine-tuning: no extra questions, jittered points.

No episode and no goal of the simulated phone is used. Shapes as in `models/bridge/model.py`.
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

from uivlm.atomic import check_new_dir
from uivlm.episodes.encode import IGNORE
from uivlm.models.bridge.blank_patches import find_blank, with_token
from uivlm.models.bridge.files import load_base, save_base
from uivlm.models.bridge.model import LlamaVit
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.dataset import loader_options
from uivlm.training.tiny_base.batches import LessonConfig, ScreenStream, lesson_batches, patch_targets
from uivlm.training.tiny_base.init import (
    build_config,
    build_tokenizer,
    init_matching_attention,
    init_word_forms,
)
from uivlm.training.tiny_base.random_screens import RandomScreen
from uivlm.training.tiny_base.screen_index import ScreenIndex, build_screen_index
from uivlm.training.tiny_base.vocabulary import vocabulary

# Of the cosine of a patch and a word. Only directions count, as in the layers that read them.
SIMILARITY_SCALE = 20.0


@dataclass(frozen=True, slots=True)
class PretrainPlan:
    """Hyperparameters; all numbers are ours."""

    reading: int = 900  # optimizer steps of the stage
    drilling: int = 500
    grounding: int = 1000
    relating: tuple[int, ...] = (1500, 900, 900, 900, 900)  # of each turn
    settling: int = 150
    screens_per_step: int = 64  # in reading
    screens_per_turn: int = 6000  # screens of the lessons of a turn
    tokens_per_step: int = 5000  # in the other stages
    lr: float = 1.5e-3  # peak
    warmup_steps: int = 50  # in each stage
    decay_fraction: float = 0.4  # final fraction of a stage in which the learning rate falls to 0
    seed: int = 0


LESSON_LENGTHS = (1, 1, 2, 3, 4, 6, 8)
LESSON_CONFIGS = {
    # many questions about each screen: mostly finding a word
    "drilling": LessonConfig((1,), 10, 0.0, touch_jitter=False),
    "grounding": LessonConfig(LESSON_LENGTHS, 10, 0.3, touch_jitter=False),
    "relating": LessonConfig(LESSON_LENGTHS, 4, 0.85, touch_jitter=False),
    "settling": LessonConfig((4, 6, 8), 0, 0.5, touch_jitter=True),  # the format of fine-tuning
}
RenderedScreen = tuple[RandomScreen, Tensor]  # a screen, and its pixels uint8 [3, h, w]
Losses = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the plan whose weights are saved."""

    name: str
    phase: str  # "reading", or a key of LESSON_CONFIGS
    steps: int  # optimizer steps
    turn: int  # the turn whose screens it uses


def stages(plan: PretrainPlan) -> list[Stage]:
    turns = [Stage(f"relating-{turn}", "relating", steps, turn) for turn, steps in enumerate(plan.relating)]
    return [
        Stage("reading", "reading", plan.reading, 0),
        Stage("drilling", "drilling", plan.drilling, 0),
        Stage("grounding", "grounding", plan.grounding, 0),
        *turns,
        Stage("settling", "settling", plan.settling, len(turns) - 1),
    ]


def make_base(out: Path, plan: PretrainPlan, log: Callable[[str], None]) -> None:
    """Train the tiny base from random weights and write its folder `out`.

    Each finished stage is saved in OUT.stages. If interrupted, the same call repeats the stage that was
    interrupted, and produces the same weights.
    """
    check_new_dir(out)
    stages_dir = out.with_name(f"{out.name}.stages")
    _write_plan(stages_dir / "plan.json", plan)
    done = [stage.name for stage in stages(plan) if (stages_dir / stage.name).is_dir()]
    if done:
        log(f"finished earlier: {', '.join(done)}")
        model, tokenizer = load_base(stages_dir / done[-1])
    else:
        model, tokenizer = _random_model(plan.seed)
    processor = BridgeProcessor(tokenizer, model.config)
    for stage, losses in _stage_losses(model, processor, plan, stages(plan)[len(done) :]):
        _train(stage, plan, model, losses, log)
        save_base(stages_dir / stage.name, model, tokenizer, torch.float32)
    save_base(out, model, tokenizer)
    shutil.rmtree(stages_dir)


def _write_plan(plan_file: Path, plan: PretrainPlan) -> None:
    """Record the plan; ValueError if the folder has stages of another one."""
    content = json.dumps(asdict(plan))
    if plan_file.is_file() and plan_file.read_text("utf-8") != content:
        raise ValueError(
            f"{plan_file.parent} has stages of another plan or seed: remove it, or choose another folder"
        )
    plan_file.parent.mkdir(parents=True, exist_ok=True)
    plan_file.write_text(content, "utf-8")


def _random_model(seed: int) -> tuple[LlamaVit, Tokenizer]:
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(vocabulary())
    model = LlamaVit(build_config(tokenizer))
    init_word_forms(model, tokenizer)
    init_matching_attention(model)
    return model, tokenizer


def _stage_losses(
    model: LlamaVit, processor: BridgeProcessor, plan: PretrainPlan, todo: Sequence[Stage]
) -> Iterator[tuple[Stage, Iterator[Losses]]]:
    """Each stage and its losses, one item per step."""
    if todo and todo[0].phase == "reading":
        screens = _render_screens(processor, f"{plan.seed} reading", plan.screens_per_step)
        losses = (
            reading_loss(model, list(islice(screens, plan.screens_per_step)), processor)
            for _ in range(plan.reading)
        )
        yield todo[0], losses
    model.vision.requires_grad_(False)  # the features of a screen are computed once
    lesson_stages = [stage for stage in todo if stage.phase in LESSON_CONFIGS]
    for turn, turn_stages in groupby(lesson_stages, attrgetter("turn")):
        screens = islice(
            _render_screens(processor, f"{plan.seed} shelf {turn}", plan.screens_per_step),
            plan.screens_per_turn,
        )
        index, names, features = index_screens(model, processor, screens)
        for stage in turn_stages:
            torch.manual_seed(plan.seed + turn)  # as if the run resumed with this stage
            config, seed = LESSON_CONFIGS[stage.phase], f"{plan.seed} {turn}"
            batches = lesson_batches(seed, config, plan.tokens_per_step, index, names, processor)
            yield stage, _lesson_losses(model, batches, features)


def _lesson_losses(
    model: LlamaVit, batches: Iterable[dict[str, Tensor]], features: list[Tensor]
) -> Iterator[Losses]:
    for batch in batches:
        yield grounding_loss(model, batch, features)


def _render_screens(processor: BridgeProcessor, seed: str, prefetch_factor: int) -> Iterator[RenderedScreen]:
    return iter(
        DataLoader(ScreenStream(processor, seed), batch_size=None, **loader_options(2, prefetch_factor))
    )


@torch.no_grad()
def index_screens(
    model: LlamaVit, processor: BridgeProcessor, screens: Iterable[RenderedScreen]
) -> tuple[ScreenIndex, list[NDArray[np.int64]], list[Tensor]]:
    """The index of the screens; of each, what its visual tokens name and their patches [S, 5]; its features
    [S, D].
    """
    pages, names = [], []
    features: list[Tensor] = []
    for screen, pixels in screens:  # one at a time: the pixels of all screens would take gigabytes
        pages.append(screen)
        shows = with_token(find_blank(pixels[None], model.config.patch_size))[0].numpy()
        targets, _ = patch_targets(screen.screen, processor)
        names.append(np.concatenate([targets, np.arange(len(targets))[:, None]], 1)[shows])
        features += model.get_image_features(pixels[None])
    return build_screen_index(pages), names, features


def _train(
    stage: Stage, plan: PretrainPlan, model: nn.Module, losses: Iterator[Losses], log: Callable[[str], None]
) -> None:
    """Train all steps of a stage on the sum of its losses."""
    name, steps = stage.name, stage.steps
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, plan.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, steps, plan)
    )
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
            values = " ".join(f"{part} {loss.item():.3f}" for part, loss in parts.items())
            progress.update(bar, advance=1, description=f"{name}: {values}")
            if step % 50 == 0:
                log(f"{name} {step}: {values}")


def learning_rate_factor(step: int, steps: int, plan: PretrainPlan) -> float:
    """Factor of the peak learning rate: linear warmup, constant, linear decay."""
    warmup = (step + 1) / plan.warmup_steps
    decay = (steps - step) / (plan.decay_fraction * max(1, steps))
    return max(0.0, min(warmup, 1.0, decay))


def reading_loss(model: LlamaVit, screens: Sequence[RenderedScreen], processor: BridgeProcessor) -> Losses:
    """The mean loss of naming what a patch shows, over patches with words and a fifth of the others."""
    pixels = torch.stack([pixels for _, pixels in screens])
    shows = with_token(find_blank(pixels, model.config.patch_size))
    targets = [patch_targets(screen.screen, processor) for screen, _ in screens]
    ids, weights = (torch.from_numpy(np.stack(part))[shows] for part in zip(*targets, strict=True))
    without_words = ids[:, 0].eq(processor.pad_id)
    chosen = ~without_words | (torch.rand(without_words.shape) < 0.2)
    # the softmax also pushes away words that no screen shows; without the common part of all embeddings
    # removed, it would only enlarge that part
    states_VD = torch.cat(list(model.get_image_features(pixels)))
    cosine = functional.linear(
        functional.normalize(model.projection(states_VD[chosen]), dim=-1), embedding_directions(model)
    )
    log_p = functional.log_softmax(SIMILARITY_SCALE * cosine, -1).gather(-1, ids[chosen])
    return {"read": -(log_p * weights[chosen]).sum(-1).mean()}


def embedding_directions(model: LlamaVit) -> Tensor:
    """[V, D] directions of the token embeddings, without their mean, which does not distinguish words."""
    table = cast(Tensor, model.get_input_embeddings().weight)
    return functional.normalize(table - table.mean(0), dim=-1)


def grounding_loss(model: LlamaVit, batch: dict[str, Tensor], features: Sequence[Tensor]) -> Losses:
    """Mean losses: of marking what decides an answer, and of the tokens of actions.

    Padding is on the right, which a causal model does not attend to.
    """
    embeds_BTD = model.embed(batch["input_ids"], [features[page] for page in batch["pages"].tolist()])
    hidden_BTD = model.language.model(inputs_embeds=embeds_BTD).last_hidden_state
    head, marks, labels = model.language.lm_head, batch["marks"], batch["labels"][:, 1:]
    empty = marks[..., 0].eq(model.config.text_config.pad_token_id or 0)
    marked = (marks[..., 0] != IGNORE) & (~empty | (torch.rand(empty.shape) < 0.2))  # nearly all are empty
    trained = labels != IGNORE
    weight = torch.where(empty[marked], 0.5, 1.0)
    mark = -functional.log_softmax(head(hidden_BTD[marked]), -1).gather(-1, marks[marked]).mean(-1)
    return {
        "mark": (mark * weight).sum() / weight.sum(),
        "say": functional.cross_entropy(head(hidden_BTD[:, :-1][trained]), labels[trained]),
    }

"""The tiny base is made here: a Llama and a ViT from random weights, on random rendered interfaces.

In: lessons (`uivlm/lessons.py`). Out: a bridge base folder. Three stages:

    reading    each patch, projected, should name the words it shows and the bins of its place: cross-entropy
               against the tied embeddings, so that a patch arrives at the language model as words it knows
    drilling   the language model alone looks words up in tables and repeats texts (`training/drills.py`)
    grounding  language model and projection, on what the vision encoder reads: next-token loss on the right
               actions of each lesson, and each patch should mark itself where it shows what is asked for

No episode and no goal of the simulated phone is used. Shapes as in `models/llama_vit.py`.
"""

import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from uivlm.devices.sim.words import lexicon
from uivlm.lessons import vocabulary
from uivlm.models.bridge_folder import save_base
from uivlm.models.llama_vit import BridgeConfig, LlamaVit, Reader
from uivlm.training import drills
from uivlm.training.pages import Stream

IMAGE = (256, 126)  # what the ViT sees: height, width
PATCH = (16, 42)  # one row of the phone's rhythm high, a third of the screen wide: a word or two
SPREAD = (
    0.07  # of random weights: 1 / sqrt(width); the customary 0.02 is for wider models and learns late here
)
ALIKE = 0.6  # gain of queries and keys: at 1 a word would see itself alone
QUIET = 0.3  # what a layer adds at first, against the word that it adds to
SHARP = 20.0  # of the likeness (a cosine) of a patch and a word: only directions count, as in the layers that read them
TYPING = 'Input text "'  # what stands before typed text in the words of an action
CONTROL = ("empty", "start", "end", "picture")  # ids above the tokenizer's own


def tokenizer(words: Iterable[str]) -> Tokenizer:
    """Each of the words, with and without a blank before it and in small letters, is one token; so is each number
    of a bin. Anything else is told in letters, and any byte that is no letter of these words as that byte."""
    forms = {form for word in words for form in (word, word.lower(), f" {word}", f" {word.lower()}")}
    forms |= {'"', ' "'}
    letters = {letter for form in forms for letter in form} | set(string.printable)
    numbers = {f" {n}" for n in range(100)}
    pieces = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [(letter, -10.0) for letter in sorted(letters - forms - numbers)]
    pieces += [(form, -1.0) for form in sorted(forms | numbers)]
    made = Tokenizer(models.Unigram(pieces, 0, True))
    # one word at a time, so that no token reaches over a blank or into a quotation mark
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w[\w'&.:-]*\w| ?\w| ?[^\s\w]|\s"), "isolated")
    # a typed word is the token that goals and screens have for it: the one with a blank before it
    made.normalizer = normalizers.Replace(TYPING, f"{TYPING} ")
    unspaced = decoders.Replace(f"{TYPING} ", TYPING)
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), unspaced])
    return made


def config(words: Tokenizer) -> BridgeConfig:
    """About five million parameters; widths chosen for two CPU cores."""
    first = words.get_vocab_size()
    ids = {name: first + i for i, name in enumerate(CONTROL)}
    text = {
        "vocab_size": first + len(CONTROL),
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "initializer_range": SPREAD,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "bos_token_id": ids["start"],
        "eos_token_id": ids["end"],
        "pad_token_id": ids["empty"],
    }
    vision = {
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "initializer_range": SPREAD,
        "image_size": IMAGE,
        "patch_size": PATCH,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BridgeConfig(text, vision, "patches", picture_id=ids["picture"])


def forms_alike(model: LlamaVit, words: Tokenizer) -> None:
    """The forms of a word (with a blank before it or not, capital or small) begin as one vector and what is its own.

    So what is learned about one form, that its copy is to be typed say, begins to hold for the others.
    """
    table = cast(Tensor, model.get_input_embeddings().weight)
    vocabulary = words.get_vocab()
    stems = {form: form.strip().lower() for form in vocabulary}
    shared = {stem: torch.randn(table.shape[1]) * SPREAD for stem in sorted(set(stems.values()))}
    kinds = torch.randn(2, 2, table.shape[1]) * SPREAD  # what all forms of a kind have in common
    with torch.no_grad():
        for form, i in vocabulary.items():
            kind = kinds[int(form.startswith(" ")), int(form.strip()[:1].isupper())]
            table[i] = 0.5 * table[i] + 0.7 * shared[stems[form]] + 0.5 * kind


def look_alike(model: LlamaVit) -> None:
    """Attention begins as a look for the same word elsewhere, and as a copy of what stands there.

    Grounding is just that: the word asked for is matched with the words that patches show, and the place is copied.
    So queries equal keys, and each output projection undoes its value projection. From independent random weights
    neither had begun after a thousand steps.
    """
    with torch.no_grad():
        for layer in model.language.model.layers:
            attention = layer.self_attn
            torch.nn.init.orthogonal_(attention.q_proj.weight, ALIKE)
            attention.k_proj.weight.copy_(attention.q_proj.weight)
            torch.nn.init.orthogonal_(attention.v_proj.weight)
            attention.o_proj.weight.copy_(QUIET * attention.v_proj.weight.T)
            layer.mlp.down_proj.weight.mul_(QUIET)


# -- the run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How a base is trained; the numbers are ours."""

    reading: int = 900  # steps
    drilling: int = 400
    grounding: int = 1000
    screens: int = 64  # a step, of all its lessons
    drills: int = 32  # tables a step
    lr: float = 1.5e-3  # peak
    warmup: int = 50  # steps, in each stage
    cooling: float = 0.4  # last share of a stage in which the rate falls to nothing
    seed: int = 0


def make_base(out: Path, plan: Plan, log: Callable[[str], None]) -> None:
    """Trains the tiny base from nothing and writes its folder; a folder that exists is never overwritten."""
    if out.exists():
        raise ValueError(f"{out} exists: name a new folder for the base, or remove that one")
    torch.manual_seed(plan.seed)
    spoken = tokenizer(vocabulary())
    model = LlamaVit(config(spoken))
    forms_alike(model, spoken)
    look_alike(model)
    pretrain(model, Reader(spoken, model.config), plan, log)
    save_base(out, model, spoken)


def pretrain(model: LlamaVit, reader: Reader, plan: Plan, log: Callable[[str], None]) -> None:
    """Trains `model` in place."""
    loader = DataLoader(
        Stream(reader, plan.seed, plan.screens), batch_size=None, num_workers=2, prefetch_factor=4
    )
    pages, tables = iter(loader), drills.batches(plan.seed, plan.drills, reader, lexicon())
    _stage("reading", plan.reading, plan, model, lambda: reading(model, next(pages)), log)
    _stage("drilling", plan.drilling, plan, model.language, lambda: drills.losses(model, next(tables)), log)
    model.vision.requires_grad_(False)  # it reads, and what it reads stays the same
    _stage("grounding", plan.grounding, plan, model, lambda: grounding(model, next(pages)), log)


def _stage(
    name: str,
    steps: int,
    plan: Plan,
    trained: nn.Module,
    losses: Callable[[], dict[str, Tensor]],
    log: Callable[[str], None],
) -> None:
    """`steps` steps on the sum of the losses."""
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, plan.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps, plan))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=steps)
        for step in range(steps):
            parts = losses()
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


def reading(model: LlamaVit, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The mean loss of naming what a patch shows, over the patches that show words and every fifth of the others."""
    states_NPD = model.vision(pixel_values=batch["pixels"]).last_hidden_state[:, 1:]
    ids, share = batch["word_ids"], batch["word_share"]
    blank = ids[..., 0].eq(model.config.text_config.pad_token_id or 0)
    chosen = ~blank | (torch.rand(blank.shape) < 0.2)
    names = drills.codes(model)
    # what all names have in common tells no words apart, and would grow: words that are never shown are pushed away
    likeness = functional.linear(functional.normalize(model.projection(states_NPD[chosen]), dim=-1), names)
    log_p = functional.log_softmax(SHARP * likeness, -1).gather(-1, ids[chosen])
    return {"read": -(log_p * share[chosen]).sum(-1).mean()}


def grounding(model: LlamaVit, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean losses: of marking what is asked for, and of saying a token of an action."""
    with torch.no_grad():
        seen = model.look(batch["pixels"])
    embeds_BTD = model.embed(batch["input_ids"], seen)
    told = model.language.model(inputs_embeds=embeds_BTD, attention_mask=batch["attention_mask"])
    mark, say = drills.mark_and_say(model, told.last_hidden_state, batch)
    return {"mark": mark, "say": say}

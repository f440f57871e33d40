"""A random bridge and Qwen-VL, their tokenizers, episodes and prepared data on disk, all tiny."""

import base64
import json
from dataclasses import fields, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.aitw import to_aitw
from uivlm.episodes.episode import Episode, Screen, Step, to_annotations
from uivlm.episodes.rows import SCHEMA, VERSION, to_row
from uivlm.models.bridge.files import save_base
from uivlm.models.bridge.model import BridgeConfig, LlamaVit
from uivlm.models.qwen_vl import files as qwen_files
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.recipe import (
    DataArgs,
    LlamaVitArgs,
    LoraArgs,
    OptimArgs,
    PromptArgs,
    QwenVLArgs,
    Recipe,
    TrainArgs,
)

START, END, PAD, PICTURE = range(4)  # counted from the end of the tokenizer's own ids


@lru_cache
def spoken() -> str:
    """A byte-level BPE of a few merges, as JSON."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(
        ["tap at swipe from to Input text press back home enter complete impossible"], trainer
    )
    return str(made.to_str())


def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(spoken())


def config(visual_tokens: str = "grid", context: int = 512, **text: Any) -> BridgeConfig:
    first = tokenizer().get_vocab_size()
    llama = {
        "vocab_size": first + 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "bos_token_id": first + START,
        "eos_token_id": first + END,
        "pad_token_id": first + PAD,
        "initializer_range": 0.2,
    }
    vit = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "initializer_range": 0.2,
        "image_size": (48, 32),
        "patch_size": (8, 8),
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BridgeConfig(llama | text, vit, visual_tokens, (2, 2), first + PICTURE)  # type: ignore[arg-type]


def bridge(visual_tokens: str = "grid", seed: int = 0, **text: Any) -> LlamaVit:
    torch.manual_seed(seed)
    return LlamaVit(config(visual_tokens, **text)).eval()


def base(folder: Path, **text: Any) -> Path:
    save_base(folder, bridge(**text), tokenizer(), torch.float32)
    return folder


QWEN_QUERIES = 4  # visual tokens a screen of the small Qwen-VL
QWEN_CONTROL = 256  # its first control id, <|endoftext|>: the ids below are bytes


def qwen_base(folder: Path, context: int = 512, spread: float = 0.1) -> Path:
    """A random Qwen-VL whose tokens are bytes, in the original's format. `spread` of its weights."""
    visual = {"image_size": 32, "patch_size": 8, "width": 24, "layers": 1, "heads": 2, "mlp_ratio": 2.0}
    visual |= {"output_dim": 128, "n_queries": QWEN_QUERIES, "image_start_id": QWEN_CONTROL + 214}
    text: dict[str, Any] = {"vocab_size": 480, "hidden_size": 128, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "kv_channels": 32, "intermediate_size": 64, "visual": visual}
    torch.manual_seed(0)
    made = QwenVL(QwenVLConfig(seq_length=context, max_position_embeddings=2 * context, **text))
    with torch.no_grad():
        for value in made.parameters():
            value += spread * torch.randn_like(value)
    ranks = folder.with_name(f"{folder.name}.tiktoken")
    ranks.write_bytes(b"\n".join(base64.b64encode(bytes([i])) + b" %d" % i for i in range(256)))
    qwen_files.save(folder, made, ranks)
    return folder


def vocabulary() -> Path:
    """Qwen-VL's whole vocabulary, in the package that `make setup` installs for it."""
    spec = find_spec("qwen_agent")
    if spec is None or spec.origin is None:
        pytest.skip("the vocabulary is not here: pip install --no-deps qwen-agent==0.0.34")
    return Path(spec.origin).parent / "utils" / "qwen.tiktoken"


def qwen_recipe(base_folder: Path, data: Path, train: dict[str, Any] | None = None, **part: Any) -> Recipe:
    llama_vit = recipe(base_folder, data, **({"activation_checkpointing": True} | (train or {})))
    return replace(llama_vit, model=QwenVLArgs(str(base_folder), **({"lora": LoraArgs(4, 8, 0.0)} | part)))


def screen(seed: int, height: int = 30, width: int = 20) -> Screen:
    return Screen(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


ACTIONS: tuple[Action, ...] = (
    Tap(Point(0.105, 0.905)),
    Swipe(Point(0.805, 0.505), Point(0.205, 0.525)),
    Type('say "hi"\n</s> <screen> 新闻 🙂'),
    Press("back"),
    Press("home"),
    Press("enter"),
    Finish("impossible"),
    Finish("complete"),
)


def episode(seed: int, num_steps: int, goal: str | None = None) -> Episode:
    steps = tuple(Step(screen(100 * seed + t), ACTIONS[(seed + t) % len(ACTIONS)]) for t in range(num_steps))
    return Episode(f"e{seed}", goal or f"goal {seed}", "general", steps)


def prepare(folder: Path, episodes: list[Episode], bins: int = 100, validation: int = 0) -> Path:
    """Prepared data with one shard: the split train, but for the last `validation` episodes."""
    rows = []
    num_train = len(episodes) - validation
    for number, one in enumerate(episodes):
        for t, step in enumerate(one.steps):
            row = to_row(
                to_aitw(step.action),
                "",
                step.screen.pixels,
                to_annotations(step.screen.elements),
                "png",
                notes=step.notes,
            )
            row |= {"subset": one.subset, "episode_id": one.id, "goal": one.goal, "step_id": t, "t": t}
            rows.append(row | {"split": "train" if number < num_train else "validation"})
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "train-0.parquet", row_group_size=16)
    meta = {
        "format": "uivlm prepared data",
        "version": VERSION,
        "num_bins": bins,
        "splits": {"train": num_train, "validation": validation, "test": 0},
        "subsets": {"general": len(episodes)},
        "fingerprint": f"of {len(rows)} rows",
        "shards": [{"file": "train-0.parquet", "steps": len(rows)}],
    }
    (folder / "meta.json").write_text(json.dumps(meta), "utf-8")
    return folder


def with_settings(recipe: Recipe, **settings: Any) -> Recipe:
    """The recipe with fields of its parts train, optim and distributed changed, by their names alone."""
    for part in ("train", "optim", "distributed"):
        own = {field.name for field in fields(getattr(recipe, part))} & set(settings)
        changed = replace(getattr(recipe, part), **{name: settings.pop(name) for name in own})
        recipe = replace(recipe, **{part: changed})
    assert not settings, f"no such settings: {settings}"
    return recipe


def recipe(base_folder: Path, data: Path, screens: int = 4, **settings: Any) -> Recipe:
    """A small run; no processes beside it."""
    plain = Recipe(
        "small",
        LlamaVitArgs(str(base_folder), LoraArgs(4, 8, 0.0)),
        PromptArgs(100, screens, 3),
        DataArgs(str(data)),
        TrainArgs(
            per_device_batch_size=2,
            precision="float32",
            activation_checkpointing=False,
            report_to=(),
            num_workers=0,
        ),
        OptimArgs(lr=1e-2, weight_decay=0.0),
    )
    return with_settings(plain, **settings)

"""The recipe of a command line: a name or file and `--set` settings in, a checked Recipe out."""

from uivlm.recipe import Recipe, RecipeError, load, override

# Settings of earlier versions -> their names now (CHANGELOG.md).
RENAMED = {
    "model.base": "model.base_model", "model.kind": "model.type", "model.vision": "model.vision_encoder",
    "model.quantise": "model.quantize", "model.grid": "model.grid_size", "model.context": "model.max_length",
    "model.most": "model.max_visual_tokens", "model.least": "model.min_visual_tokens",
    "model.older": "model.max_visual_tokens_by_age", "model.long_context": "model.dynamic_ntk",
    "grammar.bins": "prompt.num_bins", "grammar.screens": "prompt.max_screens",
    "grammar.before": "prompt.max_past_actions", "data.folder": "data.path",
    "data.limit": "data.max_episodes",
    "data.also": "data.extra", "data.validation": "data.eval_episodes",
    "train.batch": "train.per_device_batch_size", "train.accumulate": "train.gradient_accumulation_steps",
    "train.pack": "train.max_packed_tokens", "train.packing": "train.max_packed_tokens",
    "train.keep_features": "train.cache_vision_features",
    "train.readers": "train.num_workers", "train.patience": "data.early_stopping_patience",
    "train.early_stopping_patience": "data.early_stopping_patience",
    "train.lr": "optim.lr", "train.weight_decay": "optim.weight_decay", "train.beta2": "optim.adam_beta2",
    "train.clip": "optim.max_grad_norm", "train.warmup": "optim.warmup_fraction",
    "train.zero": "distributed.zero_stage", "train.offload": "distributed.cpu_offload",
}  # fmt: skip


def load_recipe(name: str, settings: list[str] | None) -> Recipe:
    """Raises RecipeError; for a setting of an earlier version it gives the new name."""
    for setting in settings or []:
        old = setting.partition("=")[0]
        if old in RENAMED:
            raise RecipeError(f"--set {setting!r}: {old} is now {RENAMED[old]}")
    return override(load(name), settings or [])

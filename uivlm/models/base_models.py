"""The base models that a checkpoint names. A stranger's hub id is downloaded on request only.

In: the recipe of a checkpoint. Out: the same recipe with folders of this machine in place of hub ids.
"""

from dataclasses import replace
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from uivlm.models.adapters import FULL_DIR, checkpoint_files
from uivlm.models.pretrained import first_line, is_hub_id
from uivlm.recipe import LlamaVitArgs, QwenVLArgs, Recipe

BASE_FIELDS = ("base_model", "vision_encoder")  # of a recipe's model
BASE_FILES = ["*.json", "*.safetensors", "*.tiktoken", "chat_template.*"]
PYTORCH_FILES = ["*.bin"]  # the original Qwen-VL
HUB_ERRORS = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError)


def with_local_bases(recipe: Recipe) -> Recipe:
    """ValueError for a base of the hub that is not in the local cache. Opens no connection."""
    folders: dict[str, Any] = {field: _cached(hub_id) for field, hub_id in hub_bases(recipe).items()}
    return replace(recipe, model=replace(recipe.model, **folders))


def fetch_bases(recipe: Recipe) -> None:
    """Download the bases of the hub into its local cache."""
    files = BASE_FILES + (PYTORCH_FILES if isinstance(recipe.model, QwenVLArgs) else [])
    for hub_id in hub_bases(recipe).values():
        try:
            snapshot_download(hub_id, allow_patterns=files)
        except HUB_ERRORS as error:
            raise ValueError(f"the model hub did not provide {hub_id} ({first_line(error)})") from None


def hub_bases(recipe: Recipe) -> dict[str, str]:
    """Hub ids by their field in the recipe's model. A checkpoint with all weights needs no base."""
    if FULL_DIR in checkpoint_files(recipe) or isinstance(recipe.model, LlamaVitArgs):
        return {}
    names = {field: str(getattr(recipe.model, field, "")) for field in BASE_FIELDS}
    return {field: name for field, name in names.items() if is_hub_id(name)}


def _cached(hub_id: str) -> str:
    try:
        return snapshot_download(hub_id, local_files_only=True)
    except HUB_ERRORS:
        raise ValueError(
            f"the checkpoint names the base {hub_id}, which is not on this machine: to download it from the "
            f"model hub, add --fetch if you trust its owner, {hub_id.partition('/')[0]}"
        ) from None

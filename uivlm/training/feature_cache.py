"""Vision features on disk: each screen passes the frozen vision encoder once, for all epochs and all runs.

In: episodes and the model. Out: a dataset whose features are in one float32 file, memory-mapped. The file is
in DATA/features/NAME, where NAME is a digest of everything that the features depend on.
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from uivlm import recipe as recipes
from uivlm.atomic import new_dir
from uivlm.episodes.encode import Example, Processor
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.episodes.window_index import WindowIndex
from uivlm.models.multimodal import encode_screens, is_vision_parameter
from uivlm.training.dataset import encode_window, loader_options, resolve_num_workers
from uivlm.training.mixture import ConcatEpisodes

SCREENS_PER_FORWARD = 64  # batch size of the vision encoder
PREFETCH_FACTOR = 8  # episodes that each worker reads in advance
AFTER_FEATURES = (
    "lora",
    "projector",
    "freeze_language_model",
)  # model settings that features do not depend on
VERSION = 2  # raised when screens become pixels in another way
FOLDER, FEATURES_FILE, TOKENS_FILE, METADATA_FILE = "features", "features.bin", "tokens.npz", "metadata.json"
_EpisodeScreens = list[
    tuple[list[int], NDArray[np.float32]]
]  # of each step: the ids of its screen, its pixels


@dataclass(frozen=True, slots=True, eq=False)
class ScreenFeatures:
    """The cache of all screens, in the order of the data."""

    file: Path  # float32 [all visual tokens, feature_size]
    image_token_ids: list[list[int]]  # of each screen: its ids in a sentence
    token_ends: NDArray[np.int64]  # of each screen: end of its rows in `file`
    feature_size: int


class CachedFeatureDataset(Dataset[Example]):
    """Windows whose ids and labels are in memory, and their features in a file."""

    def __init__(
        self,
        cache: ScreenFeatures,
        examples: list[Example],
        screen_spans: list[tuple[int, int]],
        num_tokens: NDArray[np.int32],
    ) -> None:
        """`screen_spans`: of each example its first screen and the end of its screens, counted over all
        episodes.
        """
        shape = int(cache.token_ends[-1]), cache.feature_size
        self.features = np.memmap(cache.file, np.float32, "r", shape=shape)
        self.token_ends = [0, *cache.token_ends.tolist()]
        self.examples, self.screen_spans = examples, screen_spans
        self.num_tokens = num_tokens

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        start, end = self.screen_spans[index]
        spans = pairwise(self.token_ends[start : end + 1])
        features = tuple(np.array(self.features[a:b]) for a, b in spans)
        return replace(self.examples[index], num_visual_tokens=tuple(map(len, features)), features=features)


def build_feature_cache(
    model: nn.Module,
    recipe: recipes.Recipe,
    episodes: ConcatEpisodes,
    index: WindowIndex,
    prompt_format: PromptFormat,
    processor: Processor,
) -> CachedFeatureDataset:
    """The dataset of the windows of an index. Rank 0 computes the features, unless an earlier run did.

    ValueError if the cache of an earlier run is damaged or belongs to other data.
    """
    metadata = _cache_metadata(model, recipe, episodes)
    name = hashlib.sha256(json.dumps(metadata).encode()).hexdigest()[:16]
    folder = Path(recipe.data.path) / FOLDER / name
    if int(os.environ.get("RANK", "0")) == 0 and not folder.exists():
        num_workers = resolve_num_workers(recipe.train.num_workers)
        with new_dir(folder) as temporary:
            _write_cache(temporary, model, _ScreenDataset(episodes, processor), num_workers, metadata)
    # not a barrier: computing the features can take longer than a barrier's timeout
    while not folder.exists():  # if rank 0 fails, the launcher stops this process
        time.sleep(0.1)
    cache = _open_cache(folder, metadata)
    encoded = _encode_windows(episodes, index, cache.image_token_ids, prompt_format, processor)
    return CachedFeatureDataset(cache, *encoded, index.num_tokens)


def _cache_metadata(model: nn.Module, recipe: recipes.Recipe, episodes: ConcatEpisodes) -> dict[str, Any]:
    """Everything that features depend on: the screens, how they become pixels, the encoder's weights."""
    weights = hashlib.sha256()
    for name, value in model.state_dict().items():
        if is_vision_parameter(name):
            weights.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            weights.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    metadata = {
        "version": VERSION,
        "model": {name: value for name, value in asdict(recipe.model).items() if name not in AFTER_FEATURES},
        "weights": weights.hexdigest(),
        "data": episodes.fingerprints,
    }
    return dict(json.loads(json.dumps(metadata)))  # through JSON, so that it equals what is read back


@torch.inference_mode()
def _write_cache(
    folder: Path, model: nn.Module, screens: "_ScreenDataset", num_workers: int, metadata: dict[str, Any]
) -> None:
    loader = DataLoader(screens, batch_size=None, **loader_options(num_workers, PREFETCH_FACTOR))
    num_screens, feature_size = sum(screens.episodes.num_steps), 0
    image_token_ids: list[list[int]] = []
    lengths: list[int] = []
    pending: list[NDArray[np.float32]] = []
    with (
        (folder / FEATURES_FILE).open("wb") as file,
        tqdm(total=num_screens, desc="vision features", unit="screen") as bar,
    ):
        for episode_screens in loader:
            image_token_ids += [ids for ids, _ in episode_screens]
            pending += [pixels for _, pixels in episode_screens]
            while len(pending) >= SCREENS_PER_FORWARD or (pending and len(image_token_ids) == num_screens):
                batch, pending = pending[:SCREENS_PER_FORWARD], pending[SCREENS_PER_FORWARD:]
                for features in encode_screens(model, batch):
                    file.write(features.float().cpu().numpy().tobytes())
                    lengths.append(len(features))
                    feature_size = features.shape[1]
                bar.update(len(batch))
    if len(image_token_ids) != num_screens:
        raise ValueError(
            f"the episodes have {len(image_token_ids)} screens; their index has {num_screens}. "
            "Prepare the data again"
        )
    np.savez_compressed(
        folder / TOKENS_FILE,
        ids=np.concatenate([np.array(ids, np.int64) for ids in image_token_ids]),
        id_ends=np.cumsum([len(ids) for ids in image_token_ids]),
        token_ends=np.cumsum(lengths),
        feature_size=feature_size,
    )
    (folder / METADATA_FILE).write_text(json.dumps(metadata, indent=1), "utf-8")


class _ScreenDataset(Dataset[_EpisodeScreens]):
    """Of each step of an episode: the ids of its screen, and its pixels [3, h, w]."""

    def __init__(self, episodes: ConcatEpisodes, processor: Processor) -> None:
        self.episodes, self.processor = episodes, processor

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: int) -> _EpisodeScreens:
        pieces = [ScreenPiece(step.screen) for step in self.episodes[index].steps]
        return [
            (self.processor.image_token_ids(piece), self.processor.pixel_values(piece)) for piece in pieces
        ]


def _open_cache(folder: Path, metadata: dict[str, Any]) -> ScreenFeatures:
    remedy = "remove that folder to compute the features again"
    try:
        saved_metadata = json.loads((folder / METADATA_FILE).read_text("utf-8"))
        with np.load(folder / TOKENS_FILE) as tokens:
            ids, id_ends, token_ends = tokens["ids"], tokens["id_ends"], tokens["token_ends"]
            feature_size = int(tokens["feature_size"])
        num_bytes = (folder / FEATURES_FILE).stat().st_size
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"the feature cache {folder} is damaged ({error}); {remedy}") from None
    if saved_metadata != metadata:
        raise ValueError(
            f"the feature cache {folder} is of different data or a different vision encoder; {remedy}"
        )
    expected_bytes = 4 * feature_size * int(token_ends[-1])
    if num_bytes != expected_bytes:
        raise ValueError(
            f"the feature cache {folder} is damaged "
            f"({FEATURES_FILE}: got {num_bytes} bytes; expected {expected_bytes}); {remedy}"
        )
    image_token_ids = [part.tolist() for part in np.split(ids, id_ends[:-1])]
    return ScreenFeatures(folder / FEATURES_FILE, image_token_ids, token_ends, feature_size)


def _encode_windows(
    episodes: ConcatEpisodes,
    index: WindowIndex,
    image_token_ids: Sequence[list[int]],
    prompt_format: PromptFormat,
    processor: Processor,
) -> tuple[list[Example], list[tuple[int, int]]]:
    """The examples of the windows of an index, without features, and the screens of each."""
    examples, screen_spans = [], []
    wanted = set(zip(index.episode.tolist(), index.window.tolist(), strict=True))
    first = 0  # screen of the episode
    for e, num_steps in enumerate(episodes.num_steps):
        episode = episodes.without_screens(e)
        spans = prompt_format.spans(num_steps)
        for k, (window, (start, _, end)) in enumerate(
            zip(prompt_format.windows(episode), spans, strict=True)
        ):
            if (e, k) not in wanted:
                continue
            ids = image_token_ids[first + start : first + end]
            examples.append(encode_window(window, k == 0, prompt_format, processor, episode.id, ids))
            screen_spans.append((first + start, first + end))
        first += num_steps
    return examples, screen_spans

"""Vision features on disk: each screen passes the frozen vision encoder once, for all epochs and all runs.

In: episodes and the model. Out: a dataset whose features are in one memory-mapped file, in the dtype of the
model. The file is in DATA/features/NAME, where NAME is a digest of everything that the features depend on.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.filesize import decimal
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from uivlm import recipe as recipes
from uivlm.atomic import new_dir
from uivlm.episodes.encode import Example, Processor
from uivlm.episodes.episode import Screen
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
VERSION = 4  # raised when screens become pixels in another way, or features bytes
FOLDER, FEATURES_FILE, TOKENS_FILE, METADATA_FILE = "features", "features.bin", "tokens.npz", "metadata.json"
_EpisodeScreens = list[tuple[list[int], NDArray[np.uint8]]]  # of each step: the ids of its screen, its pixels


@dataclass(frozen=True, slots=True, eq=False)
class ScreenFeatures:
    """The cache of all screens, in the order of the data."""

    file: Path  # [all visual tokens, feature_size] in `dtype`
    image_token_ids: list[list[int]]  # of each screen: its ids in a sentence
    token_ends: NDArray[np.int64]  # of each screen: end of its rows in `file`
    feature_size: int
    dtype: torch.dtype


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
        shape = int(cache.token_ends[-1]), cache.feature_size * cache.dtype.itemsize
        self.features = np.memmap(cache.file, np.uint8, "r", shape=shape)  # numpy has no bfloat16
        self.dtype = cache.dtype
        self.token_ends = [0, *cache.token_ends.tolist()]
        self.examples, self.screen_spans = examples, screen_spans
        self.num_tokens = num_tokens

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        start, end = self.screen_spans[index]
        spans = pairwise(self.token_ends[start : end + 1])
        features = tuple(self._read(a, b) for a, b in spans)
        return replace(self.examples[index], num_visual_tokens=tuple(map(len, features)), features=features)

    def _read(self, start: int, end: int) -> NDArray[np.float32]:
        stored = torch.from_numpy(np.array(self.features[start:end])).view(self.dtype)
        return np.asarray(stored.float().numpy())


def build_feature_cache(
    model: nn.Module,
    recipe: recipes.Recipe,
    episodes: ConcatEpisodes,
    index: WindowIndex,
    prompt_format: PromptFormat,
    processor: Processor,
) -> CachedFeatureDataset:
    """The dataset of the windows of an index. Rank 0 computes the features, unless an earlier run did.

    ValueError if the cache of an earlier run is damaged or belongs to other data, or if there is no space on
    the disk for a new one.
    """
    metadata = _cache_metadata(model, recipe, episodes)
    name = hashlib.sha256(json.dumps(metadata).encode()).hexdigest()[:16]
    folder = Path(recipe.data.path) / FOLDER / name
    if int(os.environ.get("RANK", "0")) == 0 and not folder.exists():
        num_workers = resolve_num_workers(recipe.train.num_workers)
        _check_free_space(folder, cache_bytes(model, episodes.num_steps, index, processor))
        with new_dir(folder) as temporary:
            _write_cache(temporary, model, _ScreenDataset(episodes, processor), num_workers, metadata)
    # not a barrier: computing the features can take longer than a barrier's timeout
    while not folder.exists():  # if rank 0 fails, the launcher stops this process
        time.sleep(0.1)
    cache = _open_cache(folder, metadata)
    encoded = _encode_windows(episodes, index, cache.image_token_ids, prompt_format, processor)
    return CachedFeatureDataset(cache, *encoded, index.num_tokens)


@torch.inference_mode()
def cache_bytes(model: nn.Module, num_steps: Sequence[int], index: WindowIndex, processor: Processor) -> int:
    """The size of the features of all screens. One black screen is encoded, for their width and dtype.

    Screens count by the mean of their episode's windows: exact where they have equally many visual tokens.
    """
    black = Screen(np.zeros((64, 64, 3), np.uint8))
    (features,) = encode_screens(model, [processor.pixel_values(ScreenPiece(black))])
    visual_tokens, screens = (
        np.bincount(index.episode, column, len(num_steps))
        for column in (index.num_visual_tokens, index.num_screens)
    )
    mean = visual_tokens.sum() / screens.sum()  # for episodes without a window
    per_screen = np.divide(visual_tokens, screens, out=np.full(len(num_steps), mean), where=screens > 0)
    return round(float(per_screen @ np.asarray(num_steps))) * features.shape[1] * features.dtype.itemsize


def _check_free_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder.parents[1]).free
    if needed > free:
        raise ValueError(
            f"train.cache_vision_features needs {decimal(needed)} in {folder.parents[1]}, where "
            f"{decimal(free)} are free: set it to false, or lower data.max_episodes"
        )


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
    num_screens, feature_size, dtype = sum(screens.episodes.num_steps), 0, torch.float32
    image_token_ids: list[list[int]] = []
    lengths: list[int] = []
    pending: list[NDArray[np.uint8]] = []
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
                    file.write(features.contiguous().view(torch.uint8).cpu().numpy().tobytes())
                    lengths.append(len(features))
                    feature_size, dtype = features.shape[1], features.dtype
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
        dtype=str(dtype).removeprefix("torch."),
    )
    (folder / METADATA_FILE).write_text(json.dumps(metadata, indent=1), "utf-8")


class _ScreenDataset(Dataset[_EpisodeScreens]):
    """Of each step of an episode: the ids of its screen, and its pixels uint8 [3, h, w]."""

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
            feature_size, dtype = int(tokens["feature_size"]), getattr(torch, str(tokens["dtype"]))
        num_bytes = (folder / FEATURES_FILE).stat().st_size
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"the feature cache {folder} is damaged ({error}); {remedy}") from None
    if saved_metadata != metadata:
        raise ValueError(
            f"the feature cache {folder} is of different data or a different vision encoder; {remedy}"
        )
    expected_bytes = dtype.itemsize * feature_size * int(token_ends[-1])
    if num_bytes != expected_bytes:
        raise ValueError(
            f"the feature cache {folder} is damaged "
            f"({FEATURES_FILE}: got {num_bytes} bytes; expected {expected_bytes}); {remedy}"
        )
    image_token_ids = [part.tolist() for part in np.split(ids, id_ends[:-1])]
    return ScreenFeatures(folder / FEATURES_FILE, image_token_ids, token_ends, feature_size, dtype)


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

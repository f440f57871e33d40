"""Publishing prepared data on the Hugging Face Hub: a folder in, a dataset repository out.

`datasets` opens the folder first, as the hub will. Then the files are uploaded as they are, so that the
repository has the exact bytes that training reads. `datasets.Dataset.push_to_hub` would write new shards
without `meta.json` and with other row groups. Needs the `publish` extra.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from data_prep.card import CARD_FILE
from uivlm.episodes.dataset import META, PREPARE, read_meta


def push_to_hub(data: Path, repo_id: str, private: bool = True) -> str:
    """Upload prepared data to the dataset repository `repo_id`, created if needed. Returns its URL.

    Raises ValueError for a bad folder or repository id, and OSError if the hub refuses or cannot be reached.
    """
    if missing := [name for name in ("datasets", "huggingface_hub") if not find_spec(name)]:
        raise ValueError(f"publish: {missing[0]} is not installed. Run `pip install 'uivlm[publish]'`")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    meta = read_meta(data)
    files = [META, CARD_FILE, *(str(shard["file"]) for shard in meta["shards"])]
    if absent := [name for name in files if not (data / name).is_file()]:
        raise ValueError(f"{data} has no {absent[0]}: {PREPARE}")
    _check_opens(data)
    try:
        api = HfApi()
        url = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo_id,
            folder_path=data,
            repo_type="dataset",
            allow_patterns=files,
            commit_message=f"Upload prepared data {meta['fingerprint'][:12]}",
        )
    except HFValidationError as error:
        raise ValueError(f"repo_id: got {repo_id!r}; expected USER/NAME ({error})") from None
    except OfflineModeIsEnabled:
        raise OSError("the hub cannot be reached in offline mode: unset HF_HUB_OFFLINE") from None
    except HfHubHTTPError as error:
        raise OSError(f"the hub refused to store {repo_id}: {error}. Run `hf auth login`") from None
    return str(url)


def _check_opens(data: Path) -> None:
    """Read the first row of each split with `datasets`. Raises ValueError."""
    from datasets import load_dataset

    try:
        splits: dict[str, Any] = load_dataset(str(data), streaming=True)
        for rows in splits.values():
            next(iter(rows))["image"].load()
    except Exception as error:  # of Arrow, Pillow, YAML and datasets itself
        raise ValueError(
            f"datasets cannot open {data} ({type(error).__name__}: {error}): prepare the data again"
        ) from None

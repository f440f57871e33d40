"""Prepared data at a URL: refused in one sentence, with the command that copies it."""

from pathlib import Path

import pytest

from uivlm.episodes.dataset import PreparedData


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("gs://bucket/a/data", r"`gcloud storage cp -r gs://bucket/a/data FOLDER`"),
        ("hf://datasets/someone/aitw", r"`hf download someone/aitw --repo-type dataset --local-dir FOLDER`"),
        ("s3://bucket/data", r"`aws s3 cp --recursive s3://bucket/data FOLDER`"),
        ("https://host/data", r"https://host/data is remote, .*: copy it to a disk first$"),
    ],
)
def test_remote_data_is_refused_with_a_command(url: str, remedy: str) -> None:
    for folder in (url, Path(url)):
        with pytest.raises(ValueError, match=remedy):
            PreparedData.open(folder)

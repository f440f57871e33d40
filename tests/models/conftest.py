"""Shared by the tests of models: Qwen-VL's golden model and vocabulary, and small models on disk."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.helpers.hf_checkpoints import KINDS, write
from tests.helpers.qwen_vl_models import QWENVL
from tests.helpers.tiny_models import qwen_base, vocabulary
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor, VisualTokenBudget
from uivlm.models.qwen_vl import files as qwen_vl_files
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer, read_ranks


@pytest.fixture(autouse=True)
def _quick(quick_runs: None) -> None:
    """Many of these tests train."""


@pytest.fixture(scope="module")
def golden_qwen_vl() -> QwenVL:
    return qwen_vl_files.load(QWENVL, torch.float32, "original")


@pytest.fixture(scope="module")
def real_tokenizer() -> QwenTokenizer:
    """Qwen-VL's tokenizer with its whole vocabulary."""
    file = vocabulary()
    golden = json.loads((QWENVL / "tokenizer_golden.json").read_text("utf-8"))
    assert hashlib.md5(file.read_bytes()).hexdigest() == golden["vocab_md5"]
    return QwenTokenizer(read_ranks(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny Qwen2-VL or later, by its kind."""
    return cache(lambda kind: write(tmp_path_factory.mktemp(kind) / "base", kind))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def module(folder: Callable[[str], Path], kind: str) -> QwenHF:
    return files.load(folder(kind), torch.float32)


@pytest.fixture
def reader(folder: Callable[[str], Path], kind: str) -> QwenHFProcessor:
    return files.load_processor(folder(kind), VisualTokenBudget(max_tokens=12))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Qwen-VL."""
    return qwen_base(tmp_path_factory.mktemp("qwen") / "base")

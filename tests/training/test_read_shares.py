"""Sharded loading: each process reads its rows of every weight, once, and the whole is the model."""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Dinov2Config, Dinov2Model

from tests.helpers import hf_checkpoints
from tests.helpers.every_kind import write_every_kind
from tests.helpers.hf_llama_vit_parts import SMALL, write_vision
from tests.helpers.launched_runs import together
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base
from uivlm.models.qwen_hf import files
from uivlm.models.stored_weights import SAFETENSORS, open_files, open_pretrained

HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


def rewrite(folder: Path, **config: Any) -> dict[str, torch.Tensor]:
    """Change the configuration. Returns the weights, whose file is removed."""
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | config))
    weights = load_file(folder / SAFETENSORS)
    (folder / SAFETENSORS).unlink()
    return weights


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind, and models with special files."""
    root = write_every_kind(tmp_path_factory.mktemp("shares"))
    weights = rewrite(hf_checkpoints.write(root / "sharded", "Qwen2VL"))
    names = sorted(weights)
    parts = {f"model-{k}.safetensors": names[k::3] for k in range(3)}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, root / "sharded" / file)
    index = {"metadata": {}, "weight_map": {name: file for file, own in parts.items() for name in own}}
    (root / "sharded" / f"{SAFETENSORS}.index.json").write_text(json.dumps(index))
    for folder, left_out in (("tied", HEAD), ("tied_head", EMBEDDINGS)):
        weights = rewrite(hf_checkpoints.write(root / folder, "Qwen2VL"), tie_word_embeddings=True)
        del weights[left_out]
        save_file(weights, root / folder / SAFETENSORS, {"format": "pt"})
    base(root / "tied_bridge", tie_word_embeddings=True)
    (root / "bin").mkdir()
    for file in (root / "qwen_vl").iterdir():
        (root / "bin" / file.name).write_bytes(file.read_bytes())
    torch.save(rewrite(root / "bin"), root / "bin" / "pytorch_model.bin")
    write_vision(root / "swiglu", "dinov2")
    Dinov2Model(Dinov2Config(**SMALL, use_swiglu_ffn=True)).save_pretrained(root / "swiglu")
    torch.manual_seed(3)
    (root / "stage1").mkdir()
    save_file(dict(nn.Linear(24, 32).state_dict()), root / "stage1" / "projector.safetensors")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_shares_are_the_model_and_are_read_once(
    root: Path, parent: ProcessPoolExecutor, count: int, tmp_path: Path
) -> None:
    program = [str(ROOT / "tests" / "helpers" / "read_shares.py"), str(root), str(tmp_path)]
    said = together(parent, program, tmp_path, count)
    assert said.count(" is done") == count


def opened(folder: Path) -> None:
    open_pretrained(files.from_config(folder, torch.float32).hf_model, folder)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = hf_checkpoints.write(tmp_path / "base", "Qwen2VL")
    weights = rewrite(folder)
    with pytest.raises(ValueError, match=r"has no weights: expected model\.safetensors, whole or sharded"):
        opened(folder)

    def wrong(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, folder / SAFETENSORS)
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            opened(folder)
        return str(caught.value)

    assert "1 missing keys, such as lm_head.weight" in wrong(
        {name: value for name, value in weights.items() if name != HEAD}
    )
    assert "1 unexpected keys, such as more" in wrong(weights | {"more": torch.ones(2)})
    assert "1 mismatched keys, such as ('lm_head.weight', (3, 2), (" in wrong(
        weights | {HEAD: torch.ones(3, 2)}
    )
    (folder / SAFETENSORS).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        opened(folder)


def test_tied_weights_with_two_values_are_refused(tmp_path: Path) -> None:
    """transformers would quietly untie them."""
    folder = hf_checkpoints.write(tmp_path / "base", "Qwen2VL")
    weights = rewrite(folder, tie_word_embeddings=True)
    save_file(weights | {HEAD: weights[EMBEDDINGS].clone()}, folder / SAFETENSORS)
    module = files.from_config(folder, torch.float32).hf_model
    assert open_pretrained(module, folder)[HEAD].read_rows(1, 3).equal(weights[EMBEDDINGS][1:3])
    save_file(weights, folder / SAFETENSORS)
    with pytest.raises(ValueError, match=r"two different values of .*embed_tokens\.weight, which config"):
        open_pretrained(module, folder)[HEAD].read_rows(1, 3)


def test_a_weight_in_two_shards_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{k}.safetensors" for k in range(2)]
    for file in files:
        save_file({HEAD: torch.ones(2), file.stem: torch.ones(2)}, file)
    assert open_files(files[:1]).keys() == {HEAD, "0"}
    with pytest.raises(ValueError, match=r"1\.safetensors holds lm_head\.weight, which another shard"):
        open_files(files)

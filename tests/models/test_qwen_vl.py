"""Qwen-VL against the outputs of the original code.

Sizes, ids and tolerances come from the folder that UIVLM_GOLDEN names (default: tests/golden).
"""

import hashlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import DynamicCache

from tests.helpers.hf_generate import generate_qwen_vl
from tests.helpers.qwen_vl_chat import (
    ChatTurn,
    encode_conversation,
    encode_pieces,
    from_list_format,
    pieces_of,
    queries_of,
)
from tests.helpers.qwen_vl_models import QWENVL
from uivlm.models.multimodal import normalize_pixels, token_losses, trained_tokens
from uivlm.models.qwen_vl.config import MEAN, STD
from uivlm.models.qwen_vl.language_model import ntk_alpha
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.processor import resize
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer

MANIFEST = json.loads((QWENVL / "manifest.json").read_text("utf-8"))
INPUTS, EXPECTED = load_file(QWENVL / "inputs.safetensors"), load_file(QWENVL / "expected.safetensors")
SPOKEN = json.loads((QWENVL / "tokenizer_golden.json").read_text("utf-8"))
ATOL, RTOL = MANIFEST["tolerance"]["atol"], MANIFEST["tolerance"]["rtol"]
IMAGES = [np.asarray(Image.open(file).convert("RGB")) for file in sorted((QWENVL / "images").glob("im*.png"))]
PIXELS = torch.from_numpy(np.stack([resize(image, INPUTS["pixel_values"].shape[-1]) for image in IMAGES]))
NUM_TOKENS = MANIFEST["sequence_length"]
checked: set[str] = set()  # names of EXPECTED that a test compared


def agrees(name: str, found: Tensor) -> None:
    checked.add(name)
    torch.testing.assert_close(
        found.float(), EXPECTED[name], atol=ATOL, rtol=RTOL, msg=lambda m: f"{name}: {m}"
    )


@pytest.fixture
def original(golden_qwen_vl: QwenVL) -> Iterator[QwenVL]:
    """The golden model in evaluation, with the original's long context; what a test changes is restored."""
    told = dict(golden_qwen_vl.config.to_dict())
    yield golden_qwen_vl
    for name in ("seq_length", "use_dynamic_ntk", "use_logn_attn", "long_context"):
        setattr(golden_qwen_vl.config, name, told[name])
    golden_qwen_vl.eval().zero_grad(set_to_none=True)
    golden_qwen_vl.activation_checkpointing_disable()


def test_the_golden_files_are_whole() -> None:
    assert MANIFEST["files"]
    for name, digest in MANIFEST["files"].items():
        assert hashlib.sha256((QWENVL / name).read_bytes()).hexdigest() == digest, name
    for told, there in ((MANIFEST["inputs"], INPUTS), (MANIFEST["expected"], EXPECTED)):
        assert {name: shape for name, (shape, _) in told.items()} == {
            n: list(v.shape) for n, v in there.items()
        }


def test_pixels() -> None:
    scaled = normalize_pixels(PIXELS, MEAN, STD)
    assert torch.allclose(scaled, INPUTS["pixel_values"], rtol=0, atol=1e-6)


@torch.inference_mode()
def test_visual_stages(original: QwenVL) -> None:
    visual, kept = original.transformer.visual, {}
    for name in ("ln_pre", "transformer", "attn_pool"):
        part = visual.get_submodule(name)
        part.register_forward_hook(lambda _, __, out, name=name: kept.update({name: out}))
    agrees("visual.features", original.get_image_features(PIXELS))
    for name, out in kept.items():
        found = EXPECTED[f"visual.after_{name}.first16"]
        agrees(f"visual.after_{name}.first16", out[:, : found.shape[1]])
        visual.get_submodule(name)._forward_hooks.clear()


def with_pads(ids: Tensor) -> Tensor:
    """The original fills a span with a path's bytes, then pads; here all its positions are pads."""
    tokens, ids = MANIFEST["tokens"], ids.clone()
    for row in ids:
        starts, ends = (row == tokens["image_start"]).nonzero(), (row == tokens["image_end"]).nonzero()
        for start, end in zip(starts.flatten(), ends.flatten(), strict=True):
            assert end - start - 1 == MANIFEST["n_queries"]
            row[start + 1 : end] = tokens["image_pad"]
    return ids


def test_pads_stand_where_the_original_has_path_bytes() -> None:
    assert not torch.equal(INPUTS["input_ids"], INPUTS["input_ids_imgpad"])
    assert torch.equal(with_pads(INPUTS["input_ids"]), INPUTS["input_ids_imgpad"])


@torch.inference_mode()
def test_interleaved_screens(original: QwenVL) -> None:
    hidden: list[Tensor] = []
    blocks, past = original.transformer.h, DynamicCache()
    hooks = [block.register_forward_pre_hook(lambda _, given: hidden.append(given[0])) for block in blocks]
    hooks.append(original.transformer.ln_f.register_forward_hook(lambda _, __, out: hidden.append(out)))
    outputs = original(INPUTS["input_ids_imgpad"], PIXELS, INPUTS["attention_mask"], cache=past)
    for hook in hooks:
        hook.remove()
    agrees("logits", outputs.logits[0])
    assert len(hidden) == len(blocks) + 1
    for i, states in enumerate(hidden):
        name = f"hidden_states.{i}.last4"
        agrees(name, states[0, -len(EXPECTED[name]) :])
    keys = past.layers[0].keys[0].transpose(0, 1)  # (seq, heads, dim)
    agrees("kv.layer0.key.last4", keys[-len(EXPECTED["kv.layer0.key.last4"]) :])


@torch.inference_mode()
def test_cached_decoding(original: QwenVL) -> None:
    wanted, past = EXPECTED["decode.greedy_ids"], DynamicCache()
    logits = original(INPUTS["input_ids_imgpad"], PIXELS, cache=past).logits[0, -1]
    said, rows = [], []
    for _ in wanted:
        said.append(int(logits.argmax()))
        logits = original(torch.tensor([[said[-1]]]), cache=past).logits[0, -1]
        rows.append(logits)
    assert said == wanted.tolist()
    checked.add("decode.greedy_ids")
    agrees("decode.cached_logits", torch.stack(rows))


def test_generate(original: QwenVL) -> None:
    wanted = EXPECTED["decode.greedy_ids"]
    said = generate_qwen_vl(
        original,
        INPUTS["input_ids_imgpad"],
        pixels=PIXELS,
        max_new_tokens=len(wanted),
        min_new_tokens=len(wanted),
        do_sample=False,
    )
    assert torch.equal(said[0, NUM_TOKENS:], wanted)


@torch.inference_mode()
def test_left_padding(original: QwenVL) -> None:
    mask = INPUTS["leftpad.attention_mask"]
    assert not mask.all()
    logits = original(INPUTS["leftpad.input_ids"], attention_mask=mask).logits
    assert logits.isfinite().all()
    agrees("leftpad.last_logits", logits[:, -1])


@pytest.mark.parametrize("how", ["plain", "checkpointing", "reentrant"])
def test_training_loss_and_gradients(original: QwenVL, how: str) -> None:
    original.train()
    if how != "plain":
        original.activation_checkpointing_enable({"use_reentrant": how == "reentrant"})
        original.enable_input_require_grads()  # what training with adapters asks for
    positions, trained = trained_tokens(INPUTS["train.labels"])
    pixels = PIXELS[INPUTS["train.image_index"]]
    outputs = original(
        with_pads(INPUTS["train.input_ids"]), pixels, INPUTS["train.attention_mask"], positions
    )
    loss = token_losses(outputs, trained).mean()
    loss.backward()
    if how != "plain":
        original.disable_input_require_grads()
    agrees("train.loss", loss.detach()[None])
    names = [name.removeprefix("train.gradnorm.") for name in EXPECTED if name.startswith("train.gradnorm.")]
    assert names
    for name in names:
        gradient = original.get_parameter(name).grad
        assert gradient is not None, name
        agrees(f"train.gradnorm.{name}", gradient.norm()[None])
        row = MANIFEST["tokens"]["image_start"] if name.endswith("wte.weight") else 0
        agrees(f"train.gradrow0.{name}", gradient[row])


@torch.inference_mode()
def test_long_context(original: QwenVL) -> None:
    ids, pixels = INPUTS["input_ids_imgpad"], PIXELS
    config, last = original.config, len(EXPECTED["ntk.logits_last32"])
    config.seq_length = MANIFEST["ntk_seq_length"]
    agrees("ntk.alpha", torch.tensor([ntk_alpha(ids.shape[1], config.seq_length)]))
    agrees("ntk.logits_last32", original(ids, pixels).logits[0, -last:])
    config.use_dynamic_ntk = False
    agrees("ntk.logn_only_logits_last32", original(ids, pixels).logits[0, -last:])
    config.use_dynamic_ntk = True
    agrees("ntk.trainmode_logits_last32", original.train()(ids, pixels).logits[0, -last:])
    config.long_context = "none"  # evaluation reads as training does
    agrees("ntk.trainmode_logits_last32", original.eval()(ids, pixels).logits[0, -last:])


@torch.inference_mode()
def test_decoding_past_the_training_length_keeps_the_factor_of_the_prefill(original: QwenVL) -> None:
    ids, pixels, past = INPUTS["input_ids_imgpad"], PIXELS, DynamicCache()
    original.config.seq_length = ids.shape[1]
    new = EXPECTED["decode.greedy_ids"][None, : len(EXPECTED["ntk.cross_boundary_cached_logits"])]
    original(ids, pixels, cache=past)
    rows = [original(token[None], cache=past).logits[0, -1] for token in new.T]
    agrees("ntk.cross_boundary_cached_logits", torch.stack(rows))
    whole = original(torch.cat([ids, new], 1), pixels, logits_to_keep=new.shape[1])
    agrees("ntk.cross_boundary_full_logits", whole.logits[0])


def test_every_expected_value_was_compared(request: pytest.FixtureRequest) -> None:
    asked = {item.originalname for item in request.session.items if isinstance(item, pytest.Function)}
    comparing = {
        name
        for name, test in globals().items()
        if name.startswith("test_") and {"agrees", "checked"} & set(inspect.unwrap(test).__code__.co_names)
    }
    if not comparing <= asked:
        pytest.skip("not all tests that compare were asked for")
    assert checked == set(EXPECTED)


def test_control_ids(real_tokenizer: QwenTokenizer) -> None:
    assert {name: real_tokenizer.special_tokens[name] for name in SPOKEN["special"]} == SPOKEN["special"]
    assert len(real_tokenizer) == SPOKEN["len"]


@pytest.mark.parametrize("case", SPOKEN["encode"], ids=lambda case: case["text"][:20])
def test_encoding(real_tokenizer: QwenTokenizer, case: dict[str, Any]) -> None:
    ids = case["ids"]
    assert (
        encode_pieces(
            real_tokenizer, pieces_of(real_tokenizer, case["text"], queries_of(real_tokenizer, ids))
        )
        == ids
    )
    assert real_tokenizer.decode(ids) == case["decoded"]
    assert real_tokenizer.decode(ids, with_special_tokens=False) == case["decoded_skip_special"]


@pytest.mark.parametrize("case", SPOKEN["from_list_format"])
def test_numbered_pictures(real_tokenizer: QwenTokenizer, case: dict[str, Any]) -> None:
    assert (
        real_tokenizer.decode(
            encode_pieces(real_tokenizer, from_list_format(real_tokenizer, case["list"], 256))
        )
        == case["text"]
    )


@pytest.mark.parametrize("case", SPOKEN["finetune_preprocess"])
def test_chat_labels(real_tokenizer: QwenTokenizer, case: dict[str, Any]) -> None:
    queries = queries_of(real_tokenizer, case["ids"])
    turns = [
        ChatTurn(t["from"], pieces_of(real_tokenizer, t["value"], queries)) for t in case["conversations"]
    ]
    assert encode_conversation(real_tokenizer, turns) == (case["ids"], case["labels"])


@pytest.mark.parametrize("case", SPOKEN["chatml_context"])
def test_chat_prompts(real_tokenizer: QwenTokenizer, case: dict[str, Any]) -> None:
    queries = queries_of(real_tokenizer, case["ids"])
    turns = []
    for asked, said in case["history"] or []:
        turns += [ChatTurn("user", (asked,)), ChatTurn("assistant", (said,))]
    now = ChatTurn("user", from_list_format(real_tokenizer, case["query_list"], queries))
    ids, labels = encode_conversation(real_tokenizer, [*turns, now], add_generation_prompt=True)
    assert ids == case["ids"]
    assert len(labels) == len(ids)
    assert real_tokenizer.decode(ids) == case["raw_text"]

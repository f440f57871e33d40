"""Qwen-VL against what the original code gave (the folder UIVLM_GOLDEN names, default tests/golden), and its
files.

Sizes, ids and tolerances come from that folder alone.
"""

import base64
import hashlib
import inspect
import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from tests.helpers.engines import next_logits
from tests.helpers.hf_generate import generate_qwen_vl
from tests.helpers.paths import GOLDEN
from tests.helpers.qwen_vl_chat import (
    ChatTurn,
    Piece,
    encode_conversation,
    encode_pieces,
    from_list_format,
    join_text,
)
from tests.helpers.tiny_models import episode, vocabulary
from uivlm.actions.action import Point, Tap
from uivlm.episodes.encode import IGNORE, Example, encode
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, TextPiece
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models import pretrained
from uivlm.models.multimodal import token_losses
from uivlm.models.qwen_vl import files
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.language_model import ntk_alpha
from uivlm.models.qwen_vl.model import LORA_TARGETS, QwenVL
from uivlm.models.qwen_vl.processor import QwenVLProcessor, to_pixel_values
from uivlm.models.qwen_vl.tokenizer import PATTERN, SPECIAL_TOKENS, QwenTokenizer, read_ranks
from uivlm.models.qwen_vl.vision_encoder import interpolate_positions
from uivlm.training.collator import LOG_ONLY_KEYS, Collator

QWENVL = GOLDEN / "qwenvl"
MANIFEST = json.loads((QWENVL / "manifest.json").read_text("utf-8"))
INPUTS, EXPECTED = load_file(QWENVL / "inputs.safetensors"), load_file(QWENVL / "expected.safetensors")
SPOKEN = json.loads((QWENVL / "tokenizer_golden.json").read_text("utf-8"))
ATOL, RTOL = MANIFEST["tolerance"]["atol"], MANIFEST["tolerance"]["rtol"]
NUM_TOKENS = MANIFEST["sequence_length"]
checked: set[str] = set()  # names of EXPECTED that a test compared


def agrees(name: str, found: Tensor) -> None:
    checked.add(name)
    torch.testing.assert_close(
        found.float(), EXPECTED[name], atol=ATOL, rtol=RTOL, msg=lambda m: f"{name}: {m}"
    )


@pytest.fixture(scope="module")
def loaded() -> QwenVL:
    return files.load(QWENVL, torch.float32, "original")


@pytest.fixture
def original(loaded: QwenVL) -> Iterator[QwenVL]:
    """The golden model in evaluation, with the original's long context; what a test changes is restored."""
    told = dict(loaded.config.to_dict())
    yield loaded
    for name in ("seq_length", "use_dynamic_ntk", "use_logn_attn", "long_context"):
        setattr(loaded.config, name, told[name])
    loaded.eval().zero_grad(set_to_none=True)
    loaded.gradient_checkpointing_disable()


# -- golden: the model


def test_the_golden_files_are_whole() -> None:
    assert MANIFEST["files"]
    for name, digest in MANIFEST["files"].items():
        assert hashlib.sha256((QWENVL / name).read_bytes()).hexdigest() == digest, name
    for told, there in ((MANIFEST["inputs"], INPUTS), (MANIFEST["expected"], EXPECTED)):
        assert {name: shape for name, (shape, _) in told.items()} == {
            n: list(v.shape) for n, v in there.items()
        }


def test_pixels() -> None:
    images = sorted((QWENVL / "images").glob("im*.png"))
    assert len(images) == len(INPUTS["pixel_values"])
    size = INPUTS["pixel_values"].shape[-1]
    seen = [to_pixel_values(np.asarray(Image.open(file).convert("RGB")), size) for file in images]
    assert np.abs(np.stack(seen) - INPUTS["pixel_values"].numpy()).max() <= 1e-6


@torch.inference_mode()
def test_visual_stages(original: QwenVL) -> None:
    visual, kept = original.transformer.visual, {}
    for name in ("ln_pre", "transformer", "attn_pool"):
        part = visual.get_submodule(name)
        part.register_forward_hook(lambda _, __, out, name=name: kept.update({name: out}))
    agrees("visual.features", original.get_image_features(INPUTS["pixel_values"]))
    for name, out in kept.items():
        found = EXPECTED[f"visual.after_{name}.first16"]
        agrees(f"visual.after_{name}.first16", out[:, : found.shape[1]])
        visual.get_submodule(name)._forward_hooks.clear()


def with_pads(ids: Tensor) -> Tensor:
    """The original fills a span with the bytes of a path and then pads; here pads alone hold its places."""
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
    outputs = original(
        INPUTS["input_ids_imgpad"], INPUTS["pixel_values"], INPUTS["attention_mask"], past_key_values=past
    )
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
    logits = original(INPUTS["input_ids_imgpad"], INPUTS["pixel_values"], past_key_values=past).logits[0, -1]
    said, rows = [], []
    for _ in wanted:
        said.append(int(logits.argmax()))
        logits = original(torch.tensor([[said[-1]]]), past_key_values=past).logits[0, -1]
        rows.append(logits)
    assert said == wanted.tolist()
    checked.add("decode.greedy_ids")
    agrees("decode.cached_logits", torch.stack(rows))


def test_generate(original: QwenVL) -> None:
    wanted = EXPECTED["decode.greedy_ids"]
    said = generate_qwen_vl(
        original,
        INPUTS["input_ids_imgpad"],
        pixels=INPUTS["pixel_values"],
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
        original.gradient_checkpointing_enable({"use_reentrant": how == "reentrant"})
        original.enable_input_require_grads()  # what training with adapters asks for
    labels = INPUTS["train.labels"]
    pixels = INPUTS["pixel_values"][INPUTS["train.image_index"]]
    outputs = original(with_pads(INPUTS["train.input_ids"]), pixels, INPUTS["train.attention_mask"], labels)
    loss = token_losses(outputs, labels).sum() / (labels[:, 1:] != IGNORE).sum()
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
    ids, pixels = INPUTS["input_ids_imgpad"], INPUTS["pixel_values"]
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
    ids, pixels, past = INPUTS["input_ids_imgpad"], INPUTS["pixel_values"], DynamicCache()
    original.config.seq_length = ids.shape[1]
    new = EXPECTED["decode.greedy_ids"][None, : len(EXPECTED["ntk.cross_boundary_cached_logits"])]
    original(ids, pixels, past_key_values=past)
    rows = [original(token[None], past_key_values=past).logits[0, -1] for token in new.T]
    agrees("ntk.cross_boundary_cached_logits", torch.stack(rows))
    whole = original(torch.cat([ids, new], 1), pixels, logits_to_keep=new.shape[1])
    agrees("ntk.cross_boundary_full_logits", whole.logits[0])


@pytest.mark.parametrize(("tokens", "alpha"), [(1, 1), (2048, 1), (2049, 3), (4096, 3), (4097, 7), (8192, 7)])
def test_ntk_factors(tokens: int, alpha: int) -> None:
    assert ntk_alpha(tokens, 2048) == alpha


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


# -- golden: the tokens


@pytest.fixture(scope="module")
def real() -> QwenTokenizer:
    """The whole vocabulary."""
    file = vocabulary()
    assert hashlib.md5(file.read_bytes()).hexdigest() == SPOKEN["vocab_md5"]
    return QwenTokenizer(read_ranks(file))


def queries_of(tokens: QwenTokenizer, ids: list[int]) -> int:
    """Length of the first picture's span; the vocabulary's texts need not come from the model beside them."""
    start, end = tokens.special_tokens["<img>"], tokens.special_tokens["</img>"]
    return ids.index(end) - ids.index(start) - 1 if start in ids else 0


def pieces_of(tokens: QwenTokenizer, text: str, queries: int) -> tuple[Piece, ...]:
    """A text of the original, in which control tokens are written out, as pieces."""
    pieces: list[Piece] = []
    names = "|".join(re.escape(name) for name in SPECIAL_TOKENS)
    for part in re.split(rf"(<img>.*?</img>|{names})", text):
        if part.startswith("<img>"):
            pieces.append(tuple(tokens.image_token_ids(queries, part[5:-6])))
        elif part in tokens.special_tokens:
            pieces.append((tokens.special_tokens[part],))
        elif part:
            pieces.append(part)
    return tuple(pieces)


def test_control_ids(real: QwenTokenizer) -> None:
    assert {name: real.special_tokens[name] for name in SPOKEN["special"]} == SPOKEN["special"]
    assert len(real) == SPOKEN["len"]


@pytest.mark.parametrize("case", SPOKEN["encode"], ids=lambda case: case["text"][:20])
def test_encoding(real: QwenTokenizer, case: dict[str, Any]) -> None:
    ids = case["ids"]
    assert encode_pieces(real, pieces_of(real, case["text"], queries_of(real, ids))) == ids
    assert real.decode(ids) == case["decoded"]
    assert real.decode(ids, with_special_tokens=False) == case["decoded_skip_special"]


@pytest.mark.parametrize("case", SPOKEN["from_list_format"])
def test_numbered_pictures(real: QwenTokenizer, case: dict[str, Any]) -> None:
    assert real.decode(encode_pieces(real, from_list_format(real, case["list"], 256))) == case["text"]


def test_references_and_boxes(real: QwenTokenizer) -> None:
    """Published: `<ref>` text `</ref>`, then each box in its own tags, as control ids; no newline."""
    items = [
        {"image": "a.png"},
        {"text": "tap "},
        {"ref": "the clock", "box": [(1, 2, 30, 40), (5, 6, 7, 8)]},
    ]
    items += [{"box": [(0, 0, 999, 999)]}]
    pieces = from_list_format(real, items, 256)
    text = "tap <ref>the clock</ref><box>(1,2),(30,40)</box><box>(5,6),(7,8)</box><box>(0,0),(999,999)</box>"
    assert real.decode(encode_pieces(real, pieces)) == f"Picture 1: <img>a.png</img>\n{text}"
    assert encode_pieces(real, pieces[2:]) == encode_pieces(real, pieces_of(real, f"\n{text}", 256))
    tags = [real.special_tokens[name] for name in ("<ref>", "</ref>", "<box>", "</box>")]
    assert [token for token in encode_pieces(real, pieces) if token in tags] == [*tags, *tags[2:] * 2]
    with pytest.raises(ValueError, match="unsupported element"):
        from_list_format(real, [{"ref": "a reference needs a box"}], 256)


def test_a_leading_turn_of_the_assistant_is_dropped(real: QwenTokenizer) -> None:
    """As in the original's `preprocess`: that turn only."""
    turns = [ChatTurn("user", ("open it",)), ChatTurn("assistant", ("tap at 7 90",))]
    greeting = ChatTurn("assistant", ("hello",))
    assert encode_conversation(real, [greeting, *turns]) == encode_conversation(real, turns)
    assert encode_conversation(real, [greeting]) == encode_conversation(real, [])
    assert encode_conversation(real, [*turns, greeting]) != encode_conversation(real, turns)


@pytest.mark.parametrize("case", SPOKEN["finetune_preprocess"])
def test_chat_labels(real: QwenTokenizer, case: dict[str, Any]) -> None:
    queries = queries_of(real, case["ids"])
    turns = [ChatTurn(t["from"], pieces_of(real, t["value"], queries)) for t in case["conversations"]]
    assert encode_conversation(real, turns) == (case["ids"], case["labels"])


@pytest.mark.parametrize("case", SPOKEN["chatml_context"])
def test_chat_prompts(real: QwenTokenizer, case: dict[str, Any]) -> None:
    queries = queries_of(real, case["ids"])
    turns = []
    for asked, said in case["history"] or []:
        turns += [ChatTurn("user", (asked,)), ChatTurn("assistant", (said,))]
    now = ChatTurn("user", from_list_format(real, case["query_list"], queries))
    ids, labels = encode_conversation(real, [*turns, now], add_generation_prompt=True)
    assert ids == case["ids"]
    assert len(labels) == len(ids)
    assert real.decode(ids) == case["raw_text"]


# -- tokens and reader, with a vocabulary of single bytes


@cache
def bytewise() -> QwenTokenizer:
    return QwenTokenizer({bytes([i]): i for i in range(256)})


def small_config(**changes: Any) -> QwenVLConfig:
    """Positions are stretched down, not up; heads, widths and queries unlike the golden ones."""
    visual = {"image_size": 32, "patch_size": 8, "width": 24, "layers": 2, "heads": 3, "mlp_ratio": 2.0}
    visual |= {"output_dim": 256, "n_queries": 9, "image_start_id": bytewise().special_tokens["<img>"]}
    told = {"vocab_size": 480, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8}
    told |= {"kv_channels": 32, "intermediate_size": 96, "seq_length": 256, "visual": visual}
    return QwenVLConfig(**(told | changes))


def small(**changes: Any) -> QwenVL:
    torch.manual_seed(0)
    model = QwenVL(small_config(**changes))
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn_like(value)
    return model.eval()


def screen(seed: int) -> Screen:
    return Screen(np.random.default_rng(seed).integers(0, 256, (50, 20, 3), np.uint8))


def prompt(config: QwenVLConfig, num_screens: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and labels [1, T], pixels [N, 3, S, S]."""
    pieces: list[TextPiece | ScreenPiece] = [TextPiece("go <img>\n", False)]
    for i in range(num_screens):
        pieces += [ScreenPiece(screen(i)), TextPiece(f"tap at {i} 5", True, Tap(Point(0.05, 0.05)))]
    example = encode(tuple(pieces), QwenVLProcessor(bytewise(), config))
    return tuple(
        torch.from_numpy(x) for x in (example.input_ids[None], example.labels[None], np.stack(example.pixels))
    )  # type: ignore[return-value]


@given(st.text() | st.lists(st.sampled_from([*SPECIAL_TOKENS, "a", " "])).map("".join))
def test_text_never_yields_control_tokens(text: str) -> None:
    tokens = bytewise()
    ids = tokens.encode(text)
    assert all(0 <= i < tokens.num_ranks for i in ids)
    assert tokens.decode(ids) == unicodedata.normalize("NFC", text)


def test_text_beside_text_is_one_text() -> None:
    assert join_text(["a", "b", (1,), "c", "d"]) == ("ab", (1,), "cd")


def test_a_path_longer_than_its_span() -> None:
    with pytest.raises(ValueError, match="12 bytes, its span holds 9"):
        bytewise().image_token_ids(9, "a" * 12)


def test_every_digit_is_a_token() -> None:
    ranks = {bytes([i]): i for i in range(256)} | {b"12": 256, b"ab": 257}
    assert QwenTokenizer(ranks).encode("ab12") == [257, ord("1"), ord("2")]
    assert r"|\p{N}|" in PATTERN


@pytest.mark.parametrize("text", ["QQ== 0", "no base64 here", "QQ== zero", ""])
def test_a_damaged_vocabulary(tmp_path: Path, text: str) -> None:
    (tmp_path / "qwen.tiktoken").write_text(text)
    with pytest.raises(ValueError, match="qwen.tiktoken .*list of tokens"):
        files.load_tokenizer(tmp_path)


def test_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no qwen.tiktoken"):
        files.load_tokenizer(tmp_path)


def test_reader_reads_text_and_screens() -> None:
    config, tokens = small_config(), bytewise()
    reader = QwenVLProcessor(tokens, config)
    ids = reader.image_token_ids(ScreenPiece(screen(0)))
    assert ids == [config.image_start_id, *[config.image_token_id] * 9, config.image_start_id + 1]
    assert (reader.eos_id, reader.max_length) == (256, 256)
    assert QwenVLProcessor(tokens, small_config(long_context="original")).max_length == 8192
    assert reader.pixel_values(ScreenPiece(screen(0))).shape == (3, 32, 32)
    said = reader.encode("press <imgpad>")
    assert reader.decode([*said, reader.eos_id, *ids]) == "press <imgpad>"
    assert all(map(reader.is_text_token, said))
    assert not any(map(reader.is_text_token, [*ids, reader.eos_id, 479, -1]))
    with pytest.raises(ValueError, match="<img> at 470, the model has 480 with <img> at 300"):
        QwenVLProcessor(tokens, small_config(visual=config.visual | {"image_start_id": 300}))


# -- the model at another size


def test_positions_stretched_down_keep_a_slope() -> None:
    """Bicubic resizing without a filter reproduces a straight line inside; rows and columns stay apart."""
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    table = torch.stack([rows + 0.5, columns + 0.5], -1).flatten(0, 1)
    inside = interpolate_positions(table, 64).unflatten(0, (8, 8))[1:-1, 1:-1]
    wanted = 2 * (torch.arange(1, 7) + 0.5)
    assert torch.allclose(inside[..., 0], wanted[:, None].expand(6, 6), atol=1e-4)
    assert torch.allclose(inside[..., 1], wanted.expand(6, 6), atol=1e-4)


@torch.inference_mode()
def test_resampler_is_torchs_multihead_attention() -> None:
    pool = small().transformer.visual.attn_pool
    reference = nn.MultiheadAttention(256, 2, batch_first=True).eval()
    reference.load_state_dict(pool.attn.state_dict())
    query, key, value = torch.randn(9, 256), torch.randn(3, 16, 256), torch.randn(3, 16, 256)
    wanted = reference(query.expand(3, 9, 256), key, value, need_weights=False)[0]
    assert torch.allclose(pool.attn(query, key, value), wanted, atol=1e-5)


@torch.inference_mode()
def test_text_tower_is_qwen2() -> None:
    model = small()
    config, given = model.config, model.state_dict()
    reference = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=480,
            hidden_size=256,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=8,
            rms_norm_eps=config.layer_norm_epsilon,
            tie_word_embeddings=False,
        )
    ).eval()
    weights = {
        "model.embed_tokens.weight": given["transformer.wte.weight"],
        "lm_head.weight": given["lm_head.weight"],
    }
    weights["model.norm.weight"] = given["transformer.ln_f.weight"]
    names = {"attn.c_proj": "self_attn.o_proj", "mlp.w2": "mlp.gate_proj", "mlp.w1": "mlp.up_proj"}
    names |= {"mlp.c_proj": "mlp.down_proj", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"}
    for i in range(2):
        for ours, theirs in names.items():
            weights[f"model.layers.{i}.{theirs}.weight"] = given[f"transformer.h.{i}.{ours}.weight"]
        for kind in ("weight", "bias"):
            for letter, third in zip(
                "qkv", given[f"transformer.h.{i}.attn.c_attn.{kind}"].chunk(3), strict=True
            ):
                weights[f"model.layers.{i}.self_attn.{letter}_proj.{kind}"] = third
    reference.load_state_dict(weights)
    ids = torch.randint(0, 256, (2, 40))
    assert torch.allclose(model(ids).logits, reference(ids).logits, atol=2e-4)


@torch.inference_mode()
def test_logits_of_trained_positions_are_those_of_the_full_forward() -> None:
    model = small()
    ids, labels, pixels = prompt(model.config)
    full = model(ids, pixels).logits[0]
    before = [i - 1 for i, label in enumerate(labels[0].tolist()) if label != IGNORE]
    assert torch.allclose(model(ids, pixels, labels=labels).logits, full[before], atol=1e-4)
    assert torch.allclose(model(ids, features=model.get_image_features(pixels)).logits[0], full, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("cut", [3, 10, 11, 15, 19, 20, 40])
def test_a_kept_beginning_may_end_anywhere(cut: int) -> None:
    """Also inside a screen (the first one's places are 10 to 18): the rest of its features comes with the
    rest.
    """
    model, past = small(), DynamicCache()
    ids, _, pixels = prompt(model.config)
    assert (ids[0, 10:19] == model.config.image_token_id).all()
    whole = model(ids, pixels, past_key_values=past).logits[0]
    past.crop(cut - ids.shape[1])
    seen = int((ids[0, :cut] == model.config.image_token_id).sum())
    rest = model.get_image_features(pixels).flatten(0, 1)[None, seen:]
    parted = model(ids[:, cut:], features=rest if rest.shape[1] else None, past_key_values=past).logits[0]
    assert torch.allclose(parted, whole[cut:], atol=1e-4)


@pytest.mark.parametrize(
    ("screens", "says"),
    [(1, "18 placeholders, .* 9 visual tokens"), (0, "18 placeholders, .* 0 visual tokens")],
)
def test_places_and_screens_must_agree(screens: int, says: str) -> None:
    model = small()
    ids, _, pixels = prompt(model.config)
    with pytest.raises(ValueError, match=says):
        model(ids, pixels[:screens])


def test_a_screen_in_pieces_is_refused() -> None:
    model = small()
    ids, _, pixels = prompt(model.config)
    first = int((ids[0] == model.config.image_token_id).nonzero()[0])
    ids[0, [first, 0]] = ids[0, [0, first]]
    with pytest.raises(ValueError, match="a screen has 1 placeholders in the text; expected 9"):
        model(ids, pixels)


def test_screens_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pixels: got \[3, 16, 16\]; .* \[3, 32, 32\]"):
        small().get_image_features(torch.zeros(1, 3, 16, 16))


def test_left_padded_rows_are_generated_as_if_alone() -> None:
    model = small()
    (ids, _, pixels), (short, _, one) = prompt(model.config), prompt(model.config, 1)
    rows = torch.full((2, ids.shape[1]), 256)
    rows[0], rows[1, -short.shape[1] :] = ids[0], short[0]
    mask = (torch.arange(rows.shape[1]) >= torch.tensor([[0], [rows.shape[1] - short.shape[1]]])).int()
    asked: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
    both = generate_qwen_vl(model, rows, pixels=torch.cat([pixels, one]), attention_mask=mask, **asked)
    assert torch.equal(both[0], generate_qwen_vl(model, ids, pixels=pixels, **asked)[0])
    assert torch.equal(both[1, -5:], generate_qwen_vl(model, short, pixels=one, **asked)[0, -5:])


@torch.inference_mode()
def test_kept_prefixes_change_no_answer() -> None:
    """Acting as the loop does it: each step's prompt begins with the one before."""
    model, of = small(seq_length=1024), episode(0, 4)
    loaded: Any = LoadedCheckpoint(
        model, QwenVLProcessor(bytewise(), model.config), PromptFormat(max_screens=3), None, "small"
    )  # type: ignore[arg-type]
    keeping, fresh = TorchEngine(loaded), TorchEngine(loaded, use_cache=False)
    for t in range(4):
        history = of.history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-4)
        assert keeping.predict(history).text == fresh.predict(history).text


@torch.inference_mode()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    model = small()
    rows = []
    for num_screens in (1, 3):
        ids, labels, pixels = prompt(model.config, num_screens)
        tokens = (model.config.num_queries,) * num_screens
        none = np.zeros(0, np.int64)
        rows.append(Example(ids[0].numpy(), labels[0].numpy(), none, tokens, pixels=tuple(pixels.numpy())))
    collate: Any = Collator(256, model.config.image_token_id)

    def batched(*some: Example) -> dict[str, Any]:
        return {name: part for name, part in collate(list(some)).items() if name not in LOG_ONLY_KEYS}

    batch = batched(*rows)
    alone = [model(**batched(row)).logits for row in rows]
    assert torch.allclose(model(**batch).logits, torch.cat(alone), atol=1e-4)


def test_a_process_without_screens_runs_the_vision_tower_too() -> None:
    model, ids = small().train(), torch.randint(0, 256, (1, 12))
    weight = model.transformer.visual.conv1.weight
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with_tower = model(ids)
    finally:
        torch.distributed.destroy_process_group()
    with_tower.logits.sum().backward()
    assert weight.grad is not None
    assert float(weight.grad.abs().max()) == 0
    assert torch.equal(with_tower.logits, model(ids).logits)


# -- adapters


def adapted(model: QwenVL, targets: str | list[str] = LORA_TARGETS) -> peft.PeftModel:
    made = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "lora_" in name:
                value.normal_(std=0.1)
    assert isinstance(made, peft.PeftModel)
    return made


def test_lora_trains_the_language_model_alone() -> None:
    model = adapted(small()).train()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    ids, labels, pixels = prompt(model.config)
    token_losses(model(ids, pixels=pixels, labels=labels), labels).sum().backward()
    trained = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    layers = [
        f"{part}.{layer}"
        for part, layer in zip(
            ["attn"] * 2 + ["mlp"] * 3, ["c_attn", "c_proj", "w1", "w2", "c_proj"], strict=True
        )
    ]
    top = "base_model.model.transformer.h"
    assert trained == {f"{top}.{i}.{x}.lora_{h}.default.weight" for i in (0, 1) for x in layers for h in "AB"}


# -- files


def test_full_size() -> None:
    """The official index: 853 tensors, 19,313,870,336 bytes in bfloat16."""
    with torch.device("meta"):
        weights = QwenVL(QwenVLConfig()).to(torch.bfloat16).state_dict()
    assert len(weights) == 853
    assert sum(value.nbytes for value in weights.values()) == 19_313_870_336
    sizes: dict[str, int] = {}
    for name, value in weights.items():
        part = re.match(r"transformer\.visual\.(attn_pool|ln_post|proj)|transformer\.visual|", name)
        assert part is not None
        sizes[part[0]] = sizes.get(part[0], 0) + value.numel()
    assert sizes[""] == 7_721_324_544
    assert sizes["transformer.visual"] == 1_842_770_688
    assert sizes["transformer.visual.attn_pool"] == 76_054_528
    assert sizes["transformer.visual.ln_post"] + sizes["transformer.visual.proj"] == 16_785_408


@torch.inference_mode()
@pytest.mark.parametrize("shards", ["5GB", "400KB"])
def test_a_saved_model_is_the_same_model(tmp_path: Path, shards: str) -> None:
    model = small(long_context="original")
    ids, _, pixels = prompt(model.config)
    (tmp_path / "qwen.tiktoken").write_bytes(
        b"\n".join(base64.b64encode(bytes([i])) + b" %d" % i for i in range(256))
    )
    files.save(tmp_path / "saved", model, tmp_path / "qwen.tiktoken", shards)
    many = len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    assert many is (shards == "400KB")
    again = files.load(tmp_path / "saved", torch.float32)
    assert torch.equal(again(ids, pixels).logits, model(ids, pixels).logits)
    assert again.config.long_context == "original"
    assert files.load(tmp_path / "saved").dtype == torch.bfloat16
    assert len(files.load_tokenizer(tmp_path / "saved")) == len(bytewise())
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["architectures"] == [
        "QWenLMHeadModel"
    ]
    with pytest.raises(ValueError, match="already exists"):
        files.save(tmp_path / "saved", model)


def sharded(root: Path) -> dict[str, dict[str, Tensor]]:
    """The golden weights as the hub has Qwen-VL: `.bin` shards and an index."""
    weights = load_file(QWENVL / "model.safetensors")
    names, shards = sorted(weights), {}
    for i in range(3):
        shards[f"pytorch_model-0000{i + 1}-of-00003.bin"] = {name: weights[name] for name in names[i::3]}
    for file, part in shards.items():
        torch.save(part, root / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (root / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (root / "config.json").write_bytes((QWENVL / "config.json").read_bytes())
    return shards


def test_sharded_bin_files(tmp_path: Path, loaded: QwenVL) -> None:
    sharded(tmp_path)
    found, wanted = files.load(tmp_path, torch.float32).state_dict(), loaded.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this ran",))


def damage(root: Path, what: str) -> None:
    shards = sharded(root)
    file, part = next(iter(shards.items()))
    name = next(iter(part))
    config = json.loads((root / "config.json").read_text())
    match what:
        case "torn":
            (root / file).write_bytes((root / file).read_bytes()[:5000])
        case "empty":
            (root / file).write_bytes(b"")
        case "code":
            torch.save(part | {name: Harmful()}, root / file)
        case "no dict":
            torch.save([1], root / file)
        case "shard":
            (root / file).unlink()
        case "missing":
            torch.save({k: v for k, v in part.items() if k != name}, root / file)
        case "more":
            torch.save(part | {"extra.weight": torch.zeros(1)}, root / file)
        case "shape":
            torch.save(part | {name: torch.zeros(3)}, root / file)
        case "twice":
            torch.save(shards[sorted(shards)[1]] | part, root / file)
        case "index":
            (root / "pytorch_model.bin.index.json").write_text("[]")
        case "weights":
            (root / "pytorch_model.bin.index.json").unlink()
        case "safetensors":
            save_file(part, root / "model.safetensors")
            (root / "model.safetensors").write_bytes((root / "model.safetensors").read_bytes()[:-9])
        case "no config":
            (root / "config.json").unlink()
        case "config":
            (root / "config.json").write_text("{")
        case "architecture":
            (root / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
        case "text only":
            (root / "config.json").write_text(json.dumps(config | {"visual": None}))
        case "gptq":
            (root / "config.json").write_text(json.dumps(config | {"quantization_config": {"bits": 4}}))
        case "dropout":
            (root / "config.json").write_text(json.dumps(config | {"attn_dropout_prob": 0.1}))
        case "visual":
            del config["visual"]["heads"]
            (root / "config.json").write_text(json.dumps(config))
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("torn", "00001-of-00003.bin is damaged"),
        ("empty", "00001-of-00003.bin is damaged"),
        ("code", "holds more than weights"),
        ("no dict", "holds more than weights"),
        ("shard", "names pytorch_model-00001-of-00003.bin, which is not there"),
        ("missing", "lacks 1 of [0-9]+ weights, such as "),
        ("more", "1 weights that the model does not have, such as extra.weight"),
        ("shape", r" has shape \[3\] where the model has \["),
        ("twice", "which another shard holds as well"),
        ("index", "index.json is damaged"),
        ("weights", "has no weights: neither model.safetensors nor pytorch_model.bin"),
        ("safetensors", "model.safetensors is damaged"),
        ("no config", "is not a Qwen-VL: it has no config.json"),
        ("config", "config.json does not describe a supported Qwen-VL"),
        ("architecture", "architectures: got LlamaForCausalLM; expected QWenLMHeadModel"),
        ("text only", "with a visual part"),
        ("gptq", "use the bfloat16 weights"),
        ("dropout", "attn_dropout_prob: got 0.1; expected 0.0"),
        ("visual", "its visual part has no heads"),
    ],
)
def test_a_broken_folder_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    damage(tmp_path, what)
    with pytest.raises(ValueError, match=says) as raised:
        files.load(tmp_path)
    assert "\n" not in str(raised.value)
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("visual", "says"),
    [
        ({"output_dim": 128}, "output_dim is 128, hidden_size 256"),
        ({"patch_size": 7}, "image_size 32 is not a multiple of patch_size 7"),
        ({"n_queries": 8}, "n_queries is 8: it must be a square"),
        ({"heads": 5}, "width 24 is not a multiple of its 5 heads"),
        ({"image_start_id": 478}, "image_start_id is 478"),
    ],
)
def test_a_configuration_that_cannot_be(tmp_path: Path, visual: dict[str, Any], says: str) -> None:
    files.save(tmp_path / "saved", small())
    told = json.loads((tmp_path / "saved" / "config.json").read_text())
    told["visual"] |= visual
    (tmp_path / "saved" / "config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=says):
        files.read_config(tmp_path / "saved")


def test_a_hub_id_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def given_by_hub(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(QWENVL)

    monkeypatch.setattr(pretrained, "snapshot_download", given_by_hub)
    assert files.load("Qwen/Qwen-VL").dtype == torch.bfloat16
    assert [name for name, _ in asked] == ["Qwen/Qwen-VL"]
    assert "qwen.tiktoken" in asked[0][1]


def test_long_context_is_named() -> None:
    with pytest.raises(ValueError, match="long_context is 'ntk'"):
        small_config(long_context="ntk")

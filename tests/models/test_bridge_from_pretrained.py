"""A bridge of published parts: tiny random ones in the hub's format, against transformers' own classes."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import (
    AutoModel,
    LlamaForCausalLM,
)

from tests.helpers.engines import next_logits
from tests.helpers.hf_llama_vit_parts import KINDS, MEAN, STD, write_llama, write_vision
from tests.helpers.model_examples import random_pixels
from tests.helpers.tiny_models import episode, prepare
from uivlm import recipe as recipes
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import load_checkpoint
from uivlm.models import adapters
from uivlm.models.bridge import vision_encoder
from uivlm.models.bridge.files import load_base, save_base
from uivlm.models.bridge.from_pretrained import from_pretrained_parts
from uivlm.models.bridge.model import LlamaVit
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.models.build import build
from uivlm.models.lora_layers import lora_layers
from uivlm.training.train import train


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    root = tmp_path_factory.mktemp("parts")
    language = write_llama(root / "llama")
    seeing = cache(lambda kind: write_vision(root / kind, kind))
    return lambda kind: (language, seeing(kind))


def made(
    parts: Callable[[str], tuple[Path, Path]], kind: str, tokens: Any = "grid"
) -> tuple[LlamaVit, BridgeProcessor]:
    module, tokenizer = from_pretrained_parts(*parts(kind), tokens, 2, torch.float32, 0)
    return module, BridgeProcessor(tokenizer, module.config)


def normalized(pixels: torch.Tensor) -> torch.Tensor:
    """As the encoder's image processor scales them, by its file."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return (pixels / 255 - mean) / std


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_compute_what_they_compute_alone(
    parts: Callable[[str], tuple[Path, Path]], kind: str
) -> None:
    """Screens as the encoder's own class sees them, logits as Llama's own class gives them for the same
    vectors.
    """
    module, reader = made(parts, kind, "all")
    language, seeing = parts(kind)
    of, grammar = episode(1, 3), PromptFormat()
    example = encode(grammar.sentence(next(grammar.windows(of))), reader)
    pixels = torch.from_numpy(np.stack(example.pixels))
    whole = AutoModel.from_pretrained(seeing)
    seen = getattr(whole, "vision_model", whole)(pixel_values=normalized(pixels)).last_hidden_state
    patches = seen if kind == "siglip" else seen[:, 1:]
    assert torch.allclose(module.get_image_features(pixels), patches, atol=1e-5)
    llama = LlamaForCausalLM.from_pretrained(language)
    ids = torch.from_numpy(example.input_ids)
    places = ids == reader.image_token_id
    assert int(places.sum()) == 3 * 16
    assert reader.image_token_id == llama.config.vocab_size
    vectors = llama.get_input_embeddings()(ids.clamp(max=llama.config.vocab_size - 1))
    vectors[places] = module.projection(patches).flatten(0, 1)
    wanted = llama(inputs_embeds=vectors[None]).logits
    assert torch.allclose(module(ids[None], pixels).logits, wanted, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_one_vector_a_screen(parts: Callable[[str], tuple[Path, Path]], kind: str) -> None:
    """What the encoder's authors call the image's own vector."""
    module, reader = made(parts, kind, "pooled")
    pixels = torch.from_numpy(reader.pixel_values(ScreenPiece(episode(0, 1).steps[0].screen)))[None]
    whole = AutoModel.from_pretrained(parts(kind)[1])
    seen = getattr(whole, "vision_model", whole)(pixel_values=normalized(pixels))
    wanted = seen.last_hidden_state[:, 0] if kind == "vit" else seen.pooler_output
    assert torch.allclose(module.get_image_features(pixels)[:, 0], wanted, atol=1e-5)
    assert reader.image_token_ids(ScreenPiece(episode(0, 1).steps[0].screen)) == [reader.image_token_id]


@torch.inference_mode()
def test_the_new_projection_speaks_as_loudly_as_words(parts: Callable[[str], tuple[Path, Path]]) -> None:
    module, _ = made(parts, "siglip")
    seen = module.projection(module.get_image_features(random_pixels(8, 3, 32, 32))).square().mean().sqrt()
    words = module.get_input_embeddings().weight.square().mean().sqrt()  # type: ignore[union-attr, operator]
    assert 0.3 < float(seen / words) < 3
    again, _ = made(parts, "siglip")
    assert torch.equal(again.projection.weight, module.projection.weight)
    other, _ = from_pretrained_parts(*parts("siglip"), "grid", 2, torch.float32, 1)
    assert not torch.equal(other.projection.weight, module.projection.weight)


def test_what_begins_ends_and_fills(parts: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    _, reader = made(parts, "vit")
    ids = Tokenizer.from_file(str(parts("vit")[0] / "tokenizer.json")).get_vocab()
    assert (reader.bos_ids, reader.eos_id, reader.pad_id) == ((ids["<s>"],), ids["</s>"], ids["<unk>"])
    assert not {*reader.bos_ids, reader.eos_id, reader.pad_id, reader.image_token_id} & set(
        reader.encode("</s><s><unk> a")
    )
    assert reader.decode(reader.encode("</s> tap at 1 2")) == "</s> tap at 1 2"
    filled = write_llama(tmp_path / "filled", pad_token_id=ids["</s>"])
    module, _ = from_pretrained_parts(filled, parts("vit")[1], "grid", 2, torch.float32, 0)
    assert module.config.text_config.pad_token_id == ids["</s>"]


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_saved_as_a_base_it_is_the_same(
    parts: Callable[[str], tuple[Path, Path]], kind: str, tmp_path: Path
) -> None:
    module, reader = made(parts, kind)
    save_base(tmp_path / "base", module, reader.tokenizer, torch.float32)
    again, _ = load_base(tmp_path / "base")
    ids, pixels = torch.tensor([[5, *[reader.image_token_id] * 4, 6]]), random_pixels(1, 3, 32, 32)
    assert torch.equal(again(ids, pixels).logits, module(ids, pixels).logits)
    assert (again.config.mean, again.config.std) == (MEAN, STD)


def small(parts: tuple[Path, Path], data: Path, **model: Any) -> recipes.Recipe:
    part = recipes.LlamaPartsArgs(
        str(parts[0]), str(parts[1]), recipes.LoraArgs(2, 4, 0.0), grid_size=2, **model
    )
    train = recipes.TrainArgs(epochs=2.0, per_device_batch_size=2, precision="float32", num_workers=0)
    return recipes.Recipe(
        "small",
        part,
        recipes.PromptArgs(max_screens=3, max_past_actions=3),
        recipes.DataArgs(str(data)),
        train,
        recipes.OptimArgs(lr=1e-2),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "siglip"])
def test_trained_saved_and_acting(
    parts: Callable[[str], tuple[Path, Path]], kind: str, tmp_path: Path
) -> None:
    data = prepare(tmp_path / "data", [episode(0, 5), episode(1, 2)])
    wanted = small(parts(kind), data)
    train(wanted, tmp_path / "out")
    losses = [json.loads(line)["loss"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    tuned, untuned = load_checkpoint(tmp_path / "out"), build(wanted)
    model = adapters.prepare_for_training(build(wanted), 0)
    names = adapters.trainable_parameter_names(model)
    assert sum(".lora_" in name for name in names) == len(names) - 2 == 14
    assert not any("vision" in name or "embed" in name for name in names)
    assert not torch.equal(tuned.model.projection.weight, untuned.model.projection.weight)  # type: ignore[union-attr]
    keeping, fresh = (
        TorchEngine(tuned, max_new_tokens=8),
        TorchEngine(tuned, max_new_tokens=8, use_cache=False),
    )
    for t in range(5):
        history = episode(0, 5).history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-4)
        assert keeping.predict(history).text == fresh.predict(history).text


def test_q_lora_keeps_the_encoder_and_the_head(parts: Callable[[str], tuple[Path, Path]]) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    built = build(small(parts("siglip"), Path("data"), quantize="nf4"))
    found = {name for name, one in built.model.named_modules() if type(one).__name__ == "Linear4bit"}
    assert found == set(lora_layers(built.model, built.lora_targets))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("no llama", "no folder .*nothing with a Llama"),
        ("no vision", "no folder .*nothing with a vision encoder"),
        ("llama torn", "the LlamaForCausalLM in .* cannot be loaded"),
        ("llama missing", "do not fit LlamaForCausalLM: 1 missing keys, such as model.norm.weight"),
        ("vision torn", "the SiglipVisionModel in .* cannot be loaded"),
        ("vision missing", "do not fit SiglipVisionModel: 1 missing keys"),
        ("no tokenizer", "does not contain a Llama with a fast tokenizer"),
        ("tokenizer", "cannot be read as a tokenizer"),
        ("no end", "eos_token_id: got None; expected an id below"),
        ("vision kind", "model_type: got 'resnet'; expected one of vit,"),
        ("no colours", "it has no preprocessor_config.json"),
        ("colours", "has no image_mean and image_std"),
    ],
)
def test_broken_parts_say_so(tmp_path: Path, what: str, says: str) -> None:
    language, seeing = write_llama(tmp_path / "llama"), write_vision(tmp_path / "siglip", "siglip")
    damage(language, seeing, what)
    named = [
        tmp_path / "nothing" if f"no {name}" == what else root
        for name, root in (("llama", language), ("vision", seeing))
    ]
    with pytest.raises(ValueError, match=says) as raised:
        from_pretrained_parts(named[0], named[1], "grid", 2, torch.float32, 0)
    assert "\n" not in str(raised.value)


def damage(language: Path, seeing: Path, what: str) -> None:
    root = seeing if "vision" in what or "colours" in what else language
    weights = root / "model.safetensors"
    match what.split():
        case [_, "torn"]:
            weights.write_bytes(weights.read_bytes()[:4000])
        case [_, "missing"]:
            lacking = "model.norm.weight" if root is language else "vision_model.post_layernorm.weight"
            kept = {name: value for name, value in load_file(weights).items() if name != lacking}
            save_file(kept, weights, metadata={"format": "pt"})
        case ["no", "tokenizer"]:
            (root / "tokenizer.json").unlink()
        case ["tokenizer"]:
            (root / "tokenizer.json").write_text("{}")
        case ["no", "end"]:
            edit(root / "config.json", eos_token_id=None)
        case ["vision", "kind"]:
            edit(root / "config.json", model_type="resnet")
        case ["no", "colours"]:
            (root / "preprocessor_config.json").unlink()
        case ["colours"]:
            edit(root / "preprocessor_config.json", image_std=[1])


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_kind_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="model_type: got 'x'"):
        vision_encoder.config_from_json({"model_type": "x"})
    assert vision_encoder.config_from_json({}).model_type == "vit"

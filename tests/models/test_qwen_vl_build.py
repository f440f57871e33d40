"""Qwen-VL as a recipe builds it: precision, length, and quantization of the language model only."""

from pathlib import Path

import pytest
import torch

from tests.helpers.model_examples import LAYERS, qwen_example, shaken_by
from tests.helpers.tiny_models import qwen_recipe
from uivlm.models import adapters, quantize
from uivlm.models.build import build


def test_qwenvl_is_built_as_the_recipe_says(qwen: Path) -> None:
    plain = build(qwen_recipe(qwen, Path("data"), {"precision": "bfloat16"}))
    assert {value.dtype for value in plain.model.parameters()} == {torch.bfloat16}
    assert (plain.processor.max_length, plain.supports_prefix_cache, plain.projector_name) == (
        512,
        True,
        None,
    )
    assert plain.model.config.long_context == "none"  # type: ignore[union-attr]
    original = build(qwen_recipe(qwen, Path("data"), dynamic_ntk=True))
    assert (original.processor.max_length, original.supports_prefix_cache) == (1024, False)
    assert original.model.config.long_context == "original"  # type: ignore[union-attr]
    assert build(qwen_recipe(qwen, Path("data"), max_length=700)).processor.max_length == 700
    with pytest.raises(ValueError, match=r"model.max_length: got 1025; .* has positions for 1024 tokens"):
        build(qwen_recipe(qwen, Path("data"), max_length=1025))


def test_no_qwenvl(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder .*nothing/here with a Qwen-VL"):
        build(qwen_recipe(tmp_path / "nothing" / "here", Path("data")))


@pytest.mark.parametrize("how", ["nf4", "int8"])
def test_without_bitsandbytes(qwen: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda _: None)
    with pytest.raises(
        ValueError, match=f"model.quantize is '{how}', but bitsandbytes is not installed"
    ) as caught:
        build(qwen_recipe(qwen, Path("data"), quantize=how))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("how", "kind"), [("nf4", "Linear4bit"), ("int8", "Linear8bitLt")])
def test_quantised_is_the_language_model_alone(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    one = qwen_recipe(qwen, Path("data"), quantize=how)
    built = build(one)
    found = {name for name, part in built.model.named_modules() if type(part).__name__ == kind}
    assert found == {f"transformer.h.{i}.{layer}" for i in (0, 1) for layer in LAYERS}
    plain = build(qwen_recipe(qwen, Path("data")))
    same = dict(plain.model.named_parameters())
    for name, value in built.model.named_parameters():
        if name.removesuffix(".weight") not in found:
            assert torch.equal(value, same[name]), name
    ids, pixels = qwen_example(built)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    with torch.inference_mode():
        wanted = model(ids, pixels).logits
        adapters.save(model, built, str(qwen), tmp_path)
        _, again = adapters.load(one, tmp_path)
        assert torch.equal(again(ids, pixels).logits, wanted)
    assert adapters.trainable_parameter_names(again) == []


def test_four_bit_layers_compute_alike_on_every_processor(
    qwen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an evaluation too: bitsandbytes packs them anew where a processor has AVX512-BF16."""
    modules = pytest.importorskip("bitsandbytes.nn.modules", reason="bitsandbytes is not installed")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: True)
    built = build(qwen_recipe(qwen, Path("data"), quantize="nf4"))
    ids, pixels = qwen_example(built)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    with torch.inference_mode():
        before = model.eval()(ids, pixels).logits
    model.train()(ids, pixels).logits.sum().backward()
    first = next(value for name, value in model.named_parameters() if "h.0" in name and value.requires_grad)
    assert first.grad is not None
    assert first.grad.abs().sum() > 0
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: False)
    plain = shaken_by(
        adapters.prepare_for_training(build(qwen_recipe(qwen, Path("data"), quantize="nf4")), 0)
    )
    with torch.inference_mode():
        assert torch.equal(plain.eval()(ids, pixels).logits, before)

"""Every kind of model on a GPU: the CPU's numbers, flash attention, few synchronizations. Tiny models.

They also run on the CPU, where they compare with float32, so that a GPU is not the first to run them. Those
of a GPU are marked: `pytest -m gpu tests/test_gpu.py`.
"""

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.helpers.every_kind import EVERY_KIND, loaded_of, write_every_kind
from tests.helpers.packed_rows import batched, rows_of
from tests.helpers.tiny_models import episode
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.inference.prefix_cache import BatchDecoder, CachedPrefix
from uivlm.models import packed_attention
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import prompt_format
from uivlm.models.multimodal import token_losses
from uivlm.training.collator import LOSS_KEYS

pytestmark = pytest.mark.slow

NEEDS_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)]
QWENS = ["qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1}  # of the norm of a difference, relative
Numbers = dict[str, Tensor]  # on the CPU, in float32


@pytest.fixture(autouse=True)
def exact_convolutions() -> Iterator[None]:
    """By default cuDNN rounds float32 to TF32."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


def training_model(root: Path, kind: str, device: str, precision: str) -> tuple[Any, dict[str, Any], Any]:
    """The model with adapters that are not zero; its padded and packed batch; the model without adapters."""
    recipe, loaded = loaded_of(root, kind, precision=precision)
    rows = rows_of(recipe, loaded, (1, 3))
    batches = {
        name: send_to_device(batched(loaded, rows, name == "packed"), device) for name in ("padded", "packed")
    }
    model = prepare_for_training(loaded, 0)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = 0.05 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return model.to(device).train(), batches, loaded.model


def run(model: Any, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The logits and losses of trained tokens, after a backward pass."""
    outputs = model(**{name: value for name, value in batch.items() if name not in LOSS_KEYS})
    losses = token_losses(outputs, batch["labels"])
    losses.sum().backward()
    return outputs.logits, losses


def forward_and_backward(model: Any, batch: dict[str, Any]) -> Numbers:
    """Logits and losses of trained tokens, and the gradient of each trained parameter."""
    model.zero_grad()
    logits, losses = run(model, batch)
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    found = {"logits": logits, "losses": losses, **gradients}
    return {name: value.detach().float().cpu() for name, value in found.items()}


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm().clamp(min=1e-6))


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("precision", list(TOLERANCES))
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_numbers_are_those_of_the_cpu(
    root: Path, kind: str, device: str, precision: str, layout: str
) -> None:
    """Against float32 on the CPU: logits, losses, and all gradients as one vector."""
    model, batches, _ = training_model(root, kind, "cpu", "float32")
    expected = forward_and_backward(model, batches[layout])
    model, batches, _ = training_model(root, kind, device, precision)
    found = forward_and_backward(model, batches[layout])
    assert found.keys() == expected.keys()
    for name in ("logits", "losses"):
        assert relative_error(found.pop(name), expected.pop(name)) < TOLERANCES[precision], name
    gradients = [torch.cat([part[name].flatten() for name in expected]) for part in (found, expected)]
    # rounding to bfloat16 moves those of such small models by up to a fifth
    assert relative_error(*gradients) < 3 * TOLERANCES[precision]


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", QWENS)
def test_flash_attention_can_serve_every_call(root: Path, kind: str, device: str, layout: str) -> None:
    """Forward and backward, vision encoder and language model: torch raises if another kernel is needed."""
    model, batches, _ = training_model(root, kind, device, "bfloat16")
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        found = forward_and_backward(model, batches[layout])
    assert all(bool(value.isfinite().all()) for value in found.values())


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("kind", QWENS)
def test_packed_rows_take_one_varlen_call_a_layer(
    root: Path, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/models/test_packed_attention.py shows the same on CPUs, with a fake kernel."""
    model, batches, module = training_model(root, kind, device, "bfloat16")
    batch = batches["packed"]
    with torch.no_grad():
        batch["features"] = module.get_image_features(batch.pop("pixels"))
    kernel, calls = packed_attention.varlen_kernel(), []

    def spy(*parts: Any, **options: Any) -> Any:
        calls.append(parts[0].shape)
        return kernel(*parts, **options)

    monkeypatch.setattr(packed_attention, "varlen_kernel", lambda: spy)
    forward_and_backward(model, batch)
    config = getattr(module.config, "text_config", module.config)
    assert len(calls) == config.num_hidden_layers


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_image_features_have_no_gradient(root: Path, kind: str, device: str) -> None:
    _, batches, module = training_model(root, kind, device, "bfloat16")
    module.activation_checkpointing_enable({"use_reentrant": False})
    features = module.get_image_features(batches["padded"]["pixels"])
    assert not any(screen.requires_grad for screen in features)
    assert {screen.device.type for screen in features} == {device}


@pytest.mark.parametrize("precision", list(TOLERANCES))
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", QWENS)
def test_cached_decoding_is_uncached_decoding(root: Path, kind: str, device: str, precision: str) -> None:
    """The same actions with nearly the same confidence, also where the window advances."""
    one = engine(root, kind, device, precision, use_cache=True)
    other = engine(root, kind, device, precision, use_cache=False)
    recorded, tolerance = episode(5, 6), 10 * TOLERANCES[precision]
    for t in range(6):
        cached, uncached = (each.predict(recorded.history(t)) for each in (one, other))
        assert cached.confidence == pytest.approx(uncached.confidence, rel=tolerance, abs=0.05)
        if precision == "float32":
            assert cached.text == uncached.text


def engine(root: Path, kind: str, device: str, precision: str, use_cache: bool) -> TorchEngine:
    recipe, loaded = loaded_of(root, kind, precision=precision)
    model = loaded.model.requires_grad_(False).to(device)
    checkpoint = LoadedCheckpoint(model, loaded.processor, prompt_format(recipe), recipe, kind)
    return TorchEngine(checkpoint, use_cache=use_cache, constrained=True)


class Synchronizations:
    """Counts how often the CPU waits for the GPU: torch warns of each. Without a GPU, 0."""

    def __enter__(self) -> "Synchronizations":
        self.recorder = warnings.catch_warnings(record=True)
        self.caught: Any = self.recorder.__enter__()
        warnings.simplefilter("always")
        set_sync_debug_mode("warn")
        return self

    def __exit__(self, *error: Any) -> None:
        set_sync_debug_mode("default")
        self.recorder.__exit__(*error)

    @property
    def count(self) -> int:
        return sum("synchronizing" in str(each.message) for each in self.caught)


def set_sync_debug_mode(mode: str) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode(mode)


@pytest.mark.parametrize("device", DEVICES)
def test_synchronizations_are_counted(device: str) -> None:
    one = torch.ones(1, device=device)
    with Synchronizations() as found:
        one.item()
        one + one
    assert found.count == (1 if device == "cuda" else 0)


def deepen(kind: str, module: Any) -> None:
    """Three times the layers."""
    if kind == "qwen_vl":
        blocks = module.transformer.h
    else:
        blocks = module.model.language_model.layers
        config = module.model.language_model.config
        config.num_hidden_layers *= 3
        if kind != "Qwen3VL":
            config.layer_types *= 3
    for block in list(blocks) * 2:
        copied = copy.deepcopy(block)
        for part in copied.modules():
            for name in ("layer_idx", "layer"):  # its place in the cache
                if hasattr(part, name):
                    setattr(part, name, len(blocks))
        blocks.append(copied)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", QWENS)
def test_more_layers_synchronize_no_more(root: Path, kind: str, device: str, layout: str) -> None:
    """In a forward and backward pass."""
    model, batches, module = training_model(root, kind, device, "bfloat16")
    counts, logits = [], []
    for _ in range(2):
        logits.append(
            forward_and_backward(model, batches[layout])["logits"]
        )  # libraries wait when they start
        with Synchronizations() as found:
            run(model, batches[layout])
        counts.append(found.count)
        deepen(kind, module)
    assert counts[0] == counts[1]
    assert not torch.equal(*logits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", QWENS)
@torch.inference_mode()
def test_more_layers_synchronize_no_more_for_a_token(root: Path, kind: str, device: str) -> None:
    loaded = loaded_of(root, kind, precision="bfloat16")[1]
    module: Any = loaded.model.to(device)
    ids = loaded.processor.encode("tap at 5 5")
    counts = []
    for _ in range(2):
        decoder = BatchDecoder(module, loaded.processor.pad_id, [CachedPrefix()])
        decoder.step([ids], [list(ids)], None)
        decoder.step([ids[:1]], [list(ids[:1])], None)
        with Synchronizations() as found:
            decoder.step([ids[:1]], [list(ids[:1])], None)
        counts.append(found.count)
        assert decoder.cache.get_seq_length() == len(ids) + 2
        deepen(kind, module)
    assert counts[0] == counts[1]

"""Decoding in static buffers gives the dynamic path's logits, and a graph replays it for every token."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from transformers import LlamaConfig, LlamaModel

from tests.helpers.engines import conversations, of_kind, same_action, save_random_adapters
from tests.helpers.tiny_models import episode
from uivlm.inference.decode_graph import MAX_GRAPHS, MIN_CAPACITY, DecodeGraphs, capture_graph
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.inference.prefix_cache import BatchDecoder
from uivlm.models.multimodal import has_fixed_rope

pytestmark = pytest.mark.slow

KINDS = ("llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL")
# generated texts of a batch, step by step: rows pause, several tokens are forced, rows end
STEPS = (([5], [6]), ([7, 8, 9], [10]), ([], [11, 12]), ([13], []), ([14], []), ([15, 16], [17]))
READS_ON_THE_CPU = (
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique",
)


@pytest.fixture(scope="module", params=KINDS)
def checkpoint_of_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "llama_vit":
        return load_checkpoint(save_random_adapters(root).folder)
    return of_kind(request.param, root)


class Recorder(TorchDispatchMode):
    """The operations of one call, as a CUDA graph has them: addresses of tensors and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not func.name().startswith(READS_ON_THE_CPU), f"{func.name()} waits for the device"
        result = func(*args, **(kwargs or {}))
        # copies of the containers: a list argument could change after the call
        self.calls.append((func, tree_map_only(Tensor, lambda value: value, args), kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            for old, new in zip(tree_flatten(result)[0], tree_flatten(func(*args, **kwargs))[0], strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Captures:
    """Captures on the CPU, with the warm-up of the real one."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []

    def __call__(self, forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
        forward()
        with Recorder() as recorder:
            output = forward()
        self.recorders.append(recorder)

        def replay() -> Tensor:
            recorder.replay()
            return output

        return replay


def prefilled(engine: TorchEngine, seeds: Sequence[int]) -> BatchDecoder:
    """A decoder after prompts of different lengths."""
    histories = [episode(seed, 2 + 2 * i).history(2 * i) for i, seed in enumerate(seeds)]
    return engine._prefill([engine._build_prompt(history) for history in histories])[0]


def check_close(mine: Tensor, expected: Tensor) -> None:
    """Equal up to the rounding of float32 sums: 1e-5 of the largest value."""
    torch.testing.assert_close(mine, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def check_same_caches(one: BatchDecoder, other: BatchDecoder) -> None:
    for a, b in zip(one.cached_prefixes(), other.cached_prefixes(), strict=True):
        assert a.keys == b.keys
        for layer, expected in zip(a.layers, b.layers, strict=True):
            for mine, theirs in zip(layer, expected, strict=True):
                check_close(mine, theirs)
        assert (a.position_ids is None) == (b.position_ids is None)
        assert a.position_ids is None or torch.equal(a.position_ids, b.position_ids)


@pytest.mark.parametrize("num_rows", [1, 2, 3])
@torch.inference_mode()
def test_static_steps_give_the_logits_of_dynamic_ones(
    checkpoint_of_kind: LoadedCheckpoint, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a bucket's edge too. The second round replays what the first captured."""
    engine, captures = TorchEngine(checkpoint_of_kind, use_cache=False), Captures()
    graphs = DecodeGraphs(checkpoint_of_kind.model, captures)
    monkeypatch.setattr("uivlm.inference.decode_graph.MIN_CAPACITY", 1)
    for seeds in ([1, 2, 3], [4, 5, 6]):
        static, dynamic = (prefilled(engine, seeds[:num_rows]) for _ in range(2))
        static.graphs = graphs
        length = static.attention_mask.shape[1]
        # a token more than the bucket holds, then rows of different lengths
        filling = [([5 + i % 7],) * num_rows for i in range((1 << length.bit_length()) - length + 1)]
        steps = [*filling, *((*step, [8])[:num_rows] for step in STEPS)]
        for rows in steps:
            if not any(rows):
                continue
            present = [i for i, row in enumerate(rows) if row]
            expected = dynamic.step(rows, rows, None)[present]
            check_close(static.decode(rows)[present], expected)
        assert static.static is not None
        assert static.static.mask.any(-1).all(), "each row attends to something, unused ones too"
        check_same_caches(static, dynamic)
    capacities = [key[1] for key in graphs.decoders]
    assert len(capacities) == len(captures.recorders) >= 2
    assert all(bucket == {1: 1, 2: 2, 3: 4}[num_rows] for bucket, _ in graphs.decoders)


@torch.inference_mode()
def test_no_operation_depends_on_the_position(checkpoint_of_kind: LoadedCheckpoint) -> None:
    """All steps run the same operations with outputs of the same shapes."""
    decoder = prefilled(TorchEngine(checkpoint_of_kind), [1, 2])
    decoder.graphs = DecodeGraphs(checkpoint_of_kind.model, lambda forward: forward)
    shapes = []
    for rows in ([[5], [6]], [[7], []], [[8], [9]]):
        decoder.decode(rows)
        assert decoder.static is not None
        with Recorder() as recorder:
            decoder.static.forward()
        outputs = [(func, tree_flatten(result)[0]) for func, _, _, result in recorder.calls]
        shapes.append([(func, [out.shape for out in outs]) for func, outs in outputs])
    assert shapes[0] == shapes[1] == shapes[2]


def test_decisions_are_those_without_graphs(checkpoint_of_kind: LoadedCheckpoint) -> None:
    """Of a constrained engine: some tokens are forced. Alone and in batches, with cached prefixes."""
    plain, static = (TorchEngine(checkpoint_of_kind, 12, constrained=True) for _ in range(2))
    static.graphs = DecodeGraphs(checkpoint_of_kind.model, captures := Captures())
    histories = conversations()[:14]
    for i in range(0, len(histories), 3):
        for batch in (histories[i : i + 1], histories[i : i + 3]):
            for mine, expected in zip(static.predict_batch(batch), plain.predict_batch(batch), strict=True):
                assert same_action(mine, expected)
    assert len(captures.recorders) == len(static.graphs.decoders) <= 3, "batches of 1, 2 and 3"
    best = static.top_k(histories[2], 3)
    assert [one.text for one in best] == [one.text for one in plain.top_k(histories[2], 3)]


@torch.inference_mode()
def test_changed_weights_are_seen_and_replaced_ones_captured_again(tmp_path: Path) -> None:
    loaded = load_checkpoint(save_random_adapters(tmp_path).folder)
    engine, captures = TorchEngine(loaded, use_cache=False), Captures()
    graphs = DecodeGraphs(loaded.model, captures)

    def logits() -> tuple[Tensor, Tensor]:
        static, dynamic = (prefilled(engine, [1]) for _ in range(2))
        static.graphs = graphs
        mine, expected = static.decode([[5]]).clone(), dynamic.step([[5]], [[5]], None)
        check_close(mine, expected)
        return mine, expected

    first, _ = logits()
    head: Any = loaded.model.language.lm_head  # type: ignore[union-attr]
    head.weight.mul_(2)
    changed, _ = logits()
    assert torch.allclose(changed, 2 * first, atol=1e-4)
    assert len(captures.recorders) == 1
    head.weight = torch.nn.Parameter(-head.weight, requires_grad=False)
    replaced, _ = logits()
    assert torch.allclose(replaced, -changed, atol=1e-4)
    assert len(captures.recorders) == 2


@torch.inference_mode()
def test_the_least_recently_used_buffers_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_checkpoint(save_random_adapters(tmp_path).folder)
    monkeypatch.setattr("uivlm.inference.decode_graph.MAX_GRAPHS", 2)
    graphs = DecodeGraphs(loaded.model, lambda forward: forward)
    for num_rows in (1, 2, 1, 3):
        decoder = prefilled(TorchEngine(loaded), range(num_rows))
        graphs.load(decoder.cache, decoder.attention_mask)
    assert list(graphs.decoders) == [(1, MIN_CAPACITY), (4, MIN_CAPACITY)]
    assert MAX_GRAPHS > 2


def test_only_a_gpu_has_graphs(checkpoint_of_kind: LoadedCheckpoint) -> None:
    assert checkpoint_of_kind.supports_static_decoding
    on_gpu = next(checkpoint_of_kind.model.parameters()).is_cuda
    assert (TorchEngine(checkpoint_of_kind).graphs is None) == (not on_gpu)


class FakeGraph:
    """Of torch.cuda: counts replays."""

    num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1


def test_a_capture_warms_up_on_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.cuda.graph demands; its arguments are bound to the real signature."""
    events, graph, real = list[str](), FakeGraph(), inspect.signature(torch.cuda.graph)

    class Stream:
        def __init__(self, name: str = "side") -> None:
            self.name = name

        def wait_stream(self, other: "Stream") -> None:
            events.append(f"{self.name} waits for {other.name}")

    @contextmanager
    def entered(name: str) -> Iterator[None]:
        events.append(f"enter {name}")
        yield
        events.append(f"leave {name}")

    def capture(*args: Any, **options: Any) -> Any:
        assert real.bind(*args, **options).arguments["cuda_graph"] is graph
        return entered("capture")

    def forward() -> Tensor:
        events.append("forward")
        return torch.ones(1)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered(stream.name))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    replay = capture_graph(forward)
    warmup = ["side waits for main", "enter side", *["forward"] * 3, "leave side", "main waits for side"]
    assert events == [*warmup, "enter capture", "forward", "leave capture"]
    assert replay() is replay()
    assert graph.num_replays == 2
    assert events.count("forward") == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@torch.inference_mode()
def test_a_captured_graph_gives_the_logits_of_dynamic_steps(checkpoint_of_kind: LoadedCheckpoint) -> None:
    engine = TorchEngine(checkpoint_of_kind, use_cache=False)
    assert engine.graphs is not None
    for seeds in ([1, 2], [3, 4]):
        static, dynamic = prefilled(engine, seeds), prefilled(engine, seeds)
        for rows in ([[5], [6]], [[7, 8], [9]], [[10], []]):
            present = [i for i, row in enumerate(rows) if row]
            expected = dynamic.step(rows, rows, None)[present]
            torch.testing.assert_close(static.decode(rows)[present], expected, atol=1e-3, rtol=1e-3)
    assert len(engine.graphs.decoders) == 1


@pytest.mark.parametrize(
    ("settings", "fixed"),
    [
        ({"rope_type": "default"}, True),
        ({"rope_type": "linear", "factor": 2.0}, True),
        ({"rope_type": "dynamic", "factor": 2.0}, False),
    ],
)
def test_rotary_frequencies_by_length_are_not_captured(settings: dict[str, Any], fixed: bool) -> None:
    """transformers computes them from the greatest position, read on the CPU."""
    rope = settings | {"rope_theta": 10000.0}
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=8, **sizes, max_position_embeddings=4, rope_parameters=rope)
    made = LlamaModel(config)
    assert has_fixed_rope(made) == fixed
    if not fixed:
        with Recorder(), pytest.raises(AssertionError, match="waits for the device"):
            made(torch.zeros(1, 5, dtype=torch.long))

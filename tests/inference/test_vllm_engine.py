"""vLLM as an engine: the same answers as the project's own.

With a stand-in for vLLM everywhere; with vLLM itself where it is installed.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.helpers import hf_checkpoints
from tests.helpers.multi_adapter import saved
from tests.helpers.tiny_models import base, episode, prepare, recipe
from tests.helpers.vllm_checkpoints import folders, histories
from uivlm.agents.agent import ConcurrentAgent, RankingAgent
from uivlm.agents.vlm import ConcurrentVlmAgent
from uivlm.cli import main
from uivlm.cli.agents import load_agents
from uivlm.episodes.episode import History, HistoryError
from uivlm.inference import vllm_engine
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint, load_checkpoints_shared_base
from uivlm.inference.thought import RequestGrammar, ThoughtConstraint
from uivlm.serving.batching import Batcher
from uivlm.serving.client import RemoteAgent
from uivlm.serving.server import serve_in_thread


class StandIn:
    """vLLM's AsyncLLM as far as the engine uses it, on the project's own model: one token at a time, its
    placeholders spread. All requests that have come take turns at each token.
    """

    def __init__(self, loaded: LoadedCheckpoint) -> None:
        self.loaded = loaded
        self.speech = ActionConstraint(loaded.processor, loaded.prompt_format.action_text)
        self.thoughts = ThoughtConstraint(loaded.processor)
        self.asked: list[Any] = []
        self.running: set[str] = set()
        self.most_at_once = 0

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, *, lora_request: Any = None
    ) -> AsyncIterator[Any]:
        assert request_id not in self.running
        assert sampling_params.output_kind == "final"
        self.asked.append(lora_request)
        self.running.add(request_id)
        self.most_at_once = max(self.most_at_once, len(self.running))
        output = await self._one(prompt, sampling_params)
        self.running.remove(request_id)
        yield output

    def spread(self, prompt: Any) -> tuple[list[int], list[torch.Tensor]]:
        """The ids with as many placeholders as the screens have tokens, and the screens."""
        reader: Any = self.loaded.processor
        screens = [
            torch.from_numpy(np.moveaxis(np.array(image), 2, 0))
            for image in prompt["multi_modal_data"]["image"]
        ]
        sizes = iter(screen.shape[1] * screen.shape[2] // reader.factor**2 for screen in screens)
        ids: list[int] = []
        for token in prompt["prompt_token_ids"]:
            ids += [token] * (next(sizes) if token == reader.image_token_id else 1)
        return ids, screens

    async def _one(self, prompt: Any, wanted: Any) -> Any:
        ids, screens = self.spread(prompt)
        said: list[int] = []
        logprobs = []
        bound = RequestGrammar(self.speech, self.thoughts, wanted.extra_args["max_thought_tokens"])
        while len(said) < wanted.max_tokens:
            await asyncio.sleep(0)
            with torch.inference_mode():
                outputs = self.loaded.model(torch.tensor([[*ids, *said]]), screens, logits_to_keep=1)
                logits = outputs.logits[0, -1].float()
            token = int(logits.masked_fill(bound.forbidden_tokens(said, logits), -math.inf).argmax())
            logprobs.append({token: SimpleNamespace(logprob=float(logits.log_softmax(-1)[token]))})
            said.append(token)
            if token in wanted.stop_token_ids:
                break
        outputs = [SimpleNamespace(token_ids=said, logprobs=logprobs)]
        return SimpleNamespace(outputs=outputs, prompt_token_ids=self.spread(prompt)[0])

    async def reset_prefix_cache(self) -> None:
        self.asked.clear()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampling(**told: Any) -> SimpleNamespace:
        return SimpleNamespace(**told)

    module = SimpleNamespace(SamplingParams=sampling, RequestOutputKind=SimpleNamespace(FINAL_ONLY="final"))
    monkeypatch.setattr(vllm_engine, "import_module", lambda name: module)


def engine_of(loaded: LoadedCheckpoint, llm: Any, adapter: Any) -> vllm_engine.VllmEngine:
    reader: Any = loaded.processor
    speech = ActionConstraint(reader, loaded.prompt_format.action_text)
    loop = vllm_engine._start_loop()
    return vllm_engine.VllmEngine(llm, loop, reader, loaded.prompt_format, speech, adapter)


def agree(engine: vllm_engine.VllmEngine, own: TorchEngine, asked: list[History], exact: float) -> None:
    found = engine.predict_batch(asked)
    expected = [own.predict(one) for one in asked]
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.action for one in found] == [one.action for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.confidence == pytest.approx(other.confidence, rel=exact)
        assert one.action_type_confidence == pytest.approx(other.action_type_confidence, rel=exact)
    assert len({one.text for one in found}) > 1, "all say the same: this shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", hf_checkpoints.KINDS)
def test_what_vllm_is_asked_and_what_becomes_of_its_tokens(kind: str, tmp_path: Path, stand_in: None) -> None:
    folder = folders(tmp_path, kind)[0]
    loaded = load_checkpoint(folder)
    llm: Any = StandIn(loaded)
    engine = engine_of(loaded, llm, "this adapter")
    agree(engine, TorchEngine(loaded, constrained=True), histories(), 1e-3)
    assert llm.asked == ["this adapter"] * len(histories())
    assert llm.most_at_once == len(histories())
    engine.reset_cache()
    assert not llm.asked
    short: Any = loaded.processor
    short.max_length = 50
    with pytest.raises(HistoryError, match="the model reads 50"):
        engine.predict_batch(histories())


def test_thoughts_come_before_the_action(
    tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native engine writes the same lines and actions, and both score the action alone."""
    monkeypatch.setattr("uivlm.inference.thought.MAX_THOUGHT_TOKENS", 6)
    plain = load_checkpoint(folders(tmp_path, "Qwen2VL")[0])
    loaded = replace(plain, prompt_format=replace(plain.prompt_format, thoughts="thought"))
    engine, own = engine_of(loaded, StandIn(loaded), None), TorchEngine(loaded, constrained=True)
    agree(engine, own, histories()[:4], 1e-3)
    for decision in own.predict_batch(histories()[:4]):
        _, newline, action = decision.text.partition("\n")
        assert newline
        assert decision.action == loaded.prompt_format.action_text.parse(action)


def test_a_screen_that_vllm_sees_otherwise_is_an_error(tmp_path: Path, stand_in: None) -> None:
    loaded = load_checkpoint(folders(tmp_path, "Qwen2VL")[0])

    class Resizing(StandIn):
        def spread(self, prompt: Any) -> tuple[list[int], list[torch.Tensor]]:
            ids, screens = super().spread(prompt)
            return ids[1:], screens

    with pytest.raises(RuntimeError, match="vLLM read prompts of"):
        engine_of(loaded, Resizing(loaded), None).predict_batch(histories()[:1])


def test_a_typed_text_that_never_ends_is_closed(tmp_path: Path, stand_in: None) -> None:
    """Whatever the model prefers, what comes out is an action."""
    folder = folders(tmp_path, "Qwen2VL")[0]
    loaded = load_checkpoint(folder)
    reader = loaded.processor
    opening, letter = reader.encode('Input text "'), reader.encode("a")

    class Endless(StandIn):
        async def _one(self, prompt: Any, wanted: Any) -> Any:
            said = [*opening, *letter * 200][: wanted.max_tokens]
            told = [{token: SimpleNamespace(logprob=math.log(0.5))} for token in said]
            outputs = [SimpleNamespace(token_ids=said, logprobs=told)]
            return SimpleNamespace(outputs=outputs, prompt_token_ids=self.spread(prompt)[0])

    engine = engine_of(loaded, Endless(loaded), None)
    answer = engine.predict_batch(histories()[:1])[0]
    assert answer.text.startswith('Input text "aaa')
    assert answer.text.endswith('a"')
    assert answer.action == loaded.prompt_format.action_text.parse(answer.text)


def test_threads_share_one_running_batch(tmp_path: Path, stand_in: None) -> None:
    """As the server calls it: each history in a thread of its own, the same answers as alone."""
    loaded = load_checkpoint(folders(tmp_path, "Qwen2VL")[0])
    llm: Any = StandIn(loaded)
    agent = ConcurrentVlmAgent(engine_of(loaded, llm, None))
    batcher = Batcher(agent)
    asked = histories()[:4]
    replies = [batcher.submit(history) for history in asked]
    own = TorchEngine(loaded, constrained=True)
    for history, reply in zip(asked, replies, strict=True):
        assert reply.result(60).candidates[0].text == own.predict(history).text
    assert batcher.is_alive
    batcher.close()
    assert not batcher.is_alive
    assert llm.most_at_once > 1


def test_what_vllm_is_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments that are given, and vLLM's own where none is."""
    started: list[dict[str, Any]] = []

    def create(engine_args: dict[str, Any]) -> Any:
        started.append(engine_args)
        return SimpleNamespace(model_config=SimpleNamespace(max_model_len=100))

    monkeypatch.setattr(vllm_engine, "find_spec", lambda name: object())
    monkeypatch.setattr(vllm_engine, "_create_llm", create)
    monkeypatch.setattr(vllm_engine, "_lora_request", lambda folder, i: (folder.name, i))
    both = folders(tmp_path, "Qwen2VL")
    agents = load_agents(both, 2, "vllm", tensor_parallel_size=2, gpu_memory_utilization=0.5)
    assert list(agents) == ["adapter0", "adapter1"]
    assert all(isinstance(agent, ConcurrentAgent) for agent in agents.values())
    vllm_engine.load_vllm_engines(both)
    with_options, without = started
    assert (with_options["tensor_parallel_size"], with_options["gpu_memory_utilization"]) == (2, 0.5)
    options = ("tensor_parallel_size", "gpu_memory_utilization")
    assert {name: value for name, value in with_options.items() if name not in options} == without
    assert without["max_loras"] == 2
    assert without["logits_processors"] == [vllm_engine.LOGITS_PROCESSOR]


@pytest.mark.parametrize("option", [("--tensor-parallel-size", "2"), ("--gpu-memory-utilization", "0.5")])
def test_options_of_vllm_alone_are_refused_elsewhere(tmp_path: Path, option: tuple[str, str]) -> None:
    result = CliRunner().invoke(main.app, ["serve", str(tmp_path), *option])
    assert isinstance(result.exception, ValueError)
    assert f"{option[0]}: got {option[1]} with --backend native" in str(result.exception)


def test_without_vllm_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_engine, "find_spec", lambda name: None)
    result = CliRunner().invoke(main.app, ["serve", str(tmp_path), "--backend", "vllm"])
    assert isinstance(result.exception, ValueError)
    assert "pip install 'uivlm[vllm]'" in str(result.exception)


def test_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepare(tmp_path / "data", [episode(0, 2)])
    folder = saved(tmp_path, "bridge", recipe(base(tmp_path / "base"), data), 0)
    monkeypatch.setattr(vllm_engine, "find_spec", lambda name: object())
    with pytest.raises(ValueError, match="--backend vllm: got a llama_vit checkpoint"):
        vllm_engine.load_vllm_engines([folder])


def test_ranks() -> None:
    assert [vllm_engine._max_lora_rank(most) for most in (4, 8, 9, 64)] == [8, 8, 16, 64]
    with pytest.raises(ValueError, match="model.lora.r: got 513"):
        vllm_engine._max_lora_rank(513)


@pytest.fixture(scope="module", params=hf_checkpoints.KINDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("vllm", reason="vLLM is not installed: pip install 'uivlm[vllm]'")
    return folders(tmp_path_factory.mktemp("vllm"), request.param)


def test_vllm_itself_answers_alike(served: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two adapters over one base, in turns; what is kept of earlier prompts changes nothing; served over
    HTTP.
    """
    monkeypatch.setitem(os.environ, "VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    agents: dict[str, Any] = load_agents(served, 2, "vllm")
    own = [TorchEngine(one, constrained=True) for one in load_checkpoints_shared_base(served)]
    try:
        for _ in range(2):  # the second time from kept prefixes
            for agent, predictor in zip(agents.values(), own, strict=True):
                assert not isinstance(agent, RankingAgent)
                agree(agent.engine, predictor, histories(), 1e-3)
        agents["adapter0"].forget()
        with serve_in_thread(agents, {}) as url, RemoteAgent(f"{url}?model=adapter1") as remote:
            history = histories()[0]
            assert remote.act(history).text == own[1].predict(history).text
    finally:
        agents["adapter0"].engine.llm.shutdown()

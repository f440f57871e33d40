"""vLLM as an engine: the same answers as the project's own.

With a stand-in for vLLM everywhere; with vLLM itself where it is installed.
"""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.helpers import hf_checkpoints
from tests.helpers.multi_adapter import saved
from tests.helpers.tiny_models import base, episode, prepare, recipe
from uivlm.agents.agent import RankingAgent
from uivlm.cli import main
from uivlm.cli.agents import load_agents
from uivlm.episodes.episode import History, HistoryError
from uivlm.inference import vllm_engine
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint, load_checkpoints_shared_base
from uivlm.recipe import QwenHFArgs, Recipe
from uivlm.serving.client import RemoteAgent
from uivlm.serving.server import serve_in_thread

PROCESSORS = {
    "Qwen2VL": "Qwen2VLProcessor",
    "Qwen2_5_VL": "Qwen2_5_VLProcessor",
    "Qwen3VL": "Qwen3VLProcessor",
}


def servable(root: Path, kind: str) -> Path:
    """A tiny checkpoint with heads as wide as vLLM has kernels for, and the files of its processor."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {"hidden_size": 64, "intermediate_size": 64}.items():
            patch.setitem(hf_checkpoints.TEXT, name, size)
        patch.setitem(hf_checkpoints.MROPE, "mrope_section", [4, 6, 6])
        narrow = hf_checkpoints.config_json

        def wide(kind: str) -> dict[str, Any]:
            told = narrow(kind)
            told["vision_config"]["hidden_size" if kind == "Qwen2VL" else "out_hidden_size"] = 64
            if kind == "Qwen3VL":
                told["text_config"] |= {"head_dim": 32}
                told["text_config"]["rope_scaling"]["mrope_section"] = [4, 6, 6]
            return told

        patch.setattr(hf_checkpoints, "config_json", wide)
        hf_checkpoints.write(root, kind)
    processor = {"processor_class": PROCESSORS[kind]}
    for name, more in {
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "temporal_patch_size": 2,
        },
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<|endoftext|>"},
    }.items():
        told = json.loads((root / name).read_text())
        (root / name).write_text(json.dumps(told | more | processor))
    return root


def wanted(root: Path, kind: str) -> Recipe:
    one = recipe(root / kind, root / "data")
    lora = one.model.lora
    return replace(one, model=QwenHFArgs(str(root / kind), lora, max_visual_tokens=40))


def folders(root: Path, kind: str) -> list[Path]:
    prepare(root / "data", [episode(0, 2)])
    servable(root / kind, kind)
    return [saved(root, f"adapter{seed}", wanted(root, kind), seed) for seed in range(2)]


def histories() -> list[History]:
    """Long and short, with past screens and without, one with the model's own control words in its goal."""
    rng = Random(0)
    made = [episode(rng.randrange(9), 6).history(rng.randrange(6)) for _ in range(10)]
    return [*made, episode(3, 2, "<|im_end|><|image_pad|> open it").history(1)]


class StandIn:
    """vLLM's LLM as far as the engine uses it, on the project's own model: one token at a time, its
    placeholders spread.
    """

    def __init__(self, loaded: LoadedCheckpoint) -> None:
        self.loaded, self.speech = (
            loaded,
            ActionConstraint(loaded.processor, loaded.prompt_format.action_text),
        )
        self.asked: list[Any] = []

    @torch.inference_mode()
    def generate(self, prompts: list[Any], sampling: list[Any], **rest: Any) -> list[Any]:
        self.asked.append(rest)
        return [self._one(prompt, wanted) for prompt, wanted in zip(prompts, sampling, strict=True)]

    def spread(self, prompt: Any) -> tuple[list[int], list[torch.Tensor]]:
        """The ids with as many placeholders as the screens have tokens, and the screens."""
        reader: Any = self.loaded.processor
        screens = [
            torch.from_numpy(reader.normalizer(np.asarray(image)))
            for image in prompt["multi_modal_data"]["image"]
        ]
        sizes = iter(screen.shape[1] * screen.shape[2] // reader.factor**2 for screen in screens)
        ids: list[int] = []
        for token in prompt["prompt_token_ids"]:
            ids += [token] * (next(sizes) if token == reader.image_token_id else 1)
        return ids, screens

    def _one(self, prompt: Any, wanted: Any) -> Any:
        ids, screens = self.spread(prompt)
        said: list[int] = []
        logprobs = []
        while len(said) < wanted.max_tokens:
            logits = self.loaded.model(torch.tensor([[*ids, *said]]), screens, logits_to_keep=1).logits[0, -1]
            token = self.speech.next_token(said, logits.float().softmax(-1))
            logprobs.append({token: SimpleNamespace(logprob=float(logits.float().log_softmax(-1)[token]))})
            said.append(token)
            if token in wanted.stop_token_ids:
                break
        outputs = [SimpleNamespace(token_ids=said, logprobs=logprobs)]
        return SimpleNamespace(outputs=outputs, prompt_token_ids=self.spread(prompt)[0])

    def reset_prefix_cache(self) -> None:
        self.asked.clear()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampling(**told: Any) -> SimpleNamespace:
        return SimpleNamespace(**told)

    monkeypatch.setattr(vllm_engine, "import_module", lambda name: SimpleNamespace(SamplingParams=sampling))


def engine_of(loaded: LoadedCheckpoint, llm: Any, adapter: Any) -> vllm_engine.VllmEngine:
    reader: Any = loaded.processor
    speech = ActionConstraint(reader, loaded.prompt_format.action_text)
    return vllm_engine.VllmEngine(llm, Lock(), reader, loaded.prompt_format, speech, adapter)


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
    assert llm.asked == [{"use_tqdm": False, "lora_request": "this adapter"}]
    engine.reset_cache()
    assert not llm.asked
    short: Any = loaded.processor
    short.max_length = 50
    with pytest.raises(HistoryError, match="the model reads 50"):
        engine.predict_batch(histories())


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
        def _one(self, prompt: Any, wanted: Any) -> Any:
            said = [*opening, *letter * 200][: wanted.max_tokens]
            told = [{token: SimpleNamespace(logprob=math.log(0.5))} for token in said]
            outputs = [SimpleNamespace(token_ids=said, logprobs=told)]
            return SimpleNamespace(outputs=outputs, prompt_token_ids=self.spread(prompt)[0])

    engine = engine_of(loaded, Endless(loaded), None)
    answer = engine.predict_batch(histories()[:1])[0]
    assert answer.text.startswith('Input text "aaa')
    assert answer.text.endswith('a"')
    assert answer.action == loaded.prompt_format.action_text.parse(answer.text)


@pytest.mark.slow
def test_one_token_at_a_time_is_what_is_said_at_once(tmp_path: Path) -> None:
    """`follows` says forced tokens and the end, too: its whole answers parse, from any logits."""
    loaded = load_checkpoint(folders(tmp_path, "Qwen2VL")[0])
    speech = ActionConstraint(loaded.processor, loaded.prompt_format.action_text)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        said: list[int] = []
        while len(said) < 60 and (not said or said[-1] != loaded.processor.eos_id):
            said.append(
                speech.next_token(
                    said, torch.rand(loaded.processor.tokenizer.get_vocab_size(), generator=generator)
                )
            )  # type: ignore[attr-defined]
        words = loaded.processor.decode(said)
        if said[-1] == loaded.processor.eos_id:
            assert (
                loaded.prompt_format.action_text.format(loaded.prompt_format.action_text.parse(words))
                == words
            )
        else:
            assert words.startswith('Input text "')


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
        agents["adapter0"].engine.llm.llm_engine.engine_core.shutdown()

"""The logits processor that vLLM loads, in a stand-in for vLLM's own processors."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.helpers.vllm_checkpoints import folders
from uivlm.inference import vllm_engine
from uivlm.inference.constrained import ActionConstraint, best_tokens
from uivlm.inference.decoding import GenerationState, append_token
from uivlm.inference.load import load_checkpoint

NO_THOUGHT = SimpleNamespace(extra_args=None)  # the sampling parameters of a request


class Adapter:
    """vLLM's AdapterLogitsProcessor as its source has it: each request's function gets the live list of its
    tokens and its row of the logits.
    """

    def __init__(self, *_: Any) -> None:
        self.rows: dict[int, tuple[Any, list[int]]] = {}

    def add(self, index: int, said: list[int]) -> None:
        self.rows[index] = self.new_req_logits_processor(NO_THOUGHT), said  # type: ignore[attr-defined]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for index, (function, said) in self.rows.items():
            logits[index] = function(said, logits[index])
        return logits


@pytest.mark.slow
def test_one_token_at_a_time_is_what_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's processor gives forced tokens and the end, too: the answers are those of the native steps."""
    module: Any = ModuleType("vllm.v1.sample.logits_processor")
    module.AdapterLogitsProcessor = Adapter
    for name in ("vllm", "vllm.v1", "vllm.v1.sample"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "uivlm.inference.vllm_logits_processor", raising=False)
    imported = import_module("uivlm.inference.vllm_logits_processor")
    monkeypatch.delitem(sys.modules, "uivlm.inference.vllm_logits_processor")
    loaded = load_checkpoint(folders(tmp_path, "Qwen2VL")[0])
    reader: Any = loaded.processor
    config = {"base_model": loaded.recipe.model.base_model, "num_bins": loaded.prompt_format.num_bins}
    made = imported.ActionLogitsProcessor(
        SimpleNamespace(additional_config={vllm_engine.CONFIG_KEY: config}), torch.device("cpu"), False
    )
    assert not made.is_argmax_invariant()
    speech = ActionConstraint(reader, loaded.prompt_format.action_text)
    generator = torch.Generator().manual_seed(0)
    size = reader.tokenizer.get_vocab_size()
    ends = 0
    for _ in range(40):
        batch: list[list[int]] = [[] for _ in range(4)]
        for index, said in enumerate(batch):
            made.add(index, said)
        state = GenerationState(60)  # of the first row
        for _ in range(60):
            logits = torch.rand(4, size, generator=generator)
            probs = logits[:1].softmax(-1)
            row_is_open = state.stop_reason is None and len(state.token_ids) == len(batch[0])
            mask = speech.forbidden_tokens(state.token_ids, probs[0]) if row_is_open else None
            best = None if mask is None else best_tokens(probs, [mask])
            for said, row in zip(batch, made.apply(logits), strict=True):
                said.append(int(row.argmax()))
            if best is not None:
                assert batch[0][-1] == int(best)
                append_token(state, int(best), float(probs[0, best]), reader, speech)
        for said in batch:
            text = reader.decode(said)
            if reader.eos_id in said:
                ends += 1
                end = said.index(reader.eos_id)
                assert said[end:] == [reader.eos_id] * (len(said) - end)
                action_text = loaded.prompt_format.action_text
                assert action_text.format(action_text.parse(reader.decode(said[:end]))) == text
            else:
                assert text.startswith('Input text "')
        assert batch[0][: len(state.token_ids)] == state.token_ids
    assert ends > 40

"""Constrained decoding inside vLLM, by the same rules as in the native engine.

vLLM's processes load it by name. In: the tokens generated so far and the logits [V] of the next one. Out:
logits that leave the allowed tokens, or the one that is forced. vLLM chooses among them, and reports the
probability from before.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from uivlm.actions.text import ActionText
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.thought import RequestGrammar, ThoughtConstraint
from uivlm.inference.vllm_engine import CONFIG_KEY, MAX_THOUGHT_TOKENS
from uivlm.models.qwen_hf.files import load_processor


class ActionLogitsProcessor(AdapterLogitsProcessor):  # type: ignore[misc]  # vLLM is optional
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        config = vllm_config.additional_config[CONFIG_KEY]
        processor = load_processor(config["base_model"])
        self.constraint = ActionConstraint(processor, ActionText(config["num_bins"]))
        self.thoughts = ThoughtConstraint(processor)

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], Tensor], Tensor]:
        """vLLM calls it once for each request."""
        limit = (params.extra_args or {}).get(MAX_THOUGHT_TOKENS, 0)
        request = RequestGrammar(self.constraint, self.thoughts, limit)

        def mask(token_ids: list[int], logits: Tensor) -> Tensor:
            return logits.masked_fill_(request.forbidden_tokens(token_ids, logits), -torch.inf)

        return mask

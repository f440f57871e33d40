"""What binds vLLM's answers to the words of actions: it asks the grammar, as the project's own engine does.

Loaded by vLLM's processes by its name. In: the tokens of an answer so far, the logits [V] of the next one. Out: logits that leave one.
"""

from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from uivlm.actions.language import Language
from uivlm.inference.bound import Bound
from uivlm.inference.vllm import ABOUT
from uivlm.models.qwen_hf.files import load_reader


class Words(AdapterLogitsProcessor):  # type: ignore[misc]  # vLLM need not be there
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        about = vllm_config.additional_config[ABOUT]
        self.speech = Bound(load_reader(about["base"]), Language(about["bins"]))

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        return self.only

    def only(self, said: list[int], logits: Tensor) -> Tensor:
        token = self.speech.follows(said, logits.float().softmax(-1))
        logits.fill_(-torch.inf)
        logits[token] = 0.0
        return logits

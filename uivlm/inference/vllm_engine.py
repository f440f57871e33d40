"""vLLM as an engine for checkpoints of Qwen2-VL and later: paged KV cache, prefix caching, several adapters.

In: checkpoints of one base, then histories. Out: a Decision for each, constrained to actions as in the native
engine. vLLM's asynchronous engine batches the calls of several threads continuously: a request joins the
running batch at any time. Screens are resized here, so that both engines see the same visual tokens. The base
is read unquantized: adapters of a quantized base are added to weights that differ a little from those they
were trained on.
"""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

import torch
from PIL import Image

from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History
from uivlm.episodes.sentence import THOUGHT_END, PromptFormat, ScreenPiece
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.decoding import (
    MAX_NEW_TOKENS,
    GenerationState,
    append_token,
    build_prompt,
    finish,
    new_state,
)
from uivlm.inference.load import read_shared_base_recipes
from uivlm.models.adapter_config import ADAPTER_CONFIG, check_adapter_config, lora_config
from uivlm.models.adapters import ADAPTER_WEIGHTS, FULL_DIR
from uivlm.models.build import build, prompt_format
from uivlm.models.pretrained import read_weights
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.load import visual_token_budget
from uivlm.models.qwen_hf.processor import QwenHFProcessor, resize
from uivlm.recipe import QwenHFArgs, Recipe

SUPPORTED_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values of vLLM's max_lora_rank
# by name, since vLLM's own processes import it
LOGITS_PROCESSOR = "uivlm.inference.vllm_logits_processor:ActionLogitsProcessor"
MAX_THOUGHT_TOKENS = "max_thought_tokens"  # of a request's `extra_args`
Result = TypeVar("Result")
CONFIG_KEY = "uivlm"  # of vLLM's additional_config: what the logits processor needs


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """Several engines share one `llm`. Thread-safe."""

    llm: Any  # vLLM's AsyncLLM
    loop: asyncio.AbstractEventLoop  # in which `llm` runs, in a thread of its own
    processor: QwenHFProcessor
    prompt_format: PromptFormat
    constraint: ActionConstraint
    lora_request: Any  # vLLM's LoRARequest; None: the base's own weights

    def predict_batch(self, histories: Sequence[History]) -> list[Decision]:
        """One decision for each history, in one batch."""
        prompts, lengths = zip(*map(self._build_prompt, histories), strict=True)
        states = [
            new_state(self.processor.max_length - length, MAX_NEW_TOKENS, self.prompt_format)
            for length in lengths
        ]
        outputs = self._run(self._generate_all(prompts, states))
        actual = [len(output.prompt_token_ids) for output in outputs]
        if actual != list(lengths):
            raise RuntimeError(f"vLLM read prompts of {actual} tokens; expected {list(lengths)}")
        return [
            self._to_decision(output.outputs[0], state) for output, state in zip(outputs, states, strict=True)
        ]

    def reset_cache(self) -> None:
        self._run(self.llm.reset_prefix_cache())

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _generate_all(
        self, prompts: Sequence[dict[str, Any]], states: Sequence[GenerationState]
    ) -> list[Any]:
        return await asyncio.gather(*map(self._generate, prompts, states))

    async def _generate(self, prompt: dict[str, Any], state: GenerationState) -> Any:
        """vLLM's RequestOutput of the whole generated text."""
        params = _sampling_params(state, self.processor)
        outputs = self.llm.generate(prompt, params, uuid4().hex, lora_request=self.lora_request)
        return [output async for output in outputs][-1]

    def _build_prompt(self, history: History) -> tuple[dict[str, Any], int]:
        """The prompt in vLLM's form, with one placeholder for each screen, and its number of tokens in the
        model.
        """
        sentence, example = build_prompt(history, self.prompt_format, self.processor)
        ids: list[int] = example.input_ids.tolist()
        placeholder = self.processor.image_token_id
        short = [token for i, token in enumerate(ids) if token != placeholder or ids[i - 1] != placeholder]
        screens = [
            Image.fromarray(resize(piece.screen.pixels, *self.processor.image_size(piece)))
            for piece in sentence
            if isinstance(piece, ScreenPiece)
        ]
        return {"prompt_token_ids": short, "multi_modal_data": {"image": screens}}, len(ids)

    def _to_decision(self, output: Any, state: GenerationState) -> Decision:
        num_consumed = 0
        for i, token in enumerate(output.token_ids):
            if state.stop_reason is not None:
                break
            if i < num_consumed:  # it was forced
                continue
            probability = math.exp(output.logprobs[i][token].logprob)
            append_token(state, token, probability, self.processor, self.constraint)
            num_consumed = len(state.thought_ids) + len(state.token_ids)
        if state.stop_reason is None:
            state.stop_reason = f"no end within {state.max_new_tokens} tokens"
        return finish(state, self.processor, self.prompt_format.action_text, self.constraint)


def load_vllm_engines(
    folders: Sequence[Path],
    tensor_parallel_size: int | None = None,
    gpu_memory_utilization: float | None = None,
) -> dict[str, VllmEngine]:
    """An engine of each checkpoint, by the name of its folder. Their base is in memory once.

    `tensor_parallel_size`: GPUs that share each layer; `gpu_memory_utilization`: fraction of each GPU's
    memory for weights, activations and the KV cache; None: vLLM's default. ValueError if vLLM is not
    installed or does not support such a model.
    """
    if find_spec("vllm") is None:
        raise ValueError(
            "--backend vllm: vLLM is not installed. pip install 'uivlm[vllm]', or use --backend native"
        )
    checkpoints = read_shared_base_recipes(folders)
    recipe = checkpoints[0]
    if not isinstance(recipe.model, QwenHFArgs):
        raise ValueError(
            f"--backend vllm: got a {recipe.model.type} checkpoint, {folders[0]}; expected Qwen2-VL or "
            "later. "
            "Use --backend native"
        )
    if any(one.model.lora is not None and one.model.lora.vision for one in checkpoints):
        raise ValueError(
            "--backend vllm: got adapters on the vision encoder (model.lora.vision); vLLM reads those of the "
            "language model only. Merge them with `uivlm merge`, or use --backend native"
        )
    base = files.find_or_download(
        folders[0] / FULL_DIR if recipe.model.lora is None else recipe.model.base_model
    )
    processor = files.load_processor(base, visual_token_budget(recipe.model))
    _check_adapters(folders, checkpoints)
    ranks = [checkpoint.model.lora.r for checkpoint in checkpoints if checkpoint.model.lora is not None]
    given = {
        "tensor_parallel_size": tensor_parallel_size,
        "gpu_memory_utilization": gpu_memory_utilization,
    }
    options = {name: value for name, value in given.items() if value is not None}
    llm = _create_llm(_engine_args(base, recipe, recipe.model, processor, ranks) | options)
    processor.max_length = min(processor.max_length, llm.model_config.max_model_len)
    format_ = prompt_format(recipe)
    constraint, loop = ActionConstraint(processor, format_.action_text), _start_loop()
    return {
        folder.resolve().name: VllmEngine(
            llm, loop, processor, format_, constraint, _lora_request(folder, i) if ranks else None
        )
        for i, folder in enumerate(folders, 1)
    }


def _check_adapters(folders: Sequence[Path], checkpoints: Sequence[Recipe]) -> None:
    """vLLM reads the files of adapters itself. ValueError where the native backend would refuse them."""
    if checkpoints[0].model.lora is None:
        return
    base = build(checkpoints[0], "meta")
    for folder, recipe in zip(folders, checkpoints, strict=True):
        check_adapter_config(folder / ADAPTER_CONFIG, lora_config(replace(base, lora=recipe.model.lora)))
        read_weights(folder / ADAPTER_WEIGHTS)


def _create_llm(engine_args: dict[str, Any]) -> Any:
    args = import_module("vllm.engine.arg_utils").AsyncEngineArgs(**engine_args)
    return import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(args)


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="vllm", daemon=True).start()
    return loop


def _engine_args(
    base: Path,
    recipe: Recipe,
    args: QwenHFArgs,
    processor: QwenHFProcessor,
    lora_ranks: Sequence[int],
) -> dict[str, Any]:
    """Fields of vLLM's AsyncEngineArgs."""
    token_pixels = processor.factor**2  # of a visual token; vLLM then resizes no screen again
    adapters: dict[str, Any] = {}
    if lora_ranks:
        adapters = {
            "enable_lora": True,
            "max_loras": len(lora_ranks),
            "max_lora_rank": _max_lora_rank(max(lora_ranks)),
        }
    return adapters | {
        "model": str(base),
        "dtype": recipe.train.precision,
        "max_model_len": -1,  # the model's own, or what fits into memory
        "seed": 0,
        "trust_remote_code": False,
        "enable_prefix_caching": True,
        "enforce_eager": not torch.cuda.is_available(),  # CUDA graphs pay on a GPU only
        "disable_log_stats": True,
        "limit_mm_per_prompt": {"image": recipe.prompt.max_screens, "video": 0},
        "mm_processor_kwargs": {
            "size": {"shortest_edge": token_pixels, "longest_edge": args.max_visual_tokens * token_pixels}
        },
        "logits_processors": [LOGITS_PROCESSOR],
        "additional_config": {CONFIG_KEY: {"base_model": str(base), "num_bins": recipe.prompt.num_bins}},
    }


def _max_lora_rank(rank: int) -> int:
    """The smallest supported rank that is not below `rank`."""
    supported = next((limit for limit in SUPPORTED_LORA_RANKS if limit >= rank), None)
    if supported is None:
        raise ValueError(
            f"model.lora.r: got {rank}; vLLM supports at most {SUPPORTED_LORA_RANKS[-1]}. "
            "`uivlm merge` adds the adapters to the base"
        )
    return supported


def _lora_request(folder: Path, lora_id: int) -> Any:
    request = import_module("vllm.lora.request").LoRARequest
    return request(folder.resolve().name, lora_id, str(folder.resolve()))


def _sampling_params(state: GenerationState, processor: QwenHFProcessor) -> Any:
    """Greedy, with the model's own probability of each token. The end token counts as a new token.

    `extra_args` tells the logits processor how long a thought may be.
    """
    vllm = import_module("vllm.sampling_params")
    limit = state.max_thought_tokens
    thought = limit + len(processor.encode(THOUGHT_END)) if limit else 0
    return vllm.SamplingParams(
        temperature=0.0,
        max_tokens=thought + state.max_new_tokens + 1,
        logprobs=0,
        stop_token_ids=[processor.eos_id],
        detokenize=False,
        output_kind=vllm.RequestOutputKind.FINAL_ONLY,
        extra_args={MAX_THOUGHT_TOKENS: limit},
    )

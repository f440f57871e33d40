"""Another engine: vLLM answers for checkpoints of Qwen2-VL and later, with its paged cache, kept prefixes and adapters.

In: checkpoints over one base; then histories. Out: answers, as the project's own engine gives them (`answer.py`), bound to the words
of actions (`vllm_words.py`). Screens are brought to their size here, so both engines see as many visual tokens of each. The base is
read unquantised: adapters of a quantised one are added to weights that differ a little from those they were trained on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from PIL import Image

from uivlm import recipe as recipes
from uivlm.episode import History
from uivlm.inference.answer import LIMIT, Answer, Saying, asked, take, told
from uivlm.inference.bound import Bound
from uivlm.inference.load import same_base
from uivlm.models import tune
from uivlm.models.model import grammar
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.pixels import Sight, resized
from uivlm.models.qwen_hf.reader import Reader
from uivlm.sentences.sentence import Grammar, Picture

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # most ranks of adapters that vLLM has kernels for
WORDS = "uivlm.inference.vllm_words:Words"  # what binds answers, as vLLM's own processes find it
ABOUT = "uivlm"  # what these are told of the checkpoint


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """`llm`: vLLM's LLM, which several engines share, so one waits for the other; `adapter`: a LoRARequest, or None where the weights
    are whole."""

    llm: Any
    lock: Lock
    reader: Reader
    grammar: Grammar
    speech: Bound
    adapter: Any

    def predict_all(self, histories: Sequence[History]) -> list[Answer]:
        prompts, lengths = zip(*map(self._prompt, histories), strict=True)
        rooms = [min(LIMIT, self.reader.context - length) for length in lengths]
        with self.lock:
            wanted = [_sampling(room, self.reader.end) for room in rooms]
            outputs = self.llm.generate(list(prompts), wanted, use_tqdm=False, lora_request=self.adapter)
        read = [len(output.prompt_token_ids) for output in outputs]
        if read != list(lengths):
            raise RuntimeError(f"vLLM read prompts of {read} tokens where they have {list(lengths)}")
        return [self._answer(output.outputs[0], room) for output, room in zip(outputs, rooms, strict=True)]

    def forget(self) -> None:
        with self.lock:
            self.llm.reset_prefix_cache()

    def _prompt(self, history: History) -> tuple[dict[str, Any], int]:
        """As vLLM wants it, with one placeholder a screen; and how many tokens the model reads."""
        sentence, example = asked(history, self.grammar, self.reader)
        ids: list[int] = example.input_ids.tolist()
        place = self.reader.placeholder
        short = [one for i, one in enumerate(ids) if one != place or ids[i - 1] != place]
        screens = [
            Image.fromarray(resized(piece.screen.pixels, *self.reader.size(piece)))
            for piece in sentence
            if isinstance(piece, Picture)
        ]
        return {"prompt_token_ids": short, "multi_modal_data": {"image": screens}}, len(ids)

    def _answer(self, output: Any, room: int) -> Answer:
        said, known = Saying(room), 0
        for i, token in enumerate(output.token_ids):
            if said.why is not None:
                break
            if i < known:  # it had to follow
                continue
            take(said, token, math.exp(output.logprobs[i][token].logprob), self.reader, self.speech)
            known = len(said.tokens)
        if said.why is None:
            said.why = f"no end within {room} tokens"
        return told(said, self.reader, self.grammar.language, bound=True)


def load(folders: Sequence[Path]) -> dict[str, VllmEngine]:
    """An engine of each checkpoint, by its folder's name, over one base that is in memory once. ValueError where vLLM is absent, or
    does not know such a model."""
    if find_spec("vllm") is None:
        raise ValueError(
            "--engine vllm needs vLLM: pip install 'uivlm[vllm]', or serve without --engine vllm"
        )
    checkpoints = same_base(folders)
    first = checkpoints[0]
    if not isinstance(first.model, recipes.QwenHF):
        raise ValueError(
            f"vLLM serves Qwen2-VL and later, {folders[0]} is a {first.model.kind} checkpoint: serve it without --engine vllm"
        )
    base = files.fetch(folders[0] / tune.FULL if first.model.lora is None else first.model.base)
    reader = files.load_reader(base, Sight(first.model.most, first.model.older, first.model.least))
    ranks = [recipe.model.lora.r for recipe in checkpoints if recipe.model.lora is not None]
    llm, lock = _start(base, first, first.model, reader, ranks), Lock()
    reader.context = min(reader.context, llm.model_config.max_model_len)
    spoken = grammar(first)
    speech = Bound(reader, spoken.language)
    return {
        folder.resolve().name: VllmEngine(
            llm, lock, reader, spoken, speech, _adapter(folder, i) if ranks else None
        )
        for i, folder in enumerate(folders, 1)
    }


def _start(
    base: Path, recipe: recipes.Recipe, part: recipes.QwenHF, reader: Reader, ranks: Sequence[int]
) -> Any:
    side = reader.factor**2  # pixels of a visual token: no screen is resized a second time
    adapters: dict[str, Any] = {}
    if ranks:
        adapters = {"enable_lora": True, "max_loras": len(ranks), "max_lora_rank": _rank(max(ranks))}
    return import_module("vllm").LLM(
        model=str(base),
        dtype=recipe.train.precision,
        max_model_len=-1,  # the model's own, or what fits into memory
        seed=0,
        enable_prefix_caching=True,
        enforce_eager=not torch.cuda.is_available(),  # graphs pay on a GPU alone
        limit_mm_per_prompt={"image": recipe.grammar.screens, "video": 0},
        mm_processor_kwargs={"size": {"shortest_edge": side, "longest_edge": part.most * side}},
        logits_processors=[WORDS],
        additional_config={ABOUT: {"base": str(base), "bins": recipe.grammar.bins}},
        **adapters,
    )


def _rank(most: int) -> int:
    """The smallest that vLLM has for adapters of at most this rank."""
    found = next((rank for rank in RANKS if rank >= most), None)
    if found is None:
        raise ValueError(
            f"vLLM has no adapters of rank {most}, at most {RANKS[-1]}: `uivlm merge` adds them to the base"
        )
    return found


def _adapter(folder: Path, number: int) -> Any:
    request = import_module("vllm.lora.request").LoRARequest
    return request(folder.resolve().name, number, str(folder.resolve()))


def _sampling(room: int, end: int) -> Any:
    """The likeliest of what may follow, and of each token the model's own probability; the end is a token, too."""
    vllm = import_module("vllm")
    return vllm.SamplingParams(
        temperature=0.0, max_tokens=room + 1, logprobs=0, stop_token_ids=[end], detokenize=False
    )

"""Which attention kernels run, and whether the frozen vision encoder records gradients.

    python bench/gpu/attention_kernels.py OUT MODEL [--small]

The published widths with two layers in each tower: kernels are chosen by width, type and mask, not by depth.
A row counts the calls of a kernel in the forward pass of the vision encoder alone, and in one optimizer step
(vision encoder, language model, backward) on packed and on padded sentences.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from models import SHALLOW, resize
from part import Part, parse_arguments
from steps import make_episodes, run_steps
from torch.profiler import ProfilerActivity, profile

from uivlm.episodes.encode import encode
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import build, prompt_format
from uivlm.models.multimodal import encode_screens

WRAPPERS = ("aten::scaled_dot_product_attention",)  # which calls one of the kernels
LAYOUTS = {
    "packed": ["train.gradient_accumulation_steps=1"],
    "padded": [
        "train.gradient_accumulation_steps=1",
        "train.max_packed_tokens=null",
        "train.per_device_batch_size=2",
    ],
}


def main() -> None:
    part = parse_arguments("attention_kernels", __doc__)
    features_require_grad, counts = _vision(part)
    rows = [{"pass": "vision", "kernel": name, "calls": calls} for name, calls in sorted(counts.items())]
    for name, settings in LAYOUTS.items():
        recipe = part.recipe(*settings, config=resize(part.model, SHALLOW))
        loaded = build(recipe, str(part.device))
        episodes = make_episodes(part)
        counts = count_attention(partial(run_steps, recipe, loaded, episodes, 1))
        rows += [{"pass": name, "kernel": kernel, "calls": calls} for kernel, calls in sorted(counts.items())]
    part.write({"vision_features_require_grad": features_require_grad}, rows)


def _vision(part: Part) -> tuple[bool, Counter[str]]:
    """Do the features of a model in training require a gradient? With the kernels of a sentence's screens."""
    recipe = part.recipe(config=resize(part.model, SHALLOW))
    loaded = build(recipe, str(part.device))
    prepare_for_training(loaded, 0).to(part.device).train()
    module: Any = loaded.model
    module.activation_checkpointing_enable({"use_reentrant": False})
    spoken = prompt_format(recipe)
    window = next(iter(spoken.windows(make_episodes(part)[-1])))
    example = encode(spoken.sentence(window), loaded.processor)
    features = []
    counts = count_attention(lambda: features.extend(encode_screens(module, example.pixels)))
    return any(feature.requires_grad for feature in features), counts


def count_attention(run: Callable[[], object]) -> Counter[str]:
    """Calls of each attention kernel."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    names: Iterator[str] = (event.name for event in profiler.events())
    kernels = (name for name in names if "::" in name and ("attention" in name or "varlen" in name))
    return Counter(name for name in kernels if name not in WRAPPERS)


if __name__ == "__main__":
    main()

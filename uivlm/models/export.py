"""A checkpoint merged into a base that other programs load."""

from pathlib import Path

from uivlm.atomic import check_new_dir
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.merging import merge_adapters, merge_errors
from uivlm.recipe import Recipe


def merge(recipe: Recipe, checkpoint: Path, out: Path) -> float:
    """Write the model with its adapters added to the weights, as a base in the model's own format.

    Adapters of a quantized model are added to the unquantized weights, which differ a little from those that
    the adapters were trained on. Returns the largest of `merge_errors`.
    """
    check_new_dir(out)
    recipe = recipe.without_quantization()
    if recipe.model.lora is None:
        loaded, model = adapters.load(recipe, checkpoint)
        largest_error = 0.0
    else:
        loaded = build(recipe.without_pretrained_projector())  # the checkpoint has its own
        with_adapters = adapters.load_adapters(loaded, checkpoint)
        largest_error = max(merge_errors(with_adapters))
        model = merge_adapters(with_adapters)
    loaded.save_pretrained(model, out)
    return largest_error

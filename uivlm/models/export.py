"""A checkpoint merged into a base that other programs load."""

from pathlib import Path

from uivlm.atomic import check_new_dir
from uivlm.models import adapters
from uivlm.recipe import Recipe


def merge(recipe: Recipe, checkpoint: Path, out: Path) -> None:
    """Write the model with its adapters added to the weights, as a base in the model's own format.

    Adapters of a quantized model are added to the unquantized weights, which differ a little from those that
    the adapters were trained on.
    """
    check_new_dir(out)
    loaded, model = adapters.load(recipe.without_quantization(), checkpoint)
    loaded.save_pretrained(model, out)
